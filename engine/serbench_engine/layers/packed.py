"""Weights laid out anew for fast products on a CPU, which plain ones are not. It does not know layers.

Two kinds: panels for our own kernel, the fastest on CPUs with AVX-512 but no matrix units, and oneDNN's layout. Plain
weights are laid out anew in every product: bfloat16, 64 rows, that is a quarter of the time, one row more than half.
"""

from ctypes import byref
from typing import Any, Final, Protocol

import torch
from torch import Tensor

from serbench_engine.layers.rows import kernels_for
from serbench_engine.native.library import LayerKernels, Product, Weight
from serbench_engine.native.pages import zeros_in_large_pages

ONEDNN_ROWS: Final = 64
"""The batch that oneDNN lays weights out for; others are hardly slower than in a layout of their own."""

FEW_ROWS: Final = 64
MANY_ROWS: Final = 256

NOTHING, RELU, GATED = 0, 1, 2


class PackedWeight(Protocol):
    """A weight W [outputs, inputs] and its bias b, ready to multiply."""

    def product(self, x: Tensor, then: int = NOTHING) -> Tensor:
        """``then(x Wᵀ + b)`` for x [tokens, inputs]."""
        ...

    def plus(self, x: Tensor, other: Tensor) -> Tensor:
        """``x Wᵀ + b + other``, with ``other`` [tokens, outputs]."""
        ...


def pack(weight: Tensor, bias: Tensor | None, gated: bool = False) -> PackedWeight | None:
    """The fastest kind here, None if there is none. ``weight`` itself is not needed any more.

    ``gated``: should it be Panels, they are for GATED products only.
    """
    kernels = kernels_for(weight)
    if kernels is not None and suits_panels(weight):
        return Panels(kernels, weight, bias, gated)
    if weight.device.type != "cpu" or weight.dtype not in (torch.float32, torch.bfloat16):
        return None
    if not torch.backends.mkldnn.is_available():
        return None
    if weight.dtype is torch.bfloat16 and not torch.ops.mkldnn._is_mkldnn_bf16_supported():
        return None
    return OneDnnWeight(weight, bias)


def suits_panels(weight: Tensor) -> bool:
    """Whether panels are the fastest kind for it here."""
    kernels = kernels_for(weight)
    return kernels is not None and kernels.product_pays and weight.shape[1] % 2 == 0


def usual_rows(rows: int) -> int:
    """At least ``rows``: oneDNN makes a program for every number of rows that it meets, so it should meet few.

    For each shape of weight that takes milliseconds and 0.6 MB, kept for the next time.
    """
    if rows <= FEW_ROWS:
        return 1 << (rows - 1).bit_length() if rows else 0
    step = FEW_ROWS if rows <= MANY_ROWS else 2 * FEW_ROWS
    return -(-rows // step) * step


class OneDnnWeight:
    """A PackedWeight by oneDNN. Its products are at their best with a number of rows that is a usual one."""

    def __init__(self, weight: Tensor, bias: Tensor | None) -> None:
        self._weight = torch.ops.mkldnn._reorder_linear_weight(weight.detach(), ONEDNN_ROWS)
        self._bias = bias
        self._product: Any = torch.ops.mkldnn._linear_pointwise.default
        self._sum: Any = torch.ops.mkldnn._linear_pointwise.binary

    def product(self, x: Tensor, then: int = NOTHING) -> Tensor:
        """See PackedWeight; NOTHING and RELU only."""
        y: Tensor = self._product(x, self._weight, self._bias, ("none", "relu")[then], [], None)
        return y

    def plus(self, x: Tensor, other: Tensor) -> Tensor:
        """See PackedWeight."""
        y: Tensor = self._sum(x, other, self._weight, self._bias, "add")
        return y


class Panels:
    """A PackedWeight for our own kernel, whose rows can still be read as an embedding's.

    A row's result depends on that row alone. ``gated``: two weights lie one below the other, to be GATED.
    """

    def __init__(self, kernels: LayerKernels, weight: Tensor, bias: Tensor | None, gated: bool) -> None:
        weights = weight.detach().chunk(2 if gated else 1)
        outputs, inputs = weights[0].shape
        words = kernels.panel_words(outputs, inputs)
        self._panels = zeros_in_large_pages(len(weights) * words, torch.float32)
        for panels, part in zip(self._panels.split(words), weights, strict=True):
            kernels.pack(part.data_ptr(), outputs, inputs, panels.data_ptr(), torch.get_num_threads())
        self._bias, self._outputs, self._inputs, self._dtype = bias, outputs, inputs, weight.dtype
        self._weight = Weight(self._panels.data_ptr(), _pointer(bias), inputs, outputs)
        self._kernels = kernels

    def product(self, x: Tensor, then: int = NOTHING, other: Tensor | None = None) -> Tensor:
        """See PackedWeight."""
        x, stride = _in_memory(x)
        rows = x.shape[0]
        out = x.new_empty((rows, self._outputs))
        pointer, other_stride = None, 0
        if other is not None:
            other, other_stride = _in_memory(other)
            pointer = other.data_ptr()
        product = Product(x.data_ptr(), pointer, out.data_ptr(), rows, stride, other_stride, then)
        if self._kernels.product(self._weight, product, torch.get_num_threads()):
            raise MemoryError(f"no memory for the product of {rows} rows")
        return out

    def plus(self, x: Tensor, other: Tensor) -> Tensor:
        """See PackedWeight."""
        return self.product(x, NOTHING, other)

    def embed(self, ids: Tensor) -> Tensor:
        """Rows ``ids`` int[tokens] of the weight: [tokens, inputs]."""
        out = torch.empty((len(ids), self._inputs), dtype=self._dtype)
        ids = ids.to(torch.int32).contiguous()
        self._kernels.embed(byref(self._weight), ids.data_ptr(), len(ids), out.data_ptr(), torch.get_num_threads())
        return out


def _in_memory(x: Tensor) -> tuple[Tensor, int]:
    """[rows, columns] whose columns lie side by side, and the distance of two rows, which is even."""
    stride, step = x.stride()
    if step == 1 and stride % 2 == 0:
        return x, stride
    x = x.contiguous()
    return x, x.shape[1]


def _pointer(x: Tensor | None) -> int | None:
    return None if x is None else x.data_ptr()
