"""What one scheduling step says to a worker, and what the worker answers, as columns.

It does not know how plans travel (codec.py, the codecs) nor what a table does with them (table.py).
"""

from collections.abc import Iterator, Sequence
from itertools import accumulate, pairwise
from typing import TypeAlias

import msgspec
import numpy as np
import numpy.typing as npt

from serbench_codecs.errors import PlanError

Int32Array: TypeAlias = npt.NDArray[np.int32]
Int64Array: TypeAlias = npt.NDArray[np.int64]
Float32Array: TypeAlias = npt.NDArray[np.float32]
SamplingArray: TypeAlias = npt.NDArray[np.void]

NO_ROWS: Int32Array = np.empty(0, dtype=np.int32)
NO_ROWS.flags.writeable = False

SAMPLING_DTYPE = np.dtype(
    [
        ("seed", "<u8"),  # every request has one: the engine draws it where the user gave none
        ("temperature", "<f4"),  # 0 is greedy
        ("top_p", "<f4"),  # 1 is off
        ("min_p", "<f4"),  # 0 is off
        ("repetition_penalty", "<f4"),  # 1 is off
        ("presence_penalty", "<f4"),  # 0 is off
        ("frequency_penalty", "<f4"),  # 0 is off
        ("top_k", "<i4"),  # 0 is off
        ("min_tokens", "<i4"),  # the row's stop ids can't be sampled before so many output tokens
        ("num_logprobs", "<i4"),  # -1: none; 0: of the sampled id only; n: of the n likeliest too
    ]
)
"""The sampling parameters that a worker needs, one record a row. Ragged ones travel beside it."""


class Ragged(msgspec.Struct, frozen=True, eq=False):
    """A list of int32 lists: list i is ``values[offsets[i]:offsets[i + 1]]``.

    ``offsets`` int32[n + 1], rising from 0; ``values`` int32[offsets[n]].
    """

    offsets: Int32Array
    values: Int32Array

    def __len__(self) -> int:
        return len(self.offsets) - 1

    def __getitem__(self, i: int) -> Int32Array:
        return self.values[self.offsets[i] : self.offsets[i + 1]]

    def __iter__(self) -> Iterator[Int32Array]:
        return (self.values[begin:end] for begin, end in pairwise(self.offsets.tolist()))

    @property
    def lengths(self) -> Int32Array:
        """The length of each list, int32[n]."""
        return self.offsets[1:] - self.offsets[:-1]

    @staticmethod
    def of(lists: Sequence[Sequence[int] | Int32Array]) -> "Ragged":
        """Pack lists of ids; the values are copied."""
        offsets = np.array([0, *accumulate(map(len, lists))], dtype=np.int32)
        parts = [np.asarray(one, dtype=np.int32) for one in lists]
        return Ragged(offsets, np.concatenate(parts) if parts else NO_ROWS)


class Admissions(msgspec.Struct, frozen=True, eq=False):
    """Requests that enter a row in this step, one entry each (n entries); also after a preemption.

    ``rows`` int32[n], ``serials`` int64[n] (> 0, never used twice in a session), ``request_ids`` list of n,
    ``num_prompt_tokens`` int32[n], ``num_computed_tokens`` int32[n] (prefix-cache hits, else 0),
    ``token_ids`` all ids so far, prompt and output, ``block_ids`` the blocks it holds,
    ``sampling`` SAMPLING_DTYPE[n], ``stop_ids`` the ids that end it (used for min_tokens).
    """

    rows: Int32Array
    serials: Int64Array
    request_ids: list[str]
    num_prompt_tokens: Int32Array
    num_computed_tokens: Int32Array
    token_ids: Ragged
    block_ids: Ragged
    sampling: SamplingArray
    stop_ids: Ragged

    def __len__(self) -> int:
        return len(self.rows)


class Writes(msgspec.Struct, frozen=True, eq=False):
    """Positional writes into a ragged column: ``column[rows[i], starts[i]:starts[i] + counts[i]]``.

    ``rows``, ``starts``, ``counts`` int32[n]; ``values`` int32[sum(counts)], concatenated in order.
    A row appears at most once; writing the same thing twice is harmless.
    """

    rows: Int32Array
    starts: Int32Array
    counts: Int32Array
    values: Int32Array

    def __len__(self) -> int:
        return len(self.rows)


def _no_sampling() -> SamplingArray:
    return np.empty(0, dtype=SAMPLING_DTYPE)


NO_LISTS = Ragged(np.zeros(1, dtype=np.int32), NO_ROWS)
NO_WRITES = Writes(NO_ROWS, NO_ROWS, NO_ROWS, NO_ROWS)
NO_ADMISSIONS = Admissions(
    NO_ROWS,
    np.empty(0, dtype=np.int64),
    [],
    NO_ROWS,
    NO_ROWS,
    NO_LISTS,
    NO_LISTS,
    _no_sampling(),
    NO_LISTS,
)


class StepPlan(msgspec.Struct, frozen=True, eq=False):
    """One step: what changes in the table, then what runs. Applied in the order of the fields.

    ``freed`` int32[f]: rows whose request finished, was aborted or was preempted since the last plan. A freed row may
    be admitted again in the same plan. ``blocks`` and ``tokens`` touch neither freed nor admitted rows. ``tokens`` are
    the ids that the scheduler learnt since the last plan. ``batch_rows`` int32[b]: the rows that run, in batch order,
    each once; ``batch_counts`` int32[b]: how many tokens each computes, starting at its ``num_computed_tokens``. A plan
    carries no computed count except in an admission: both sides advance it (``RequestTable.advance``) once the step is
    prepared.

    A producer that runs the same batch again may hand out the same ``batch_rows`` and ``batch_counts`` objects; nobody
    may write to a plan's arrays.
    """

    step: int
    epoch: int
    freed: Int32Array
    admitted: Admissions
    blocks: Writes
    tokens: Writes
    batch_rows: Int32Array
    batch_counts: Int32Array

    def validate(self) -> None:
        """Check what can be checked without a table (for that: ``RequestTable.check``). For tests and debug runs.

        Raises:
            PlanError: naming the column and the offending row.
        """
        _each_once("freed", self.freed)
        _each_once("admitted", self.admitted.rows)
        _each_once("batch", self.batch_rows)
        if len(self.batch_counts) != len(self.batch_rows) or (self.batch_counts < 1).any():
            raise PlanError(f"step {self.step}: every batch row needs a count of at least 1")
        _check_admissions(self.admitted)
        touched = np.concatenate([self.freed, self.admitted.rows])
        for name, writes in (("blocks", self.blocks), ("tokens", self.tokens)):
            _check_writes(name, writes)
            both = np.intersect1d(writes.rows, touched)
            if len(both):
                raise PlanError(f"{name}: row {both[0]} is freed or admitted in the same plan")
        gone = np.setdiff1d(self.freed, self.admitted.rows)
        stray = np.intersect1d(self.batch_rows, gone)
        if len(stray):
            raise PlanError(f"batch: row {stray[0]} was freed in the same plan")


def _each_once(name: str, rows: Int32Array) -> None:
    if len(np.unique(rows)) != len(rows):
        values, counts = np.unique(rows, return_counts=True)
        raise PlanError(f"{name}: row {values[counts > 1][0]} appears more than once")


def _check_writes(name: str, writes: Writes) -> None:
    _each_once(name, writes.rows)
    n = len(writes.rows)
    if len(writes.starts) != n or len(writes.counts) != n:
        raise PlanError(f"{name}: rows, starts and counts differ in length")
    if n and (int(writes.starts.min()) < 0 or int(writes.counts.min()) < 1):
        raise PlanError(f"{name}: a start below 0 or a count below 1")
    if int(writes.counts.sum()) != len(writes.values):
        raise PlanError(f"{name}: {len(writes.values)} values for {int(writes.counts.sum())} places")


def _check_admissions(admitted: Admissions) -> None:
    n = len(admitted)
    columns = (
        admitted.serials,
        admitted.request_ids,
        admitted.num_prompt_tokens,
        admitted.num_computed_tokens,
        admitted.token_ids,
        admitted.block_ids,
        admitted.sampling,
        admitted.stop_ids,
    )
    if any(len(column) != n for column in columns):
        raise PlanError(f"admitted: columns differ in length: {[len(c) for c in columns]}")
    for name, ragged in (
        ("token_ids", admitted.token_ids),
        ("block_ids", admitted.block_ids),
        ("stop_ids", admitted.stop_ids),
    ):
        steps = np.diff(ragged.offsets)
        if ragged.offsets[0] != 0 or (steps < 0).any() or ragged.offsets[-1] != len(ragged.values):
            raise PlanError(f"admitted: {name} offsets do not cover their values")
    if not n:
        return
    num_tokens = np.diff(admitted.token_ids.offsets)
    bad = (
        (admitted.serials < 1)
        | (admitted.num_prompt_tokens < 1)
        | (admitted.num_prompt_tokens > num_tokens)
        | (admitted.num_computed_tokens < 0)
        | (admitted.num_computed_tokens >= num_tokens)
    )
    if bad.any():
        raise PlanError(f"admitted: row {admitted.rows[bad][0]} has impossible counts or serial")


class Logprobs(msgspec.Struct, frozen=True, eq=False):
    """Log-probabilities of the rows that asked for them, ragged over the sampled rows.

    ``counts`` int32[s]: entries of each sampled row (0: none asked for); entries are the sampled id first, then the
    likeliest ones in falling order. ``token_ids`` int32[sum], ``values`` float32[sum] (natural log, before
    temperature), ``ranks`` int32[sum] (1 is the likeliest).
    """

    counts: Int32Array
    token_ids: Int32Array
    values: Float32Array
    ranks: Int32Array


FAILED_ROW = -1
"""In ``StepResult.token_ids``: the row could not be sampled (non-finite logits); its request ends with ``error``."""


class StepResult(msgspec.Struct, frozen=True, eq=False):
    """What one step sampled: ids of the rows with computed + scheduled = num_tokens, in batch order.

    ``token_ids`` int32[s]. Which (row, serial) each belongs to follows from the plan that it answers.
    """

    step: int
    epoch: int
    token_ids: Int32Array
    logprobs: Logprobs | None = None
