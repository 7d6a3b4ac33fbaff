"""The base of all layers and models: torch's Module, whose calls are known to give tensors. It computes nothing."""

from collections.abc import Callable
from typing import Any

from torch import Tensor, nn


class Module(nn.Module):
    """An nn.Module whose ``forward`` returns a tensor. Calls are no more than that: torch's look for hooks first."""

    forward: Callable[..., Tensor]

    def __call__(self, *arguments: Any) -> Tensor:
        return self.forward(*arguments)
