"""The base of all layers and models: torch's Module, whose calls are known to give tensors. It computes nothing."""

from collections.abc import Callable

from torch import Tensor, nn


class Module(nn.Module):
    """An nn.Module whose ``forward`` returns a tensor; torch itself leaves the type of calls open."""

    __call__: Callable[..., Tensor]
