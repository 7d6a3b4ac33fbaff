"""What layers do to rows: kernels and torch's operators alike equal a computation in double precision."""

from collections.abc import Callable, Iterator

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from serbench_codecs.plan import FAILED_ROW
from serbench_engine.layers import rows
from serbench_engine.layers.rows import gate, layer_norm, rms_norm, rotate
from serbench_engine.native.library import layer_kernels
from serbench_engine.sampling import sampler

TOLERANCE = {torch.float32: 2e-6, torch.bfloat16: 1e-2, torch.float16: 1e-3}


@pytest.fixture(params=["kernels", "torch"], autouse=True, scope="module")
def way(request: pytest.FixtureRequest) -> Iterator[None]:
    """By kernels, where there are some, and without."""
    if request.param == "kernels" and isinstance(reason := layer_kernels("float32"), str):
        pytest.skip(reason)
    with pytest.MonkeyPatch.context() as patch:
        if request.param == "torch":
            for module in (rows, sampler):
                patch.setattr(module, "kernels_for", lambda x: None)
        yield


@pytest.fixture(params=list(TOLERANCE), ids=str)
def dtype(request: pytest.FixtureRequest) -> torch.dtype:
    assert isinstance(request.param, torch.dtype)
    return request.param


def numbers(*shape: int, dtype: torch.dtype, seed: int = 0) -> Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed)).to(dtype)


def assert_close(found: Tensor, expected: Tensor) -> None:
    tolerance = TOLERANCE[found.dtype]
    torch.testing.assert_close(found.double(), expected, atol=tolerance, rtol=2 * tolerance)


SIZES = pytest.mark.parametrize("size", [1, 16, 33, 768])


@SIZES
@pytest.mark.parametrize("count", [0, 1, 300])
def test_layer_norm(dtype: torch.dtype, size: int, count: int) -> None:
    x, weight, bias = numbers(count, size, dtype=dtype), numbers(size, dtype=dtype), numbers(size, dtype=dtype, seed=1)
    x = x + 3
    expected = F.layer_norm(x.double(), (size,), weight.double(), bias.double(), 1e-5)
    if size > 1:  # of one number the norm is 0 / 0, but for the small constant
        assert_close(layer_norm(x, weight, bias, 1e-5), expected)


@SIZES
def test_rms_norm(dtype: torch.dtype, size: int) -> None:
    x, weight = numbers(40, size, dtype=dtype), numbers(size, dtype=dtype, seed=1)
    assert_close(rms_norm(x, weight, 1e-5), F.rms_norm(x.double(), (size,), weight.double(), 1e-5))


def test_rms_norm_of_heads_within_rows(dtype: torch.dtype) -> None:
    stacked, weight = numbers(20, 5 * 24, dtype=dtype), numbers(24, dtype=dtype, seed=1)
    heads = stacked[:, 24 : 4 * 24].unflatten(1, (3, 24))
    found = rms_norm(heads, weight, 1e-5)
    assert_close(found, F.rms_norm(heads.double(), (24,), weight.double(), 1e-5))
    assert_close(rms_norm(heads.transpose(1, 2).contiguous().transpose(1, 2), weight, 1e-5), found.double())


@SIZES
def test_gate(dtype: torch.dtype, size: int) -> None:
    x = numbers(40, 2 * size, dtype=dtype) * 4
    x[0, 0], x[1, 0] = -300, 300  # beyond what e^x holds
    first, second = x.double().chunk(2, dim=1)
    assert_close(gate(x, F.silu), F.silu(first) * second)
    assert_close(gate(x, F.relu), F.relu(first) * second)


@pytest.mark.parametrize("size", [2, 64, 80])
def test_rotate(dtype: torch.dtype, size: int) -> None:
    heads, angles = numbers(30, 3, size, dtype=dtype), numbers(30, size // 2, dtype=torch.float32, seed=1)
    angles = torch.cat((angles, angles), dim=1)[:, None]
    cos, sin = angles.cos().to(dtype), angles.sin().to(dtype)
    first, second = heads.double().chunk(2, dim=2)
    expected = heads.double() * cos.double() + torch.cat((-second, first), dim=2) * sin.double()
    assert_close(rotate(heads, (cos, sin)), expected)


VALUES = st.sampled_from([0.0, -1.0, 1.0, 2.5, -np.inf, np.inf, np.nan])


@given(
    size=st.sampled_from([1, 5, 16, 1023, 1024, 1025, 5000]),
    changes=st.lists(st.tuples(st.integers(0, 4999), VALUES), max_size=6),
    base=st.sampled_from([-np.inf, 0.0, 2.0]),
)
def test_the_likeliest_id(size: int, changes: list[tuple[int, float]], base: float) -> None:
    scores = np.full(size, base, np.float32)
    for place, value in changes:
        scores[place % size] = value
    failed = np.isnan(scores).any() or not np.isfinite(scores.max())
    expected = FAILED_ROW if failed else int(scores.argmax())
    for dtype in TOLERANCE:
        assert sampler._likeliest(torch.from_numpy(scores)[None].to(dtype)).tolist() == [expected]


def test_nothing_to_do_is_done(dtype: torch.dtype) -> None:
    empty: list[Callable[[], Tensor]] = [
        lambda: rms_norm(numbers(0, 8, dtype=dtype), numbers(8, dtype=dtype), 1e-5),
        lambda: gate(numbers(0, 16, dtype=dtype), F.silu),
    ]
    assert [work().shape for work in empty] == [(0, 8), (0, 8)]
