"""Linear layers whose weights may be several of a checkpoint's, stacked. It does not know models or weight files.

On a CPU a weight can be packed once it is loaded: laid out as oneDNN multiplies it, which otherwise does that anew in
every product. bfloat16, 64 rows: 1.3 times as fast, one row twice; what follows, an activation or a residual, costs
nothing more then.
"""

from collections.abc import Mapping
from typing import Any, Final

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from serbench_engine.layers.activation import activation
from serbench_engine.layers.module import Module

MANY_ROWS: Final = 64
"""From here on, casting float16 weights costs a CPU less than multiplying in float16."""

PACKED_FOR_ROWS: Final = 64
"""The batch that packed weights are laid out for; others are hardly slower than in a layout of their own."""

FUSED: Final[dict[str, tuple[str, str | None]]] = {
    "": ("none", None),
    "relu": ("relu", None),
    "silu": ("swish", None),
    "swish": ("swish", None),
    "gelu": ("gelu", "none"),
    "gelu_new": ("gelu", "tanh"),
    "gelu_pytorch_tanh": ("gelu", "tanh"),
}
"""What oneDNN calls the activations that it computes with a product, and how."""


def linear(x: Tensor, weight: Tensor, bias: Tensor | None = None) -> Tensor:
    """``x Wᵀ + b``, where ``weight`` may be any parameter [outputs, inputs]."""
    if x.dtype is torch.float16 and x.device.type == "cpu" and len(x) >= MANY_ROWS:
        # Most CPUs have no float16 arithmetic: torch's product is several times slower than one in float32.
        return F.linear(x.float(), weight.float(), None if bias is None else bias.float()).half()
    return F.linear(x, weight, bias)


class PackedWeight:
    """A weight [outputs, inputs] as oneDNN wants it; ``then``: see Linear."""

    def __init__(self, weight: Tensor, then: str = "") -> None:
        self._weight = torch.ops.mkldnn._reorder_linear_weight(weight.detach(), PACKED_FOR_ROWS)
        self._fused = FUSED[then]
        self._product: Any = torch.ops.mkldnn._linear_pointwise.default
        self._sum: Any = torch.ops.mkldnn._linear_pointwise.binary

    @staticmethod
    def suits(weight: Tensor) -> bool:
        """Whether oneDNN has kernels for it here."""
        if weight.device.type != "cpu" or not torch.backends.mkldnn.is_available():
            return False
        if weight.dtype is torch.bfloat16:
            return bool(torch.ops.mkldnn._is_mkldnn_bf16_supported())
        return weight.dtype is torch.float32

    def product(self, x: Tensor, bias: Tensor | None) -> Tensor:
        """``then(x Wᵀ + b)``."""
        kind, how = self._fused
        y: Tensor = self._product(x, self._weight, bias, kind, [], how)
        return y

    def plus(self, x: Tensor, bias: Tensor | None, other: Tensor) -> Tensor:
        """``x Wᵀ + b + other``."""
        y: Tensor = self._sum(x, other, self._weight, bias, "add")
        return y


class Linear(Module):
    """``then(x Wᵀ + b)``: [tokens, inputs] → [tokens, outputs].

    ``weight`` [outputs, inputs], ``bias`` [outputs] or None; ``then``: an activation by its name, or empty.
    """

    def __init__(self, inputs: int, outputs: int, bias: bool, then: str = "") -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.empty(outputs, inputs), requires_grad=False)
        self.bias = nn.Parameter(torch.empty(outputs), requires_grad=False) if bias else None
        self.then = then
        self.activation = activation(then) if then else None
        self.packed: PackedWeight | None = None

    def pack(self) -> None:
        """Pack the weight where that helps; it is no parameter any more then: nothing can be loaded into it."""
        if self.packed is None and PackedWeight.suits(self.weight) and self.then in FUSED:
            self.packed = PackedWeight(self.weight, self.then)
            self.register_parameter("weight", None)

    def forward(self, x: Tensor) -> Tensor:
        if self.packed is not None:
            return self.packed.product(x, self.bias)
        y = linear(x, self.weight, self.bias)
        return self.activation(y) if self.activation else y

    def plus(self, x: Tensor, other: Tensor) -> Tensor:
        """``x Wᵀ + b + other``, for a layer without activation: a residual costs nothing more where it is packed."""
        if self.packed is not None:
            return self.packed.plus(x, self.bias, other)
        return linear(x, self.weight, self.bias) + other


class StackedLinear(Linear):
    """Several linear layers over the same input as one: their outputs lie side by side, in the order of ``parts``.

    ``parts``: the name of each in a checkpoint → its number of outputs.
    """

    def __init__(self, inputs: int, parts: Mapping[str, int], bias: bool) -> None:
        super().__init__(inputs, sum(parts.values()), bias)
        self.parts = dict(parts)

    def split(self, y: Tensor) -> tuple[Tensor, ...]:
        """Take the output [tokens, outputs] apart again, as views."""
        parts: tuple[Tensor, ...] = y.split(list(self.parts.values()), dim=-1)
        return parts
