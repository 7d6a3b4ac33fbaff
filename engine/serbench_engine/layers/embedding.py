"""Token and position embeddings, and the head that shares their weights. It does not know which model asks."""

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from serbench_engine.layers.module import Module


class Embedding(Module):
    """A vector for each id: int[tokens] → [tokens, size]. ``weight`` [count, size]."""

    def __init__(self, count: int, size: int) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.empty(count, size), requires_grad=False)

    def forward(self, ids: Tensor) -> Tensor:
        return F.embedding(ids, self.weight)
