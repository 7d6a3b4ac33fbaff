"""The table of model classes, by family, and how one is built. It does not know where weights come from."""

from collections.abc import Callable
from typing import Final

import torch

from serbench_engine.models.base import CausalLM
from serbench_engine.models.config import ModelConfig
from serbench_engine.models.llama import Llama
from serbench_engine.models.opt import OPT

MODELS: Final[dict[str, Callable[[ModelConfig], CausalLM]]] = {
    "llama": Llama,
    "opt": OPT,
}


def build_model(config: ModelConfig, dtype: torch.dtype, device: str) -> CausalLM:
    """The model with uninitialised weights: loading.py fills them.

    Raises:
        ModelError: the configuration asks for an activation or a rope scaling that is not there.
    """
    before = torch.get_default_dtype()
    torch.set_default_dtype(dtype)
    try:
        with torch.device(device):
            return MODELS[config.family](config)
    finally:
        torch.set_default_dtype(before)
