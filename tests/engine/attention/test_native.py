"""What only the kernels promise: the same bits whatever the threads and the batch, on CPUs of any instruction set.

That they compute attention at all is test_backends.py's; here are long rows and wide heads, which it has not.
"""

import platform

import numpy as np
import pytest
import torch

from serbench_engine.attention.native import NativeAttention
from serbench_engine.native.compiler import NativeError
from serbench_engine.native.library import AttentionKernels, native_status
from tests.engine.attention.test_backends import Case, Paged

pytestmark = pytest.mark.skipif(bool(native_status()), reason=native_status() or "kernels are here")

LONG = Case(
    rows=[(1500, 1), (511, 1), (512, 1), (700, 3), (0, 1), (60, 70), (1040, 2), (3, 1)],
    kv_heads=2,
    group=3,
    head_dim=64,
    windows=(0, 600),
    block_size=16,
    seed=1,
    turns=True,
)
"""Rows whose keys are split among threads, prompts of several tiles, and windows that begin in mid-block."""


def run(
    case: Case, dtype: torch.dtype, kernels: AttentionKernels | None = None
) -> tuple[Paged, dict[tuple[int, int], torch.Tensor]]:
    """The second of two steps: (tokens before, tokens now) of each row."""
    paged = Paged(case, NativeAttention(case.shape, case.cache(dtype), kernels), dtype)
    before, now = np.array(case.rows, dtype=np.int32).T
    paged.run(before)
    return paged, paged.run(now)


def assert_right(case: Case, dtype: torch.dtype, kernels: AttentionKernels | None = None) -> None:
    tolerance = {torch.float32: 1e-5, torch.bfloat16: 0.02, torch.float16: 0.003}[dtype]
    paged, outputs = run(case, dtype, kernels)
    for (layer, row), out in outputs.items():
        begin = case.rows[row][0] + len(out) - min(len(out), 3)  # the plain computation is slow
        expected = paged.expected(layer, row, begin, case.rows[row][0] + len(out))
        torch.testing.assert_close(out[-len(expected) :].double(), expected, atol=tolerance, rtol=tolerance)


@pytest.mark.parametrize(
    ("dtype", "head_dim", "group", "block_size"),
    [
        (torch.float32, 64, 3, 16),
        (torch.bfloat16, 64, 1, 16),
        (torch.bfloat16, 64, 7, 4),  # matrix units' few queries, of keys that lie apart
        (torch.bfloat16, 128, 2, 16),
        (torch.bfloat16, 80, 2, 32),
        (torch.float32, 96, 8, 16),
        (torch.bfloat16, 128, 40, 8),
    ],
)
def test_long_rows_and_wide_heads(dtype: torch.dtype, head_dim: int, group: int, block_size: int) -> None:
    rows = [row for row in LONG.rows if group < 8 or row[0] != 60]
    case = Case(rows, 1, group, head_dim, LONG.windows, block_size, seed=2, turns=True)
    assert_right(case, dtype)


@pytest.mark.parametrize(
    ("target", "dtype"),
    [
        ("-march=x86-64", torch.float32),
        ("-march=x86-64-v3", torch.bfloat16),
        ("-march=x86-64-v3", torch.float16),
        ("-march=x86-64-v4", torch.bfloat16),
        ("-march=native", torch.bfloat16),
    ],
)
def test_other_instruction_sets(target: str, dtype: torch.dtype) -> None:
    if platform.machine() != "x86_64":
        pytest.skip("this CPU's instruction sets have other names")
    if target.endswith("v4") and not torch.backends.cpu.get_cpu_capability().startswith("AVX512"):
        pytest.skip("no AVX-512 here")
    try:
        kernels = AttentionKernels(str(dtype).removeprefix("torch."), 40, target)
    except NativeError as error:  # an old compiler, which does not know the names
        pytest.skip(str(error))
    assert_right(Case(LONG.rows, 2, 2, 40, (0, 600), 16, seed=3, turns=True), dtype, kernels)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_the_number_of_threads_changes_no_bit(dtype: torch.dtype) -> None:
    before = torch.get_num_threads()
    outputs = []
    try:
        for threads in (1, 2, 3):
            torch.set_num_threads(threads)
            outputs.append(run(LONG, dtype)[1])
    finally:
        torch.set_num_threads(before)
    for other in outputs[1:]:
        assert all(torch.equal(outputs[0][key], other[key]) for key in outputs[0])


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_batch_mates_change_no_bit(dtype: torch.dtype) -> None:
    together = run(LONG, dtype)[1]
    paged = Paged(LONG, NativeAttention(LONG.shape, LONG.cache(dtype)), dtype)
    before, now = np.array(LONG.rows, dtype=np.int32).T
    for row in range(len(LONG.rows)):
        alone = np.arange(len(LONG.rows)) == row
        if before[row]:
            paged.run(before * alone)
        for key, out in paged.run(now * alone).items():
            assert torch.equal(out, together[key])


class Apart(Paged):
    """What belongs to one token is not followed by the next one's."""

    def lay_out(self, stacked: torch.Tensor) -> torch.Tensor:
        return torch.nn.functional.pad(stacked, (7, 4), value=torch.nan)[:, 7:-4]


def test_tokens_may_lie_apart() -> None:
    case = Case([(20, 1), (5, 9)], 2, 2, 64, (0,), 16, seed=4, turns=True)
    together = run(case, torch.float32)[1]
    apart = Apart(case, NativeAttention(case.shape, case.cache()))
    before, now = np.array(case.rows, dtype=np.int32).T
    apart.run(before)
    assert all(torch.equal(out, together[key]) for key, out in apart.run(now).items())
