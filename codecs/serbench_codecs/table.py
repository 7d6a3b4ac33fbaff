"""The request table that the scheduler and every worker hold, and what a plan does to it.

It does not know how plans travel, nor what the model makes of the columns. Apply never touches KV.
"""

import hashlib
from operator import sub
from typing import Final, TypeAlias

import msgspec
import numpy as np
import numpy.typing as npt

from serbench_codecs.errors import PlanError
from serbench_codecs.extent import FEW, all_below, extent
from serbench_codecs.plan import NO_ROWS, SAMPLING_DTYPE, Admissions, Int32Array, StepPlan, Writes

IndexArray: TypeAlias = npt.NDArray[np.intp]

_TOUCHED_BYTES: Final = 64 << 20
"""Up to so much memory is touched when a table is made: a huge page's first touch takes a step 0.3 ms or more."""

_FEW_WRITES: Final = 16
"""Up to so many writes of one value each are done one after another in less time than numpy needs to begin."""


class TableLimits(msgspec.Struct, frozen=True):
    """The shape of a table, the same on every side of a session.

    ``max_num_seqs`` rows; ``max_model_len`` tokens a row; ``block_size`` tokens a block; ``num_blocks`` blocks of KV
    cache in all (block ids are below it); ``vocab_size`` (token ids are below it).
    """

    max_num_seqs: int
    max_model_len: int
    block_size: int
    num_blocks: int
    vocab_size: int

    @property
    def max_blocks(self) -> int:
        """Blocks that the longest request holds."""
        return -(-self.max_model_len // self.block_size)

    @property
    def row_bytes(self) -> int:
        """What a row takes in a table: its token and block ids (int32 each) and its entry in every other column."""
        return 4 * (self.max_model_len + self.max_blocks) + 8 + 4 * 4 + SAMPLING_DTYPE.itemsize + 2 * 8


class RequestTable:
    """One row per running request, as numpy columns. Rows with serial 0 are empty.

    ``serial`` int64[rows]; ``token_ids`` int32[rows, max_model_len]; ``num_tokens``, ``num_prompt_tokens``,
    ``num_computed_tokens``, ``num_blocks`` int32[rows]; ``block_table`` int32[rows, max_blocks];
    ``sampling`` SAMPLING_DTYPE[rows]; ``stop_ids`` and ``request_ids``: a list entry per row.
    Large tables are lazily backed by the system: rows never used cost no memory. Others have theirs from the start.
    """

    def __init__(self, limits: TableLimits) -> None:
        rows = limits.max_num_seqs
        self.limits = limits
        self.serial = np.zeros(rows, dtype=np.int64)
        self.token_ids = np.zeros((rows, limits.max_model_len), dtype=np.int32)
        self.num_tokens = np.zeros(rows, dtype=np.int32)
        self.num_prompt_tokens = np.zeros(rows, dtype=np.int32)
        self.num_computed_tokens = np.zeros(rows, dtype=np.int32)
        self.block_table = np.zeros((rows, limits.max_blocks), dtype=np.int32)
        self.num_blocks = np.zeros(rows, dtype=np.int32)
        self.sampling = np.zeros(rows, dtype=SAMPLING_DTYPE)
        self.stop_ids: list[Int32Array] = [np.empty(0, dtype=np.int32)] * rows
        self.request_ids: list[str] = [""] * rows
        if self.token_ids.nbytes <= _TOUCHED_BYTES:
            self.token_ids.fill(0)
            self.block_table.fill(0)
        self._width = limits.max_blocks
        # The same memory as block_table and num_blocks: one number goes in and out of it in half the time.
        self._blocks_at, self._blocks_held = self.block_table.data, self.num_blocks.data
        self._bounded_batch = (NO_ROWS, NO_ROWS)
        self._indexed_rows = NO_ROWS
        self._index = NO_ROWS.astype(np.intp)

    # --- a worker's side ---------------------------------------------------------------------------------------------

    def apply(self, plan: StepPlan) -> None:
        """Make this table equal to the scheduler's. Nothing is changed if the plan is out of bounds.

        Raises:
            PlanError: the plan reaches outside the table, or runs an empty row.
        """
        if self._append_few(plan):
            return
        self.check_bounds(plan)
        if len(plan.freed):
            self.serial[plan.freed] = 0
        if len(plan.admitted):
            self.admit(plan.admitted)
        if len(plan.blocks):
            self.write_blocks(plan.blocks)
        if len(plan.tokens):
            self.write_tokens(plan.tokens)

    def advance(self, plan: StepPlan) -> None:
        """Count the step's tokens as computed: both sides call it once the step is prepared."""
        self.num_computed_tokens[self._index_of(plan.batch_rows)] += plan.batch_counts

    def append_sampled(self, rows: Int32Array, token_ids: Int32Array) -> None:
        """Append one id to each row (int32[n] each, rows unique): a worker's own samples, or the scheduler's update."""
        index = self._index_of(rows)
        positions = self.num_tokens[index]
        self.token_ids[index, positions] = token_ids
        self.num_tokens[index] = positions + 1

    def _index_of(self, rows: Int32Array) -> IndexArray:
        """``rows`` in the type that numpy indexes with, which it would make anew each time; kept for the next step."""
        if rows is not self._indexed_rows:
            self._indexed_rows = rows
            self._index = rows.astype(np.intp)
        return self._index

    def _append_few(self, plan: StepPlan) -> bool:
        """Apply the plan of a steady step at once: the batch of the last one, a block for each of a few rows.

        False, and nothing is changed, if it is another plan or out of bounds.
        """
        blocks, batch = plan.blocks, self._bounded_batch
        if plan.batch_rows is not batch[0] or plan.batch_counts is not batch[1]:
            return False
        if len(plan.freed) or len(plan.admitted.rows) or len(plan.tokens.rows):
            return False
        n = len(blocks.rows)
        if n > _FEW_WRITES or len(blocks.starts) != n or len(blocks.counts) != n or len(blocks.values) != n:
            return False
        num_rows, num_blocks = self.limits.max_num_seqs, self.limits.num_blocks
        columns = (blocks.rows.tolist(), blocks.starts.tolist(), blocks.counts.tolist(), blocks.values.tolist())
        few = [*zip(*columns, strict=True)]
        for row, start, count, block in few:
            if not (0 <= row < num_rows and 0 <= start < self._width and count == 1 and 0 <= block < num_blocks):
                return False
        table, held = self._blocks_at, self._blocks_held
        for row, start, _, block in few:
            table[row, start] = block
            if held[row] <= start:
                held[row] = start + 1
        return True

    # --- the parts of apply, which the scheduler uses on its own table ------------------------------------------------

    def admit(self, admitted: Admissions) -> None:
        """Fill the rows of ``admitted``; what the rows held before is gone."""
        rows = admitted.rows.astype(np.intp)  # as numpy indexes
        self.serial[rows] = admitted.serials
        self.num_prompt_tokens[rows] = admitted.num_prompt_tokens
        self.num_computed_tokens[rows] = admitted.num_computed_tokens
        self.num_tokens[rows] = admitted.token_ids.lengths
        self.num_blocks[rows] = admitted.block_ids.lengths
        self.sampling[rows] = admitted.sampling
        lists = (admitted.token_ids, admitted.block_ids, admitted.stop_ids, admitted.request_ids)
        for row, token_ids, block_ids, stop_ids, request_id in zip(rows.tolist(), *lists, strict=True):
            self.token_ids[row, : len(token_ids)] = token_ids
            self.block_table[row, : len(block_ids)] = block_ids
            self.stop_ids[row] = stop_ids.copy()
            self.request_ids[row] = request_id

    def write_blocks(self, writes: Writes) -> None:
        """Positional writes into ``block_table``; ``num_blocks`` grows to cover them."""
        _write(self.block_table, self.num_blocks, writes)

    def write_tokens(self, writes: Writes) -> None:
        """Positional writes into ``token_ids``; ``num_tokens`` grows to cover them."""
        _write(self.token_ids, self.num_tokens, writes)

    # --- checks -------------------------------------------------------------------------------------------------------

    def check_bounds(self, plan: StepPlan) -> None:
        """Refuse a plan that reaches outside the table; cheap enough for every step.

        A batch that is the same object as in the last plan was checked then.

        Raises:
            PlanError: with the column and the value.
        """
        limits = self.limits
        if len(plan.freed):
            _below("freed rows", plan.freed, limits.max_num_seqs)
        if len(plan.admitted):
            self._check_admissions(plan.admitted)
        if len(plan.blocks):
            self._check_writes("blocks", plan.blocks, limits.max_blocks)
            _below("block ids", plan.blocks.values, limits.num_blocks)
        if len(plan.tokens):
            self._check_writes("tokens", plan.tokens, limits.max_model_len)
            _below("token ids", plan.tokens.values, limits.vocab_size)
        batch = (plan.batch_rows, plan.batch_counts)
        if batch[0] is not self._bounded_batch[0] or batch[1] is not self._bounded_batch[1]:
            _below("batch rows", plan.batch_rows, limits.max_num_seqs)
            _below("batch counts", plan.batch_counts - 1, limits.max_model_len)
            if len(plan.batch_rows) != len(plan.batch_counts):
                raise PlanError("batch rows and counts differ in length")
            self._bounded_batch = batch

    def check(self, plan: StepPlan) -> None:
        """Check an *applied*, not yet advanced plan against this table. For tests and debug runs.

        Raises:
            PlanError: a batch row that is empty, computes past its tokens or past its blocks.
        """
        rows = plan.batch_rows
        ends = self.num_computed_tokens[rows] + plan.batch_counts
        for what, bad in (
            ("is empty", self.serial[rows] == 0),
            ("computes past its tokens", ends > self.num_tokens[rows]),
            ("computes past its blocks", ends > self.num_blocks[rows] * self.limits.block_size),
        ):
            if bad.any():
                raise PlanError(f"step {plan.step}: batch row {rows[bad][0]} {what}")

    def digest(self, rows: Int32Array, upto: Int32Array) -> bytes:
        """16 bytes over all that two tables must agree on: the given rows, ids up to ``upto`` int32[len(rows)]."""
        digest = hashlib.blake2b(digest_size=16)
        for row, end in zip(rows.tolist(), upto.tolist(), strict=True):
            blocks = int(self.num_blocks[row])
            counts = (
                row,
                int(self.serial[row]),
                int(self.num_prompt_tokens[row]),
                int(self.num_computed_tokens[row]),
                end,
                blocks,
            )
            digest.update(repr((counts, self.request_ids[row])).encode())
            digest.update(self.token_ids[row, :end].tobytes())
            digest.update(self.block_table[row, :blocks].tobytes())
            digest.update(self.sampling[row].tobytes())
            digest.update(self.stop_ids[row].tobytes())
        return digest.digest()

    def _check_writes(self, name: str, writes: Writes, width: int) -> None:
        n = len(writes.rows)
        if len(writes.starts) != n or len(writes.counts) != n:
            raise PlanError(f"{name}: rows, starts and counts differ in length")
        if n <= FEW and _few_fit(writes, self.limits.max_num_seqs, width):
            return
        _below(f"{name} rows", writes.rows, self.limits.max_num_seqs)
        _below(f"{name} starts", writes.starts, width)
        _below(f"{name} ends", writes.starts + writes.counts - 1, width)
        if int(writes.counts.sum()) != len(writes.values) or int(writes.counts.min()) < 1:
            raise PlanError(f"{name}: values do not fit the counts")

    def _check_admissions(self, admitted: Admissions) -> None:
        limits = self.limits
        n = len(admitted)
        for column in (
            admitted.serials,
            admitted.request_ids,
            admitted.num_prompt_tokens,
            admitted.num_computed_tokens,
            admitted.token_ids,
            admitted.block_ids,
            admitted.sampling,
            admitted.stop_ids,
        ):
            if len(column) != n:
                raise PlanError("admitted: columns differ in length")
        _below("admitted rows", admitted.rows, limits.max_num_seqs)
        for name, ragged, width in (
            ("token_ids", admitted.token_ids, limits.max_model_len),
            ("block_ids", admitted.block_ids, limits.max_blocks),
            ("stop_ids", admitted.stop_ids, len(admitted.stop_ids.values)),
        ):
            offsets = ragged.offsets.tolist()
            lengths = [*map(sub, offsets[1:], offsets)]
            if min(lengths) < 0 or offsets[0] != 0 or offsets[-1] != len(ragged.values):
                raise PlanError(f"admitted: {name} offsets do not cover their values")
            if max(lengths) > width:
                raise PlanError(f"admitted: {max(lengths)} {name} where {width} fit")
        _below("admitted block ids", admitted.block_ids.values, limits.num_blocks)
        _below("admitted token ids", admitted.token_ids.values, limits.vocab_size)
        _below("admitted stop ids", admitted.stop_ids.values, limits.vocab_size)
        if int(admitted.serials.min()) < 1:
            raise PlanError(f"admitted: serial {int(admitted.serials.min())} is below 1")
        _check_counts(admitted)


def _below(what: str, values: Int32Array, limit: int) -> None:
    """Refuse values outside [0, limit)."""
    if not all_below(values, limit):
        least, most = extent(values)
        raise PlanError(f"{what}: {least if least < 0 else most} is outside 0 … {limit - 1}")


def _check_counts(admitted: Admissions) -> None:
    """Refuse prompts and computed tokens that a request with so many tokens can't have."""
    prompts, computed = admitted.num_prompt_tokens.tolist(), admitted.num_computed_tokens.tolist()
    for prompt, done, tokens in zip(prompts, computed, admitted.token_ids.lengths.tolist(), strict=True):
        if not (1 <= prompt <= tokens and 0 <= done < tokens):
            raise PlanError(f"admitted: {prompt} prompt tokens and {done} computed ones of {tokens}")


def _few_fit(writes: Writes, num_rows: int, width: int) -> bool:
    """Whether all writes lie within the rows and the width, and the values fit them."""
    total = 0
    for row, start, count in zip(writes.rows.tolist(), writes.starts.tolist(), writes.counts.tolist(), strict=True):
        if not (0 <= row < num_rows and 0 <= start < start + count <= width):
            return False
        total += count
    return total == len(writes.values)


def _write(column: Int32Array, lengths: Int32Array, writes: Writes) -> None:
    """Positional writes into ``column`` [rows, width]; ``lengths`` [rows] grow to cover them."""
    counts, values = writes.counts, writes.values
    one_each = len(values) == len(counts)  # as in a steady step
    if len(counts) <= (_FEW_WRITES if one_each else FEW):
        _write_few(column, lengths, writes)
        return
    rows, starts = writes.rows.astype(np.intp), writes.starts.astype(np.intp)  # as numpy indexes
    if one_each:
        column[rows, starts] = values
    else:
        first = np.repeat(np.cumsum(counts) - counts, counts)
        within = np.arange(len(values), dtype=np.int32) - first
        column[np.repeat(rows, counts), np.repeat(starts, counts) + within] = values
    lengths[rows] = np.maximum(lengths[rows], writes.starts + counts)


def _write_few(column: Int32Array, lengths: Int32Array, writes: Writes) -> None:
    """As ``_write``, one row after the other."""
    values, done = writes.values, 0
    for row, start, count in zip(writes.rows.tolist(), writes.starts.tolist(), writes.counts.tolist(), strict=True):
        end = start + count
        if count == 1:
            column[row, start] = values[done]
        else:
            column[row, start:end] = values[done : done + count]
        if lengths[row] < end:
            lengths[row] = end
        done += count
