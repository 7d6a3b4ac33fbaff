"""Token and position embeddings, and the head that shares their weights. It does not know which model asks."""

from typing import Final

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from serbench_engine.layers.linear import linear
from serbench_engine.layers.module import Module
from serbench_engine.layers.packed import PackedWeight, Panels, pack, suits_panels

COPY_BYTES: Final = 160 << 20
"""A second copy of the weight, for the head, may take so much; a larger vocabulary has none, and a slower head."""


class Embedding(Module):
    """A vector for each id: int[tokens] → [tokens, size]. ``weight`` [count, size].

    ``tied``: it also is the model's head.
    """

    def __init__(self, count: int, size: int, tied: bool = False) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.empty(count, size), requires_grad=False)
        self.tied = tied
        self.packed: PackedWeight | None = None

    def pack(self) -> None:
        """Lay the weight out for ``scores``, where that helps: in its stead, or beside it if the copy is small."""
        if self.tied and (suits_panels(self.weight) or self.weight.nbytes <= COPY_BYTES):
            self.packed = pack(self.weight, None)
        if isinstance(self.packed, Panels):
            self.register_parameter("weight", None)

    def forward(self, ids: Tensor) -> Tensor:
        if isinstance(self.packed, Panels):
            return self.packed.embed(ids)
        return F.embedding(ids, self.weight)

    def scores(self, hidden: Tensor) -> Tensor:
        """How well each id's vector fits each hidden state: [s, size] → [s, count]."""
        return linear(hidden, self.weight) if self.packed is None else self.packed.product(hidden)
