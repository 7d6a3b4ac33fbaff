"""Prefix caching: which blocks can be found by what they hold, from when on, and by whom.

It does not know plans or the queue; the pool keeps the index. Hashing is most of the work, and no result of a step
changes what is hashed: ``look_ahead`` does it while the workers run.
"""

from collections.abc import Iterable

import msgspec
import numpy as np

from serbench_codecs.plan import Int32Array
from serbench_codecs.table import RequestTable
from serbench_engine.blocks import BlockPool
from serbench_engine.tracked import TrackedRequest


class Filled(msgspec.Struct, frozen=True, eq=False):
    """The blocks of a request that a step fills, and the hashes of what they then hold."""

    row: int
    request: TrackedRequest
    blocks: list[int]
    hashes: list[bytes]


class PrefixCache:
    """``in_row``: the scheduler's own list of which request holds each row."""

    def __init__(self, table: RequestTable, pool: BlockPool, in_row: list[TrackedRequest | None]) -> None:
        self._table = table
        self._pool = pool
        self._in_row = in_row
        self._size = table.limits.block_size
        self._num_published = np.zeros(table.limits.max_num_seqs, dtype=np.int32)
        self._filled: list[Filled] | None = None  # by the step that runs, if that was looked up already
        self._watched: tuple[TrackedRequest, int] | None = None

    def find(self, request: TrackedRequest) -> list[int]:
        """The findable blocks that a request begins with. At least one token is left to compute, for its logits."""
        return self._pool.find(self._prompt_hashes(request))

    def watch(self, request: TrackedRequest) -> None:
        """From now on ``watched_changed`` tells whether what ``find`` says of this request may have changed."""
        watched = request, len(request.token_ids)
        if watched != self._watched:  # no token of a request changes
            self._watched = watched
            self._pool.watch(frozenset(self._prompt_hashes(request)))
        self._pool.watched_changed = False

    @property
    def watched_changed(self) -> bool:
        return self._pool.watched_changed

    def enter(self, row: int, num_found: int) -> None:
        """A request was admitted to ``row`` with so many found blocks."""
        self._num_published[row] = num_found

    def look_ahead(self, rows: Int32Array, next_in_queue: Iterable[TrackedRequest]) -> None:
        """Hash what the running step, already counted, fills in ``rows``, and what may be admitted next."""
        self._filled = self._fill(rows)
        for request in next_in_queue:
            self._prompt_hashes(request)

    def publish(self, rows: Int32Array) -> None:
        """The step that computed ``rows`` is done: the blocks that it filled become findable."""
        filled, self._filled = self._filled, None
        for one in self._fill(rows) if filled is None else filled:
            if self._in_row[one.row] is one.request:
                self._pool.publish(one.blocks, one.hashes)
                self._num_published[one.row] += len(one.blocks)

    def forget_all(self) -> None:
        """Nothing can be found any more (a recovery: nobody knows what the workers wrote)."""
        self._filled = None
        self._pool.forget_all()

    def _prompt_hashes(self, request: TrackedRequest) -> list[bytes]:
        ids = request.token_ids
        return request.block_hashes(ids, self._size, (len(ids) - 1) // self._size)

    def _fill(self, rows: Int32Array) -> list[Filled]:
        table, size = self._table, self._size
        full = table.num_computed_tokens[rows] // size
        published = self._num_published[rows]
        grown = np.flatnonzero(full > published)
        filled = []
        for row, begin, end in zip(rows[grown].tolist(), published[grown].tolist(), full[grown].tolist(), strict=True):
            request = self._in_row[row]
            if request is not None:
                hashes = request.block_hashes(table.token_ids[row], size, end)[begin:]
                filled.append(Filled(row, request, table.block_table[row, begin:end].tolist(), hashes))
        return filled
