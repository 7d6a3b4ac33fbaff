"""The activation functions that configurations name. It does not know which model asks."""

from collections.abc import Callable
from functools import partial
from typing import Final, TypeAlias

import torch.nn.functional as F
from torch import Tensor

from serbench_engine.errors import ModelError

Activation: TypeAlias = Callable[[Tensor], Tensor]

ACTIVATIONS: Final[dict[str, Activation]] = {
    "relu": F.relu,
    "silu": F.silu,
    "swish": F.silu,
    "gelu": F.gelu,
    "gelu_new": partial(F.gelu, approximate="tanh"),
    "gelu_pytorch_tanh": partial(F.gelu, approximate="tanh"),
}
"""By the names that the transformers library uses in ``config.json``."""


def activation(name: str) -> Activation:
    """The function of that name.

    Raises:
        ModelError: there is none; the message lists those there are.
    """
    if name not in ACTIVATIONS:
        raise ModelError(f"activation {name!r} is not supported: {', '.join(ACTIVATIONS)} are")
    return ACTIVATIONS[name]
