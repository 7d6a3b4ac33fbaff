"""The fast path of a steady decode: every running row computes one token, and nothing comes or goes.

It does not know when that is so (the scheduler's business); it keeps, in batch order, what then changes from step to
step, so that a step costs a handful of vector operations.
"""

import numpy as np

from serbench_codecs.plan import NO_WRITES, Int32Array, Writes
from serbench_codecs.table import RequestTable


class SteadyDecode:
    """``rows`` int32[n] in batch order, ``counts`` int32[n] of ones, ``serials`` int64[n].

    Valid until a row enters, leaves, or is given more than one token; made from the table, and kept equal to it.
    """

    def __init__(self, table: RequestTable, rows: Int32Array, ones: Int32Array, length_limits: Int32Array) -> None:
        self.rows = rows
        self.counts = ones
        self.serials = table.serial[rows]
        self._index = rows.astype(np.intp)  # as numpy wants it: int32 would be cast each time
        self._table = table
        self._block_size = table.limits.block_size
        self._lengths = table.num_tokens[rows]
        self._room = table.num_blocks[rows] * self._block_size - self._lengths  # tokens that held blocks still take
        self._steps_left = int((length_limits[rows] - self._lengths).min())

    def short_of_blocks(self) -> Int32Array:
        """Rows, as places in the batch, whose token of this step needs a new block."""
        if int(self._room.min()) >= 0:
            return self.rows[:0]
        return np.flatnonzero(self._room < 0).astype(np.int32)

    def grow(self, short: Int32Array, blocks: Int32Array) -> Writes:
        """Give each short row one of ``blocks``; entered into the table."""
        if not len(short):
            return NO_WRITES
        rows = self.rows[short]
        writes = Writes(rows, self._table.num_blocks[rows], self.counts[: len(rows)], blocks)
        self._table.write_blocks(writes)
        self._room[short] += self._block_size
        return writes

    def append(self, token_ids: Int32Array) -> Int32Array:
        """Append the sampled id of every row; where they went, int32[n]."""
        starts = self._lengths
        self._table.token_ids[self._index, starts] = token_ids
        self._lengths = starts + 1
        self._table.num_tokens[self._index] = self._lengths
        self._room -= 1
        self._steps_left -= 1
        return starts

    @property
    def reaches_length(self) -> bool:
        """Whether a row has reached its length limit."""
        return self._steps_left <= 0
