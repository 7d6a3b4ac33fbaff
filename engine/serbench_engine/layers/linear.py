"""Linear layers whose weights may be several of a checkpoint's, stacked. It does not know models or weight files."""

from collections.abc import Mapping
from typing import Final

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from serbench_engine.layers.activation import activation
from serbench_engine.layers.module import Module
from serbench_engine.layers.packed import GATED, RELU, PackedWeight, Panels, pack
from serbench_engine.layers.rows import gate

MANY_ROWS: Final = 64
"""From here on, casting float16 weights costs a CPU less than multiplying in float16."""


def linear(x: Tensor, weight: Tensor, bias: Tensor | None = None) -> Tensor:
    """``x Wᵀ + b``, where ``weight`` may be any parameter [outputs, inputs]."""
    if x.dtype is torch.float16 and x.device.type == "cpu" and len(x) >= MANY_ROWS:
        # Most CPUs have no float16 arithmetic: torch's product is several times slower than one in float32.
        return F.linear(x.float(), weight.float(), None if bias is None else bias.float()).half()
    return F.linear(x, weight, bias)


class Linear(Module):
    """``x Wᵀ + b``: [tokens, inputs] → [tokens, outputs]. ``weight`` [outputs, inputs], ``bias`` [outputs] or None."""

    def __init__(self, inputs: int, outputs: int, bias: bool) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.empty(outputs, inputs), requires_grad=False)
        self.bias = nn.Parameter(torch.empty(outputs), requires_grad=False) if bias else None
        self.packed: PackedWeight | None = None
        self.gates = False

    def pack(self) -> None:
        """Lay the weight out for speed, where that helps. It is no parameter any more then: nothing can be loaded."""
        self.packed = pack(self.weight, self.bias, self.gates)
        if self.packed is not None:
            self.register_parameter("weight", None)

    def forward(self, x: Tensor) -> Tensor:
        return linear(x, self.weight, self.bias) if self.packed is None else self.packed.product(x)

    def plus(self, x: Tensor, other: Tensor) -> Tensor:
        """``x Wᵀ + b + other``: a residual costs nothing more where the weight is packed."""
        if self.packed is None:
            return linear(x, self.weight, self.bias) + other
        return self.packed.plus(x, other)


class ActivatedLinear(Linear):
    """``activation(x Wᵀ + b)``; ``name`` is the activation's in configurations.

    Raises:
        ModelError: there is no such activation; so for GatedLinear.
    """

    def __init__(self, inputs: int, outputs: int, bias: bool, name: str) -> None:
        super().__init__(inputs, outputs, bias)
        self.activation = activation(name)

    def forward(self, x: Tensor) -> Tensor:
        if self.packed is not None and self.activation is F.relu:
            return self.packed.product(x, RELU)
        return self.activation(super().forward(x))


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


class GatedLinear(StackedLinear):
    """``activation(x Gᵀ + g) · (x Uᵀ + u)``: the two ``names`` in a checkpoint are G's and U's."""

    def __init__(self, inputs: int, outputs: int, names: tuple[str, str], bias: bool, activation_name: str) -> None:
        super().__init__(inputs, dict.fromkeys(names, outputs), bias)
        self.activation = activation(activation_name)
        self.gates = self.activation is F.silu

    def forward(self, x: Tensor) -> Tensor:
        if self.gates and isinstance(self.packed, Panels):
            return self.packed.product(x, GATED)
        return gate(super().forward(x), self.activation)
