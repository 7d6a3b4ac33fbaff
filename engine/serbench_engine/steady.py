"""The fast path of a steady decode: every running row computes one token, and nothing comes or goes.

It does not know when that is so (the scheduler's business); it keeps, in batch order, what then changes from step to
step, so that a step costs a handful of vector operations. What a step needs and no result of the step before can
change, it can do ahead.
"""

import numpy as np

from serbench_codecs.plan import NO_WRITES, Int32Array, Writes
from serbench_codecs.table import IndexArray, RequestTable
from serbench_engine.blocks import BlockPool


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

    Valid until a row enters, leaves, or is given more than one token, which ``leave`` must tell; made from the table,
    and kept equal to it.
    """

    def __init__(
        self, table: RequestTable, pool: BlockPool, rows: Int32Array, ones: Int32Array, length_limits: Int32Array
    ) -> None:
        self.rows = rows
        self.counts = ones
        self.serials = table.serial[rows]
        self._index = rows.astype(np.intp)  # as numpy wants it: int32 would be cast each time
        self._table = table
        self._pool = pool
        self._lengths = table.num_tokens[rows]
        self._flat_ids: Int32Array = table.token_ids.reshape(-1)  # the same memory
        self._next: IndexArray = self._index * table.limits.max_model_len + self._lengths  # where the next id goes
        self._steps_left = int((length_limits[rows] - self._lengths).min())
        size = table.limits.block_size
        turns: Int32Array = (table.num_blocks[rows] * size - self._lengths + 1) % size
        self._turns = turns  # the step, modulo the block size, in which each row needs a block
        self._turn = 0  # of the next step to be scheduled
        self._due: list[BlocksDue | None] = [None] * size
        self._ahead: Writes | None = None

    def grow(self) -> Writes | None:
        """Give the rows whose token of the next step needs a block one each; None where there are not enough.

        Entered into the table; to be called once a step.
        """
        blocks, self._ahead = self._ahead, None
        if blocks is None:
            blocks = self._grow()
        if blocks is not None:
            if blocks is not NO_WRITES:
                self._pool.forget_taken()
            self._turn = (self._turn + 1) % len(self._due)
        return blocks

    def look_ahead(self) -> None:
        """Do now what the next ``grow`` would, but for forgetting what the blocks held."""
        if self._ahead is None:
            self._ahead = self._grow()

    def leave(self) -> None:
        """Undo what was done ahead: it is over."""
        if self._ahead is not None and len(self._ahead):
            due = self._blocks_due()
            due.starts = self._ahead.starts
            self._table.num_blocks[due.index] = due.starts
            self._pool.put_back(self._ahead.values)
        self._ahead = None

    def append(self, token_ids: Int32Array) -> Int32Array:
        """Append the sampled id of every row; where they went, int32[n]."""
        starts = self._lengths
        self._flat_ids[self._next] = token_ids
        self._next += 1
        self._lengths = starts + self.counts
        self._table.num_tokens[self._index] = self._lengths
        self._steps_left -= 1
        return starts

    @property
    def reaches_length(self) -> bool:
        """Whether a row has reached its length limit."""
        return self._steps_left <= 0

    def _blocks_due(self) -> BlocksDue:
        due = self._due[self._turn]
        if due is None:  # looked up when it is first wanted: few batches stay the same for long
            due = BlocksDue(self.rows[self._turns == self._turn], self._table.num_blocks)
            self._due[self._turn] = due
        return due

    def _grow(self) -> Writes | None:
        due = self._blocks_due()
        starts = due.starts
        if not len(starts):
            return NO_WRITES
        if len(starts) > self._pool.num_free:
            return None
        blocks = self._pool.take(len(starts))
        ones = self.counts[: len(starts)]
        self._table.block_table[due.index, starts] = blocks
        due.starts = starts + ones
        self._table.num_blocks[due.index] = due.starts
        return Writes(due.rows, starts, ones, blocks)
