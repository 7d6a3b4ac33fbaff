"""How much memory a model needs and how much there is, by arithmetic alone. It imports no torch and allocates
nothing."""

from pathlib import Path
from typing import Final

import psutil

from serbench_engine.errors import ConfigError
from serbench_engine.models.config import ModelConfig
from serbench_engine.models.known import num_parameters

ITEM_BYTES: Final = {"float32": 4, "bfloat16": 2, "float16": 2}
"""Bytes of one number, by the names that ``--dtype`` takes."""

_CGROUP: Final = Path("/sys/fs/cgroup")


def weight_bytes(config: ModelConfig, dtype: str) -> int:
    """Bytes of all weights, tied ones counted once."""
    return num_parameters(config) * ITEM_BYTES[dtype]


def kv_block_bytes(config: ModelConfig, dtype: str, block_size: int) -> int:
    """Bytes that one block of KV cache takes: keys and values of ``block_size`` tokens in all layers."""
    return 2 * config.num_layers * config.num_kv_heads * config.head_dim * block_size * ITEM_BYTES[dtype]


def available_bytes() -> int:
    """Memory that can still be used here: what the system has left, or the control group where that is less."""
    available = int(psutil.virtual_memory().available)
    limit, used = _read_bytes(_CGROUP / "memory.max"), _read_bytes(_CGROUP / "memory.current")
    return available if limit is None or used is None else max(0, min(available, limit - used))


def check_fits(config: ModelConfig, dtype: str, block_size: int, num_blocks: int, available: int) -> None:
    """Refuse what can't be held in ``available`` bytes, before any of it is allocated.

    Raises:
        ConfigError: with what is needed and what there is, in GB.
    """
    weights = weight_bytes(config, dtype)
    cache = num_blocks * kv_block_bytes(config, dtype, block_size)
    if weights + cache > available:
        raise ConfigError(
            f"the model needs {weights / 1e9:.2f} GB for its weights in {dtype} and {cache / 1e9:.2f} GB for "
            f"{num_blocks} blocks of KV cache, {(weights + cache) / 1e9:.2f} GB in all; {available / 1e9:.2f} GB are "
            "available: take fewer blocks, a smaller dtype or a smaller model"
        )


def _read_bytes(path: Path) -> int | None:
    try:
        text = path.read_text().strip()
    except OSError:  # no such control group, or not one of ours to read
        return None
    return int(text) if text.isdigit() else None
