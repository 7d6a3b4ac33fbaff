"""Linear layers whose weights may be several of a checkpoint's, stacked. It does not know models or weight files."""

from collections.abc import Mapping

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from serbench_engine.layers.module import Module


class Linear(Module):
    """``x Wᵀ + b``: [tokens, inputs] → [tokens, outputs]. ``weight`` [outputs, inputs], ``bias`` [outputs] or None."""

    def __init__(self, inputs: int, outputs: int, bias: bool) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.empty(outputs, inputs), requires_grad=False)
        self.bias = nn.Parameter(torch.empty(outputs), requires_grad=False) if bias else None

    def forward(self, x: Tensor) -> Tensor:
        return F.linear(x, self.weight, self.bias)


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
