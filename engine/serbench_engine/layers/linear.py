"""Linear layers whose weights may be several of a checkpoint's, stacked. It does not know models or weight files."""

from collections.abc import Mapping
from typing import Final

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from serbench_engine.layers.module import Module

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

    def forward(self, x: Tensor) -> Tensor:
        return linear(x, self.weight, self.bias)


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
