"""The contract of attention backends: each equals a plain computation of what attention over a paged cache means.

It takes every backend of the table; those for devices that are not here are skipped.
"""

from collections.abc import Callable

import msgspec
import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from serbench_codecs.plan import NO_ADMISSIONS, NO_ROWS, NO_WRITES, Int32Array, StepPlan
from serbench_codecs.table import RequestTable, TableLimits
from serbench_engine.attention.base import AttentionBackend, AttentionShape, CacheShape
from serbench_engine.attention.cpu import CpuAttention
from serbench_engine.attention.native import NativeAttention
from serbench_engine.attention.registry import BACKENDS, make_attention
from serbench_engine.errors import ConfigError
from serbench_engine.native.library import native_status
from serbench_engine.runner.inputs import InputPreparer

MakeBackend = Callable[[AttentionShape, CacheShape], AttentionBackend]

BUDGETS: dict[str, MakeBackend] = {
    "cpu, one row a batch": lambda shape, cache: CpuAttention(shape, cache, gathered_bytes=1, mask_elements=1),
    "cpu, few rows a batch": lambda shape, cache: CpuAttention(shape, cache, gathered_bytes=4096, mask_elements=100),
}
"""Variants whose limits small inputs reach."""


@pytest.fixture(params=[*BACKENDS, *BUDGETS], scope="module")
def make(request: pytest.FixtureRequest) -> MakeBackend:
    if request.param == "cuda" and not torch.cuda.is_available():
        pytest.skip("no GPU here")
    if request.param == "cpu-native" and native_status():
        pytest.skip(native_status())
    return (BACKENDS | BUDGETS)[request.param]


@pytest.fixture(params=[NativeAttention, CpuAttention])
def on_cpu(request: pytest.FixtureRequest) -> type[NativeAttention] | type[CpuAttention]:
    if request.param is NativeAttention and native_status():
        pytest.skip(native_status())
    backend: type[NativeAttention] | type[CpuAttention] = request.param
    return backend


class Case(msgspec.Struct, frozen=True):
    """Rows as (tokens cached before, tokens of this step), and the model's and cache's shape."""

    rows: list[tuple[int, int]]
    kv_heads: int
    group: int
    head_dim: int
    windows: tuple[int, ...]
    block_size: int
    seed: int
    turns: bool = False

    @property
    def shape(self) -> AttentionShape:
        return AttentionShape(self.kv_heads * self.group, self.kv_heads, self.head_dim, self.windows)

    def cache(self, dtype: torch.dtype = torch.float32) -> CacheShape:
        return CacheShape(len(self.rows) * self.blocks_each + 3, self.block_size, dtype, "cpu")

    @property
    def blocks_each(self) -> int:
        return -(-max(before + now for before, now in self.rows) // self.block_size)


cases = st.builds(
    Case,
    rows=st.lists(
        st.tuples(st.integers(0, 40), st.one_of(st.just(1), st.integers(1, 20))),
        min_size=1,
        max_size=6,
    ),
    kv_heads=st.integers(1, 3),
    group=st.integers(1, 3),
    head_dim=st.sampled_from([2, 8, 16]),
    windows=st.lists(st.sampled_from([0, 1, 3, 8, 17]), min_size=1, max_size=3).map(tuple),
    block_size=st.sampled_from([1, 4, 16]),
    seed=st.integers(0, 2**31),
    turns=st.booleans(),
)


class Paged:
    """A table whose rows own shuffled blocks, and the keys and values of all their tokens, layer by layer."""

    def __init__(self, case: Case, backend: AttentionBackend, dtype: torch.dtype = torch.float32) -> None:
        self.case, self.backend = case, backend
        rng = np.random.default_rng(case.seed)
        count, width = len(case.rows), case.blocks_each
        longest = width * case.block_size
        self.table = RequestTable(TableLimits(count, longest, case.block_size, case.cache().num_blocks, 10))
        blocks = rng.permutation(case.cache().num_blocks)[: count * width]
        self.table.block_table[:, :width] = blocks.reshape(count, width)
        self.order = rng.permutation(count).astype(np.int32)
        generator = torch.Generator().manual_seed(case.seed)
        heads, layers = case.shape.num_heads, len(case.windows)

        def random(heads: int) -> Tensor:
            return torch.randn(layers, count, longest, heads, case.head_dim, generator=generator).to(dtype)

        self.queries, self.keys, self.values = random(heads), random(case.kv_heads), random(case.kv_heads)
        angles = torch.randn(longest, 1, case.head_dim // 2, generator=generator).repeat(1, 1, 2)
        self.angles = (angles.cos().to(dtype), angles.sin().to(dtype)) if case.turns else None

    def run(self, counts: Int32Array) -> dict[tuple[int, int], Tensor]:
        """Run each row for so many tokens (none: not at all): (layer, row) → [count, heads · head_dim]."""
        rows = self.order[counts[self.order] > 0]
        counts = counts[rows]
        plan = StepPlan(1, 0, NO_ROWS, NO_ADMISSIONS, NO_WRITES, NO_WRITES, rows, counts)
        self.table.num_tokens[rows] = self.table.num_computed_tokens[rows] + counts
        inputs = InputPreparer().prepare(plan, self.table)
        attend = self.backend.begin(inputs, self.table.block_table)
        self.table.advance(plan)
        of = np.repeat(rows, counts)
        out: dict[tuple[int, int], Tensor] = {}
        for layer in range(len(self.case.windows)):
            vectors = (x[layer, of, inputs.positions] for x in (self.queries, self.keys, self.values))
            stacked = self.lay_out(torch.cat([x.flatten(1) for x in vectors], dim=1))
            angles = (self.angles[0][inputs.positions], self.angles[1][inputs.positions]) if self.angles else None
            parts = attend(layer, stacked, angles).split(counts.tolist())
            out |= {(layer, row): part for row, part in zip(rows.tolist(), parts, strict=True)}
        return out

    def lay_out(self, stacked: Tensor) -> Tensor:
        """In memory, for the backend; tests may do it in another way."""
        return stacked

    def turned(self, x: Tensor, first: int = 0) -> Tensor:
        """[n, head_dim] at positions from ``first`` on, turned by their angles as numbers of the complex plane."""
        x = x.double()
        if self.angles is None:
            return x
        half = self.case.head_dim // 2
        cos, sin = (part[first : first + len(x), 0, :half].double() for part in self.angles)
        whole = torch.complex(x[:, :half], x[:, half:]) * torch.complex(cos, sin)
        return torch.cat((whole.real, whole.imag), dim=1)

    def expected(self, layer: int, row: int, begin: int, end: int) -> Tensor:
        """Query by query and head by head, in double precision."""
        case, window = self.case, self.case.windows[layer]
        out = torch.empty(end - begin, case.shape.num_heads, case.head_dim, dtype=torch.float64)
        for position in range(begin, end):
            first = max(0, position + 1 - window) if window else 0
            for head in range(case.shape.num_heads):
                seen = (layer, row, slice(first, position + 1), head // case.group)
                keys, values = self.turned(self.keys[seen], first), self.values[seen].double()
                [query] = self.turned(self.queries[layer, row, position, head][None], position)
                weights = torch.softmax(keys @ query * case.shape.scale, 0)
                out[position - begin, head] = weights @ values
        return out.flatten(1)


@settings(max_examples=40)
@given(case=cases)
def test_equals_the_plain_computation(make: MakeBackend, case: Case) -> None:
    paged = Paged(case, make(case.shape, case.cache()))
    before, now = np.array(case.rows, dtype=np.int32).T
    paged.run(before)
    for (layer, row), out in paged.run(now).items():
        expected = paged.expected(layer, row, int(before[row]), int(before[row] + now[row]))
        torch.testing.assert_close(out.double(), expected, atol=1e-5, rtol=1e-5)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_half_precision_is_close(make: MakeBackend, dtype: torch.dtype) -> None:
    case = Case([(30, 1), (3, 9), (17, 1)], 2, 2, 16, (0, 8), 4, seed=1, turns=True)
    paged = Paged(case, make(case.shape, case.cache(dtype)), dtype)
    before, now = np.array(case.rows, dtype=np.int32).T
    paged.run(before)
    for (layer, row), out in paged.run(now).items():
        assert out.dtype == dtype
        expected = paged.expected(layer, row, int(before[row]), int(before[row] + now[row]))
        torch.testing.assert_close(out.double(), expected, atol=0.03, rtol=0.03)


def test_the_same_batch_gives_the_same_bits(make: MakeBackend) -> None:
    case = Case([(30, 1), (3, 9), (29, 1), (0, 12)], 2, 2, 16, (0, 8), 4, seed=2)
    before, now = np.array(case.rows, dtype=np.int32).T
    runs = []
    for _ in range(2):
        paged = Paged(case, make(case.shape, case.cache()))
        paged.run(before)
        runs.append(paged.run(now))
    assert all(torch.equal(runs[0][key], runs[1][key]) for key in runs[0])


def test_what_others_left_in_the_cache_harms_nobody(on_cpu: type[NativeAttention] | type[CpuAttention]) -> None:
    """A request gone wrong leaves NaN in blocks that are handed out again, and a batch mate may be going wrong now."""
    case = Case([(0, 5), (2, 1), (9, 1), (9, 1)], 2, 1, 8, (0, 3), 4, seed=3)
    backend = on_cpu(case.shape, case.cache())
    for layer in backend.layers:
        layer.keys.fill_(torch.nan)
        layer.values.fill_(torch.nan)
    paged = Paged(case, backend)
    before, now = np.array(case.rows, dtype=np.int32).T
    paged.keys[:, 3] = torch.nan
    paged.run(before)
    for (layer_index, row), out in paged.run(now).items():
        if row == 3:
            assert out.isnan().all()
        else:
            expected = paged.expected(layer_index, row, int(before[row]), int(before[row] + now[row]))
            torch.testing.assert_close(out.double(), expected, atol=1e-5, rtol=1e-5)


def test_blocks_behind_the_window_are_not_even_read(on_cpu: type[NativeAttention] | type[CpuAttention]) -> None:
    case = Case([(40, 1), (40, 7)], 1, 2, 8, (6,), 4, seed=4)
    backend = on_cpu(case.shape, case.cache())
    paged = Paged(case, backend)
    paged.run(np.array([40, 40], dtype=np.int32))
    behind = paged.table.block_table[:, : (40 + 1 - 6) // 4].flatten()
    backend.layers[0].keys[behind] = torch.nan
    backend.layers[0].values[behind] = torch.nan
    for (layer, row), out in paged.run(np.array([1, 7], dtype=np.int32)).items():
        torch.testing.assert_close(out.double(), paged.expected(layer, row, 40, 40 + len(out)), atol=1e-5, rtol=1e-5)


def test_a_device_without_a_backend_is_refused() -> None:
    case = Case([(0, 1)], 1, 1, 2, (0,), 4, seed=0)
    with pytest.raises(ConfigError, match="no attention backend for device 'abacus:1': there is one for cpu"):
        make_attention(case.shape, msgspec.structs.replace(case.cache(), device="abacus:1"))
