"""Normalisation over a token's features. It does not know which model asks."""

import torch
from torch import Tensor, nn

from serbench_engine.layers.module import Module
from serbench_engine.layers.rows import layer_norm, rms_norm


class LayerNorm(Module):
    """Mean 0 and variance 1 over the last dimension, then scaled and shifted (Ba et al. 2016)."""

    def __init__(self, size: int, eps: float = 1e-5) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.empty(size), requires_grad=False)
        self.bias = nn.Parameter(torch.empty(size), requires_grad=False)
        self.eps = eps

    def forward(self, x: Tensor) -> Tensor:
        return layer_norm(x, self.weight, self.bias, self.eps)


class RMSNorm(Module):
    """Root mean square 1 over the last dimension, then scaled (Zhang and Sennrich 2019)."""

    def __init__(self, size: int, eps: float) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.empty(size), requires_grad=False)
        self.eps = eps

    def forward(self, x: Tensor) -> Tensor:
        return rms_norm(x, self.weight, self.eps)
