"""The table of attention backends, by device. It does not know how they work."""

from collections.abc import Callable
from contextlib import suppress
from typing import Final

from serbench_engine.attention.base import AttentionBackend, AttentionShape, CacheShape
from serbench_engine.attention.cpu import CpuAttention
from serbench_engine.attention.native import NativeAttention
from serbench_engine.errors import ConfigError
from serbench_engine.native.compiler import NativeError

BACKENDS: Final[dict[str, Callable[[AttentionShape, CacheShape], AttentionBackend]]] = {
    "cpu-native": NativeAttention,
    "cpu-torch": CpuAttention,
}

DEVICES: Final[dict[str, tuple[str, ...]]] = {
    "cpu": ("cpu-native", "cpu-torch"),
}
"""Which backends a device has, the fastest first; the last one always works."""


def make_attention(shape: AttentionShape, cache: CacheShape) -> AttentionBackend:
    """The fastest backend that works here for the cache's device, with its cache allocated.

    Raises:
        ConfigError: there is none for that device.
    """
    kind = cache.device.partition(":")[0]
    if kind not in DEVICES:
        raise ConfigError(f"no attention backend for device {cache.device!r}: there is one for {', '.join(DEVICES)}")
    *faster, last = DEVICES[kind]
    for name in faster:
        with suppress(NativeError):  # `serbench doctor` tells why
            return BACKENDS[name](shape, cache)
    return BACKENDS[last](shape, cache)
