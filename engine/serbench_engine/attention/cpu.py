"""Attention over paged KV by torch's own operators, for CPUs. It does not know models.

Decoding rows of similar length are gathered into small padded batches; other rows take their turn one by one.
"""

from collections.abc import Iterator, Sequence
from typing import Final

import msgspec
import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from serbench_codecs.plan import Int32Array, Int64Array
from serbench_engine.attention.base import Attend, AttentionShape, CacheShape, LayerCache, allocate_cache
from serbench_engine.layers.rows import Angles, rotate
from serbench_engine.runner.inputs import StepInputs

GATHERED_BYTES: Final = 1 << 20
"""Small enough that what was gathered is still in the processor's cache when it is used."""

MASK_ELEMENTS: Final = 1 << 20
"""A few MB for the mask of one piece, however long the prompt."""


class DecodeGroup(msgspec.Struct, frozen=True, eq=False):
    """g rows with one query each, padded to m blocks.

    ``tokens`` int64[g]: their places in the step; ``pages`` int64[g · kv_heads · m]: what to gather, in units of one
    head's part of a block; ``mask`` [g, 1, 1, m · block_size]: 0, or −inf where a row may not look.
    """

    tokens: Tensor
    pages: Tensor
    mask: Tensor


class PromptRow(msgspec.Struct, frozen=True, eq=False):
    """One row with several queries: the step's tokens ``begin`` … ``end``, at positions from ``position`` on.

    ``pages`` int64[kv_heads · m] as in DecodeGroup; the first gathered key is at ``first_key``.
    """

    begin: int
    end: int
    position: int
    first_key: int
    pages: Tensor


class WindowWork(msgspec.Struct, frozen=True, eq=False):
    """How a step is cut up, for all layers with the same window."""

    window: int
    groups: list[DecodeGroup]
    prompts: list[PromptRow]


class CpuAttention:
    """The backend for ``--device cpu``: correct, bounded in memory, and the same for the same batch.

    ``gathered_bytes`` of keys are put together for one padded batch; ``mask_elements``, queries × keys, bound one piece
    of a prompt.
    """

    def __init__(
        self,
        shape: AttentionShape,
        cache: CacheShape,
        gathered_bytes: int = GATHERED_BYTES,
        mask_elements: int = MASK_ELEMENTS,
    ) -> None:
        self._shape = shape
        self._cache = cache
        self._gathered_bytes = gathered_bytes
        self._mask_elements = mask_elements
        self.layers = allocate_cache(shape, cache)

    def begin(self, inputs: StepInputs, block_table: Int32Array) -> Attend:
        """See AttentionBackend.begin."""
        tables = block_table[inputs.rows]
        cut = _Cut(self._shape, self._cache, self._gathered_bytes, inputs, tables)
        work = {window: cut.work(window) for window in set(self._shape.windows)}
        blocks, offsets = np.divmod(inputs.slots, self._cache.block_size)
        written = torch.from_numpy(blocks), torch.from_numpy(offsets)
        begun = torch.from_numpy(blocks[offsets == 0])

        def attend(layer: int, stacked: Tensor, angles: Angles | None) -> Tensor:
            cache = self.layers[layer]
            query, key, value = self._apart(stacked)
            if angles:
                query, key = rotate(query, angles), rotate(key, angles)
            for pages, new in ((cache.keys, key), (cache.values, value)):
                # What a block's former owner left could be NaN, which no mask keeps out of a sum.
                pages.index_fill_(0, begun, 0)
                pages[written[0], :, written[1]] = new
            return self._look(cache, work[self._shape.windows[layer]], query)

        return attend

    def _apart(self, stacked: Tensor) -> Sequence[Tensor]:
        """[t, heads, head_dim] each."""
        heads = self._shape.num_heads, self._shape.num_kv_heads, self._shape.num_kv_heads
        parts: Sequence[Tensor] = stacked.unflatten(1, (-1, self._shape.head_dim)).split(heads, dim=1)
        return parts

    def _look(self, cache: LayerCache, work: WindowWork, query: Tensor) -> Tensor:
        out = torch.empty_like(query, memory_format=torch.contiguous_format)  # [tokens, heads, head_dim]
        for group in work.groups:
            out.index_copy_(0, group.tokens, self._decode(cache, group, query.index_select(0, group.tokens)))
        for row in work.prompts:
            self._prompt(cache, row, work.window, query[row.begin : row.end], out[row.begin : row.end])
        return out.flatten(1)

    def _decode(self, cache: LayerCache, group: DecodeGroup, query: Tensor) -> Tensor:
        """[g, heads, head_dim] → the same: the heads that share a key head are queries side by side."""
        shape = self._shape
        g = len(group.tokens)
        keys, values = self._gather(cache, group.pages, g * shape.num_kv_heads)  # [g · kv_heads, keys, head_dim]
        query = (query * shape.scale).reshape(g * shape.num_kv_heads, shape.group, shape.head_dim)
        scores = torch.bmm(query, keys.transpose(1, 2)).view(g, shape.num_kv_heads, shape.group, -1)
        weights = torch.softmax(scores + group.mask, dim=-1, dtype=torch.float32).to(query.dtype)
        return torch.bmm(weights.flatten(0, 1), values).view(g, shape.num_heads, shape.head_dim)

    def _prompt(self, cache: LayerCache, row: PromptRow, window: int, query: Tensor, out: Tensor) -> None:
        """Fill ``out`` [n, heads, head_dim] piece by piece; each piece takes only the keys that it may see."""
        shape = self._shape
        keys, values = self._gather(cache, row.pages, shape.num_kv_heads)  # [kv_heads, keys, head_dim]
        # [n, heads, head_dim] → [kv_heads, group, n, head_dim]
        query = query.unflatten(1, (shape.num_kv_heads, shape.group)).permute(1, 2, 0, 3)
        for first, last in _pieces(len(out), max(1, self._mask_elements // keys.shape[1])):
            end = row.position + last - row.first_key  # keys from row.first_key on
            begin = max(0, row.position + first + 1 - window - row.first_key) if window else 0
            queries = torch.arange(row.position + first, row.position + last)[:, None] - row.first_key
            seen = _seen(queries, torch.arange(begin, end), window)
            piece = F.scaled_dot_product_attention(
                query[:, :, first:last],
                keys[:, None, begin:end].expand(-1, shape.group, -1, -1),
                values[:, None, begin:end].expand(-1, shape.group, -1, -1),
                attn_mask=seen,
                scale=shape.scale,
            )
            out[first:last] = piece.permute(2, 0, 1, 3).flatten(1, 2)

    def _gather(self, cache: LayerCache, pages: Tensor, count: int) -> tuple[Tensor, Tensor]:
        """Copy the pages together: [count, keys, head_dim] each."""
        size = (-1, self._cache.block_size * self._shape.head_dim)
        keys = cache.keys.view(size).index_select(0, pages)
        values = cache.values.view(size).index_select(0, pages)
        return keys.view(count, -1, self._shape.head_dim), values.view(count, -1, self._shape.head_dim)


class _Cut:
    """Cuts one step into groups and prompt rows."""

    def __init__(
        self, shape: AttentionShape, cache: CacheShape, gathered_bytes: int, inputs: StepInputs, tables: Int32Array
    ) -> None:
        self._shape, self._cache, self._gathered_bytes = shape, cache, gathered_bytes
        self._inputs, self._tables = inputs, tables

    def work(self, window: int) -> WindowWork:
        inputs, size = self._inputs, self._cache.block_size
        first = np.maximum(inputs.starts + 1 - window, 0) // size if window else np.zeros_like(inputs.starts)
        count = -(-inputs.seq_lens // size) - first  # blocks that each row looks at
        single = inputs.counts == 1
        groups = [
            self._group(rows, window, first, int(count[rows].max()))
            for rows in self._similar(np.flatnonzero(single), count)
        ]
        prompts = [self._prompt(i, int(first[i]), int(count[i])) for i in np.flatnonzero(~single).tolist()]
        return WindowWork(window, groups, prompts)

    def _similar(self, rows: Int64Array, count: Int32Array) -> Iterator[Int64Array]:
        """Longest first, so that a batch holds rows of similar length; each within gathered_bytes, or one row."""
        block_bytes = (
            self._shape.num_kv_heads * self._cache.block_size * self._shape.head_dim * self._cache.dtype.itemsize
        )
        rows = rows[np.argsort(-count[rows], kind="stable")]
        while len(rows):
            fit = max(1, self._gathered_bytes // (int(count[rows[0]]) * block_bytes))
            yield rows[:fit]
            rows = rows[fit:]

    def _group(self, rows: Int64Array, window: int, first: Int32Array, width: int) -> DecodeGroup:
        inputs, size = self._inputs, self._cache.block_size
        last = (inputs.seq_lens[rows] - 1) // size
        # Padding repeats a row's own last block: nothing of another request is even looked at.
        columns = np.minimum(first[rows, None] + np.arange(width), last[:, None])
        positions = (first[rows] * size)[:, None] + np.arange(width * size)
        lengths = inputs.seq_lens[rows, None]
        hidden = positions >= lengths
        if window:
            hidden |= positions < lengths - window
        mask = torch.zeros(hidden.shape, dtype=self._cache.dtype).masked_fill_(torch.from_numpy(hidden), -torch.inf)
        return DecodeGroup(
            tokens=torch.from_numpy(inputs.query_starts[rows].astype(np.int64)),
            pages=self._pages(self._tables[rows[:, None], columns]),
            mask=mask[:, None, None],
        )

    def _prompt(self, i: int, first: int, count: int) -> PromptRow:
        inputs = self._inputs
        return PromptRow(
            begin=int(inputs.query_starts[i]),
            end=int(inputs.query_starts[i + 1]),
            position=int(inputs.starts[i]),
            first_key=first * self._cache.block_size,
            pages=self._pages(self._tables[i : i + 1, first : first + count]),
        )

    def _pages(self, blocks: Int32Array) -> Tensor:
        """[g, m] blocks → int64[g · kv_heads · m] pages, so that one copy puts each head's keys side by side."""
        heads = np.arange(self._shape.num_kv_heads, dtype=np.int64)
        pages = blocks[:, None, :].astype(np.int64) * self._shape.num_kv_heads + heads[:, None]
        return torch.from_numpy(pages.reshape(-1))


def _pieces(queries: int, step: int) -> Iterator[tuple[int, int]]:
    for first in range(0, queries, step):
        yield first, min(first + step, queries)


def _seen(queries: Tensor, keys: Tensor, window: int) -> Tensor:
    """bool[queries, keys]: each query sees the keys up to its own position, the last ``window`` of them."""
    seen = keys <= queries
    return seen & (keys > queries - window) if window else seen
