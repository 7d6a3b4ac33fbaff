"""What an attention backend is, and the paged KV cache that all backends share. It does not know models.

A cached token is addressed by its slot: block · block_size + offset. A request's block table lists its blocks in order.
"""

import math
from collections.abc import Callable
from typing import Protocol, TypeAlias

import msgspec
import torch
from torch import Tensor

from serbench_codecs.plan import Int32Array
from serbench_engine.layers.rows import Angles
from serbench_engine.native.pages import zeros_in_large_pages
from serbench_engine.runner.inputs import StepInputs

Attend: TypeAlias = Callable[[int, Tensor, Angles | None], Tensor]
"""``attend(layer, stacked, angles)`` within one step of t tokens.

``stacked`` [t, (num_heads + 2 · num_kv_heads) · head_dim]: the queries, keys and values of the step's tokens, in batch
order. It turns queries and keys by ``angles``, if there are some, writes keys and values into the tokens' slots of that
layer, then lets each token see its own request's tokens up to itself (at most the layer's window of them, itself
included). Returns [t, num_heads · head_dim].
"""


class AttentionShape(msgspec.Struct, frozen=True):
    """What attention looks like in a model. ``windows`` has one entry a layer, 0 where there is none."""

    num_heads: int
    num_kv_heads: int
    head_dim: int
    windows: tuple[int, ...]

    @property
    def scale(self) -> float:
        """By what scores are multiplied."""
        return float(self.head_dim**-0.5)

    @property
    def group(self) -> int:
        """Query heads that share a key head; head h uses key head h // group."""
        return self.num_heads // self.num_kv_heads


class CacheShape(msgspec.Struct, frozen=True):
    """The KV cache of a worker: ``num_blocks`` blocks of ``block_size`` slots, in every layer."""

    num_blocks: int
    block_size: int
    dtype: torch.dtype
    device: str


class LayerCache(msgspec.Struct, frozen=True, eq=False):
    """Keys and values of one layer, [num_blocks, num_kv_heads, block_size, head_dim] each."""

    keys: Tensor
    values: Tensor


def allocate_cache(shape: AttentionShape, cache: CacheShape) -> list[LayerCache]:
    """One zeroed cache a layer; on a CPU it takes no memory before it is written."""
    size = (cache.num_blocks, shape.num_kv_heads, cache.block_size, shape.head_dim)

    def zeros() -> Tensor:
        if cache.device == "cpu":
            return zeros_in_large_pages(math.prod(size), cache.dtype).view(size)
        return torch.zeros(size, dtype=cache.dtype, device=cache.device)

    return [LayerCache(zeros(), zeros()) for _ in shape.windows]


class AttentionBackend(Protocol):
    """Attention on one kind of device, with the KV cache it works on."""

    def begin(self, inputs: StepInputs, block_table: Int32Array) -> Attend:
        """Prepare a step: what all layers share is worked out once.

        ``block_table`` int32[rows, max_blocks], indexed by ``inputs.rows``; it may change once this returns. The
        function returned is called once a layer, in order, and is of no use after the next ``begin``.
        """
        ...
