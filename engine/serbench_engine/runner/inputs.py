"""From plan and table to the columns that every runner needs; vectorised, no torch, no model.

It does not know what the columns are for: the torch runner makes tensors of them, the simulated one hashes through
them.
"""

import msgspec
import numpy as np

from serbench_codecs.plan import NO_ROWS, Int32Array, Int64Array, StepPlan
from serbench_codecs.table import IndexArray, RequestTable


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


class Columns(msgspec.Struct, frozen=True, eq=False):
    """What of StepInputs no new block changes, and where each token is: ``token_index`` intp[t] its row, ``places``
    intp[t] its position, ``blocks`` intp[t] which of its row's blocks that is in.
    """

    starts: Int32Array
    seq_lens: Int32Array
    token_ids: Int32Array
    positions: Int32Array
    samples: Int32Array
    sample_rows: Int32Array
    token_index: IndexArray
    places: IndexArray
    blocks: IndexArray


class InputPreparer:
    """Makes StepInputs; keeps what is the same from step to step while the batch is the same object."""

    def __init__(self) -> None:
        self._rows: Int32Array = NO_ROWS
        self._counts: Int32Array = NO_ROWS
        self._decode_only = False
        self._index = NO_ROWS.astype(np.intp)
        self._query_starts = np.zeros(1, dtype=np.int32)
        self._all = NO_ROWS
        self._ahead: Columns | None = None

    def prepare(self, plan: StepPlan, table: RequestTable) -> StepInputs:
        """``table`` with the plan applied and not yet advanced."""
        rows, counts = plan.batch_rows, plan.batch_counts
        columns, self._ahead = self._ahead, None
        if rows is not self._rows or counts is not self._counts:
            self._see(rows, counts)
            columns = None
        if columns is None or len(plan.freed) or len(plan.admitted) or len(plan.tokens):
            columns = self._columns(table)
        slots = table.block_table[columns.token_index, columns.blocks].astype(np.int64)
        slots -= columns.blocks  # (block − its place in the row) · size + position = block · size + offset
        slots *= table.limits.block_size
        slots += columns.places
        return StepInputs(
            rows=rows,
            counts=counts,
            starts=columns.starts,
            seq_lens=columns.seq_lens,
            token_ids=columns.token_ids,
            positions=columns.positions,
            slots=slots,
            query_starts=self._query_starts,
            samples=columns.samples,
            sample_rows=columns.sample_rows,
            decode_only=self._decode_only,
        )

    def look_ahead(self, table: RequestTable) -> None:
        """The step is done, ``table`` holds what it sampled: begin the next one, should it run the same batch."""
        if self._decode_only:
            self._ahead = self._columns(table)

    def _columns(self, table: RequestTable) -> Columns:
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
        return Columns(
            starts=starts,
            seq_lens=seq_lens,
            token_ids=table.token_ids[token_index, places],
            positions=positions,
            samples=samples,
            sample_rows=rows if all_due else rows[samples],
            token_index=token_index,
            places=places,
            blocks=places // table.limits.block_size,
        )

    def _see(self, rows: Int32Array, counts: Int32Array) -> None:
        self._rows, self._counts = rows, counts
        self._index = rows.astype(np.intp)
        self._decode_only = not np.count_nonzero(counts != 1)
        self._query_starts = np.zeros(len(rows) + 1, dtype=np.int32)
        np.cumsum(counts, out=self._query_starts[1:])
        self._all = np.arange(len(rows), dtype=np.int32)
