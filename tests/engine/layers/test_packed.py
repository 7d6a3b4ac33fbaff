"""Packed weights, of each kind: the same products as plain ones; and panels' promise that a row's result is its own."""

from collections.abc import Callable
from functools import cache

import pytest
import torch
import torch.nn.functional as F
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from serbench_engine.layers.embedding import Embedding
from serbench_engine.layers.linear import ActivatedLinear, GatedLinear, Linear
from serbench_engine.layers.packed import GATED, RELU, OneDnnWeight, PackedWeight, Panels, pack, usual_rows
from serbench_engine.native.compiler import NativeError
from serbench_engine.native.library import LayerKernels, layer_kernels

Make = Callable[[Tensor, Tensor | None], PackedWeight]
DTYPES = {"float32": torch.float32, "bfloat16": torch.bfloat16}
TOLERANCE = {torch.float32: 1e-5, torch.bfloat16: 1e-2}


def kernels(dtype: torch.dtype) -> LayerKernels:
    found = layer_kernels(str(dtype).removeprefix("torch."))
    if isinstance(found, str):
        pytest.skip(found)
    if not found.product_pays:
        pytest.skip("panels don't suit this CPU")
    return found


def panels(weight: Tensor, bias: Tensor | None) -> PackedWeight:
    return Panels(kernels(weight.dtype), weight, bias, gated=False)


@cache
def kernels_for(dtype: str, target: str) -> LayerKernels:
    try:
        return LayerKernels(dtype, target)
    except NativeError as error:  # an old compiler, which does not know the target
        pytest.skip(str(error))


def other_panels(target: str) -> Make:
    """What CPUs of other kinds make of them: with an instruction for pairs of bfloat16, where there is one, or none."""

    def make(weight: Tensor, bias: Tensor | None) -> PackedWeight:
        kernels(weight.dtype)
        return Panels(kernels_for(str(weight.dtype).removeprefix("torch."), target), weight, bias, gated=False)

    return make


def onednn(weight: Tensor, bias: Tensor | None) -> PackedWeight:
    if not torch.backends.mkldnn.is_available() or not torch.ops.mkldnn._is_mkldnn_bf16_supported():
        pytest.skip("no oneDNN for this CPU")
    return OneDnnWeight(weight, bias)


@pytest.fixture(
    params=[panels, onednn, other_panels("-march=native"), other_panels("-march=x86-64-v4")],
    ids=["panels", "onednn", "panels-native", "panels-v4"],
    scope="module",
)
def make(request: pytest.FixtureRequest) -> Make:
    made: Make = request.param
    return made


@pytest.fixture(params=list(DTYPES), scope="module")
def dtype(request: pytest.FixtureRequest) -> torch.dtype:
    return DTYPES[request.param]


def numbers(*shape: int, dtype: torch.dtype, seed: int = 0) -> Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed)).to(dtype)


def assert_close(found: Tensor, expected: Tensor) -> None:
    """``expected`` in double precision; sums of hundreds of products of size 1 are of size 20."""
    scale = float(expected.abs().max()) + 1e-3
    tolerance = TOLERANCE[found.dtype]
    torch.testing.assert_close(found.double() / scale, expected / scale, atol=tolerance, rtol=tolerance)


@settings(max_examples=25)
@given(
    shape=st.tuples(st.integers(0, 150), st.integers(1, 120), st.integers(1, 80).map(lambda n: 2 * n)),
    biased=st.booleans(),
    seed=st.integers(0, 1000),
)
def test_products(make: Make, dtype: torch.dtype, shape: tuple[int, int, int], biased: bool, seed: int) -> None:
    rows, outputs, inputs = shape
    weight, x = numbers(outputs, inputs, dtype=dtype, seed=seed), numbers(rows, inputs, dtype=dtype, seed=seed + 1)
    bias = numbers(outputs, dtype=dtype, seed=seed + 2) if biased else None
    other = numbers(rows, outputs, dtype=dtype, seed=seed + 3)
    packed = make(weight, bias)
    expected = x.double() @ weight.double().T + (bias.double() if bias is not None else 0)
    if rows:
        assert_close(packed.product(x), expected)
        assert_close(packed.product(x, RELU), expected.relu())
        assert_close(packed.plus(x, other), expected + other.double())
    assert packed.product(x).shape == packed.plus(x, other).shape == (rows, outputs)


def test_a_row_s_result_is_its_own(dtype: torch.dtype) -> None:
    packed = panels(numbers(100, 64, dtype=dtype), None)
    x = numbers(300, 64, dtype=dtype, seed=1)
    together = packed.product(x)
    for begin, end in ((0, 1), (3, 10), (7, 140), (299, 300)):
        assert torch.equal(packed.product(x[begin:end]), together[begin:end])


def test_the_number_of_threads_changes_no_bit(dtype: torch.dtype) -> None:
    packed, x = panels(numbers(500, 640, dtype=dtype), None), numbers(300, 640, dtype=dtype, seed=1)
    before, outputs = torch.get_num_threads(), []
    try:
        for threads in (1, 2, 3):
            torch.set_num_threads(threads)
            outputs.append(packed.product(x))
    finally:
        torch.set_num_threads(before)
    assert torch.equal(outputs[0], outputs[1])
    assert torch.equal(outputs[0], outputs[2])


def test_what_is_no_number_stays_in_its_row(make: Make, dtype: torch.dtype) -> None:
    packed, x = make(numbers(50, 32, dtype=dtype), None), numbers(9, 32, dtype=dtype, seed=1)
    x[4, 7] = torch.nan
    found = packed.product(x).isnan()
    assert found[4].all()
    assert not found[[0, 1, 2, 3, 5, 6, 7, 8]].any()


def test_rows_may_be_apart(make: Make, dtype: torch.dtype) -> None:
    packed, wide = make(numbers(50, 32, dtype=dtype), None), numbers(9, 100, dtype=dtype, seed=1)
    other = numbers(9, 80, dtype=dtype, seed=2)
    for begin in (0, 2, 3):
        x, plus = wide[:, begin : begin + 32], other[:, begin : begin + 50]
        assert torch.equal(packed.plus(x, plus), packed.plus(x.contiguous(), plus.contiguous()))


@pytest.mark.parametrize("outputs", [1, 48, 70])
def test_gated_panels(dtype: torch.dtype, outputs: int) -> None:
    weight, bias = numbers(2 * outputs, 64, dtype=dtype), numbers(2 * outputs, dtype=dtype, seed=1)
    x = numbers(20, 64, dtype=dtype, seed=2)
    first, second = (x.double() @ weight.double().T + bias.double()).chunk(2, dim=1)
    assert_close(Panels(kernels(dtype), weight, bias, gated=True).product(x, GATED), F.silu(first) * second)


def test_panels_give_back_an_embedding_s_rows(dtype: torch.dtype) -> None:
    kernels(dtype)
    embedding = Embedding(1000, 70, tied=True).to(dtype)
    embedding.weight.copy_(numbers(1000, 70, dtype=dtype))
    ids, hidden = torch.tensor([999, 0, 47, 48, 0], dtype=torch.int32), numbers(3, 70, dtype=dtype, seed=1)
    plain, scores = embedding(ids), embedding.scores(hidden)
    embedding.pack()
    assert embedding.weight is None
    assert torch.equal(embedding(ids), plain)
    assert_close(embedding.scores(hidden), scores.double())


@pytest.mark.parametrize("name", ["relu", "gelu", "silu"])
def test_packed_layers_compute_what_plain_ones_do(dtype: torch.dtype, name: str) -> None:
    activated = ActivatedLinear(64, 90, True, name)
    gated = GatedLinear(64, 90, ("gate_proj", "up_proj"), True, name)
    x = numbers(33, 64, dtype=dtype)
    for layer in (activated, gated):
        layer.to(dtype)
        for seed, parameter in enumerate(layer.parameters()):
            parameter.copy_(numbers(*parameter.shape, dtype=dtype, seed=seed))
        plain = layer(x)
        layer.pack()
        assert layer.packed is None or layer.weight is None
        assert_close(layer(x), plain.double())


def test_float16_stays_plain() -> None:
    layer = Linear(64, 90, bias=False).to(torch.float16)
    layer.pack()
    assert layer.packed is None
    assert pack(layer.weight, None) is None


def test_onednn_meets_few_numbers_of_rows() -> None:
    usual = [usual_rows(count) for count in range(2049)]
    assert all(count <= rows <= max(2 * count - 1, 0) for count, rows in enumerate(usual))
    assert len(set(usual)) <= 27
