"""Checks that recorded plans are those of one run: each fits the table that the plans before it left.

It does not know files; what it lets through can be replayed by any codec without a look at bounds.
"""

from collections.abc import Iterable, Iterator
from typing import Final

import msgspec
import numpy as np

from serbench.plans.layout import RecordingError
from serbench.plans.reading import Recording, Step
from serbench_codecs.errors import CodecsError
from serbench_codecs.plan import FAILED_ROW, NO_ROWS, Int32Array, StepPlan, StepResult
from serbench_codecs.table import RequestTable, TableLimits


class _Sampled(msgspec.Struct, frozen=True, eq=False):
    """What a step sampled, and where it went: int32[s] each."""

    rows: Int32Array
    starts: Int32Array
    token_ids: Int32Array


_NOTHING_SAMPLED: Final = _Sampled(NO_ROWS, NO_ROWS, NO_ROWS)


def due_rows(plan: StepPlan, table: RequestTable) -> Int32Array:
    """int32[s]: the rows that sample, in batch order; ``table`` with the plan applied and not yet advanced."""
    rows = plan.batch_rows
    due = table.num_computed_tokens[rows] + plan.batch_counts == table.num_tokens[rows]
    return rows if due.all() else rows[due]


def load_steps(recording: Recording, limit: int | None = None) -> list[Step]:
    """All steps of a recording, or the first ``limit``, checked.

    Raises:
        RecordingError: a step that no run of the engine could have made, with the reason; or no step at all.
    """
    number = len(recording) if limit is None else min(limit, len(recording))
    if not number:
        raise RecordingError("the recording has no steps to replay")
    return list(checked(map(recording.step, range(number)), recording.limits))


def checked(steps: Iterable[Step], limits: TableLimits) -> Iterator[Step]:
    """``steps`` as they are, each once it has been found possible after those before."""
    try:
        table = RequestTable(limits)
    except MemoryError as error:
        raise RecordingError(f"there is no memory for a table of {limits}") from error
    sampled = _NOTHING_SAMPLED
    for index, step in enumerate(steps):
        try:
            sampled = _check(index, step, table, sampled)
        except (CodecsError, ValueError, IndexError) as error:
            raise RecordingError(f"step {index} of the recording can't have been: {error}") from error
        yield step


def _check(index: int, step: Step, table: RequestTable, before: _Sampled) -> _Sampled:
    """Refuse what can't follow; take it into the table, and give what it sampled."""
    plan, result = step.plan, step.result
    if (plan.step, plan.epoch) != (index, 0):
        raise ValueError(f"it is number {plan.step} of epoch {plan.epoch}, where {index} of epoch 0 is due")
    plan.validate()
    table.check_bounds(plan)
    _check_writes(plan, table, before)
    table.apply(plan)
    table.check(plan)
    rows = due_rows(plan, table)
    _check_result(result, len(rows), table.limits.vocab_size)
    table.advance(plan)
    starts = table.num_tokens[rows]
    if len(rows) and int(starts.max()) >= table.limits.max_model_len:
        raise ValueError(f"a row samples beyond {table.limits.max_model_len} tokens")
    table.append_sampled(rows, result.token_ids)
    return _Sampled(rows, starts, result.token_ids)


def _check_writes(plan: StepPlan, table: RequestTable, before: _Sampled) -> None:
    """A plan tells what was sampled before it, of the rows that go on, and blocks that follow those a row has.

    Some codecs send it and some let the worker derive it: where the file contradicts itself their tables would differ.
    """
    on = ~np.isin(before.rows, plan.freed)
    told = plan.tokens
    due = (before.rows[on], before.starts[on], before.token_ids[on])
    if (told.counts != 1).any() or not all(map(np.array_equal, (told.rows, told.starts, told.values), due)):
        raise ValueError("the file contradicts itself: the ids that it tells are not those that were sampled before it")
    if not np.array_equal(plan.blocks.starts, table.num_blocks[plan.blocks.rows]):
        raise ValueError("the file contradicts itself: its new blocks do not follow those that the rows have")


def _check_result(result: StepResult, num_rows: int, vocab_size: int) -> None:
    ids, logprobs = result.token_ids, result.logprobs
    if len(ids) != num_rows:
        raise ValueError(f"{len(ids)} ids were sampled for {num_rows} rows")
    if len(ids) and not FAILED_ROW <= int(ids.min()) <= int(ids.max()) < vocab_size:
        raise ValueError(f"an id was sampled outside 0 … {vocab_size - 1}")
    if logprobs is not None and (
        len(logprobs.counts) != len(ids)
        or int(logprobs.counts.min()) < 0
        or {int(logprobs.counts.sum(dtype=np.int64))}
        != {len(logprobs.token_ids), len(logprobs.values), len(logprobs.ranks)}
    ):
        raise ValueError("the log-probabilities do not fit the sampled ids")
