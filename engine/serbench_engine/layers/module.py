"""The base of all layers and models: torch's Module, whose calls are known to give tensors. It computes nothing."""

from collections.abc import Callable
from typing import Any

from torch import Tensor, nn


class Module(nn.Module):
    """An nn.Module whose ``forward`` returns a tensor, and which costs little to call.

    Torch's own looks for hooks in every call, and for parts of a module where Python has not found them.
    """

    forward: Callable[..., Tensor]

    def __call__(self, *arguments: Any) -> Tensor:
        return self.forward(*arguments)

    def __setattr__(self, name: str, value: Any) -> None:
        super().__setattr__(name, value)
        if isinstance(value, nn.Module):
            self.__dict__[name] = value
