"""The table of attention backends, by device. It does not know how they work."""

from collections.abc import Callable
from typing import Final

from serbench_engine.attention.base import AttentionBackend, AttentionShape, CacheShape
from serbench_engine.attention.cpu import CpuAttention
from serbench_engine.errors import ConfigError

BACKENDS: Final[dict[str, Callable[[AttentionShape, CacheShape], AttentionBackend]]] = {
    "cpu": CpuAttention,
}


def make_attention(shape: AttentionShape, cache: CacheShape) -> AttentionBackend:
    """The backend for the cache's device, with its cache allocated.

    Raises:
        ConfigError: there is none for that device.
    """
    kind = cache.device.partition(":")[0]
    if kind not in BACKENDS:
        raise ConfigError(f"no attention backend for device {cache.device!r}: there is one for {', '.join(BACKENDS)}")
    return BACKENDS[kind](shape, cache)
