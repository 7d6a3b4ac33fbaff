"""The fast path of a steady decode: every running row computes one token, and nothing comes or goes.

It does not know when that is so (the scheduler's business); it keeps, in batch order, what then changes from step to
step, so that a step costs a handful of vector operations.
"""

import numpy as np

from serbench_codecs.plan import NO_WRITES, Int32Array, Writes
from serbench_codecs.table import IndexArray, RequestTable


class BlocksDue:
    """The rows that need a block in the same steps, once every ``block_size`` steps.

    ``rows`` int32[n]; ``index``: the same as numpy indexes; ``starts`` int32[n]: where each one's next block goes.
    """

    def __init__(self, rows: Int32Array, num_blocks: Int32Array) -> None:
        self.rows = rows
        self.index: IndexArray = rows.astype(np.intp)
        self.starts: Int32Array = num_blocks[self.index]


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
        self._lengths = table.num_tokens[rows]
        self._steps_left = int((length_limits[rows] - self._lengths).min())
        size = table.limits.block_size
        self._turns: Int32Array = (table.num_blocks[rows] * size - self._lengths + 1) % size  # when each needs a block
        self._turn = 0
        self._due: list[BlocksDue | None] = [None] * size

    @property
    def blocks_due(self) -> BlocksDue:
        """The rows whose token of this step needs a new block."""
        due = self._due[self._turn]
        if due is None:  # looked up when it is first wanted: few batches stay the same for long
            due = BlocksDue(self.rows[self._turns == self._turn], self._table.num_blocks)
            self._due[self._turn] = due
        return due

    def grow(self, due: BlocksDue, blocks: Int32Array) -> Writes:
        """Give each row of ``due`` one of ``blocks``; entered into the table."""
        starts = due.starts
        if not len(starts):
            return NO_WRITES
        self._table.block_table[due.index, starts] = blocks
        due.starts = starts + self.counts[: len(starts)]
        self._table.num_blocks[due.index] = due.starts
        return Writes(due.rows, starts, self.counts[: len(starts)], blocks)

    def append(self, token_ids: Int32Array) -> Int32Array:
        """Append the sampled id of every row; where they went, int32[n]."""
        starts = self._lengths
        self._table.token_ids[self._index, starts] = token_ids
        self._lengths = starts + self.counts
        self._table.num_tokens[self._index] = self._lengths
        self._steps_left -= 1
        self._turn = (self._turn + 1) % len(self._due)
        return starts

    @property
    def reaches_length(self) -> bool:
        """Whether a row has reached its length limit."""
        return self._steps_left <= 0
