"""From plan and table to the columns that every runner needs; vectorised, no torch, no model.

It does not know what the columns are for: the torch runner makes tensors of them, the simulated one hashes through
them.
"""

from typing import Final

import msgspec
import numpy as np

from serbench_codecs.plan import NO_ROWS, Int32Array, Int64Array, StepPlan
from serbench_codecs.table import IndexArray, RequestTable

_FEW_MOVED: Final = 16
"""Up to so many slots are looked up one by one in less time than numpy needs to begin."""


class StepInputs(msgspec.Struct, frozen=True, eq=False):
    """One step's batch, b rows with t tokens in all, s of the rows sample.

    ``rows`` int32[b], ``counts`` int32[b] tokens computed, ``starts`` int32[b] tokens computed before (so the first
    position), ``seq_lens`` int32[b] = starts + counts; ``token_ids`` int32[t], ``positions`` int32[t], ``slots``
    int64[t] = block · block_size + offset, where each token's KV goes; ``query_starts`` int32[b + 1] offsets of each
    row's tokens; ``samples`` int32[s]: indices into the batch of the rows that sample (computed + scheduled =
    num_tokens); ``sample_rows`` int32[s] = rows[samples]. ``decode_only``: every count is 1.
    """

    rows: Int32Array
    counts: Int32Array
    starts: Int32Array
    seq_lens: Int32Array
    token_ids: Int32Array
    positions: Int32Array
    slots: Int64Array
    query_starts: Int32Array
    samples: Int32Array
    sample_rows: Int32Array
    decode_only: bool


class InputPreparer:
    """Makes StepInputs; keeps what is the same from step to step while the batch is the same object."""

    def __init__(self) -> None:
        self._rows: Int32Array = NO_ROWS
        self._counts: Int32Array = NO_ROWS
        self._decode_only = False
        self._index = NO_ROWS.astype(np.intp)
        self._query_starts = np.zeros(1, dtype=np.int32)
        self._all = NO_ROWS
        self._ahead: StepInputs | None = None
        self._place_of: dict[int, int] = {}  # row → its place in the batch

    def prepare(self, plan: StepPlan, table: RequestTable) -> StepInputs:
        """``table`` with the plan applied and not yet advanced."""
        ahead, self._ahead = self._ahead, None
        if plan.batch_rows is not self._rows or plan.batch_counts is not self._counts:
            self._see(plan.batch_rows, plan.batch_counts)
        elif ahead is not None and not (len(plan.freed) or len(plan.admitted) or len(plan.tokens)):
            if len(plan.blocks):
                self._move(ahead, plan.blocks.rows, table)
            return ahead
        return self._inputs(table)

    def look_ahead(self, table: RequestTable) -> None:
        """The step is done, ``table`` holds what it sampled: make the next one's columns, should it run the same batch.

        Only new blocks can change them then.
        """
        if self._decode_only:
            self._ahead = self._inputs(table)
            if not self._place_of:
                self._place_of = {row: place for place, row in enumerate(self._rows.tolist())}

    def _inputs(self, table: RequestTable) -> StepInputs:
        rows, counts, index = self._rows, self._counts, self._index
        starts = table.num_computed_tokens[index]
        seq_lens = starts + counts
        if self._decode_only:
            token_index, positions = index, starts
        else:
            token_index = np.repeat(index, counts)
            shift = np.repeat(starts - self._query_starts[:-1], counts)
            positions = np.arange(len(token_index), dtype=np.int32) + shift
        places = positions.astype(np.intp)  # arrays that index are of this type: others are cast each time
        num_tokens = table.num_tokens[index]
        all_due = seq_lens.tobytes() == num_tokens.tobytes()  # numpy takes longer to tell
        samples = self._all if all_due else np.flatnonzero(seq_lens == num_tokens).astype(np.int32)
        return StepInputs(
            rows=rows,
            counts=counts,
            starts=starts,
            seq_lens=seq_lens,
            token_ids=table.token_ids[token_index, places],
            positions=positions,
            slots=_slots(table, token_index, places),
            query_starts=self._query_starts,
            samples=samples,
            sample_rows=rows if all_due else rows[samples],
            decode_only=self._decode_only,
        )

    def _move(self, inputs: StepInputs, rows: Int32Array, table: RequestTable) -> None:
        """Some of ``rows`` hold other blocks than when the slots of ``inputs``, a decode, were looked up."""
        slots, starts, size, place_of = inputs.slots, inputs.starts, table.limits.block_size, self._place_of
        if len(rows) > _FEW_MOVED:
            places = [place for row in rows.tolist() if (place := place_of.get(row)) is not None]
            moved = np.array(places, dtype=np.intp)
            slots[moved] = _slots(table, self._index[moved], starts[moved].astype(np.intp))
            return
        for row in rows.tolist():
            if (place := place_of.get(row)) is not None:
                block, offset = divmod(starts.item(place), size)
                slots[place] = table.block_table.item(row, block) * size + offset

    def _see(self, rows: Int32Array, counts: Int32Array) -> None:
        self._rows, self._counts = rows, counts
        self._index = rows.astype(np.intp)
        self._decode_only = not np.count_nonzero(counts != 1)
        self._query_starts = np.zeros(len(rows) + 1, dtype=np.int32)
        np.cumsum(counts, out=self._query_starts[1:])
        self._all = np.arange(len(rows), dtype=np.int32)
        self._place_of = {}


def _slots(table: RequestTable, rows: IndexArray, places: IndexArray) -> Int64Array:
    """Where the KV of each token goes: row and position in it, intp[t] each."""
    blocks = places // table.limits.block_size
    slots: Int64Array = table.block_table[rows, blocks].astype(np.int64)
    slots -= blocks  # (block − its place in the row) · size + position = block · size + offset
    slots *= table.limits.block_size
    slots += places
    return slots
