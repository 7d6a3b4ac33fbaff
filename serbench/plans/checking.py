"""Checks that recorded plans are those of one run: each fits the table that the plans before it left.

It does not know files; what it lets through can be replayed by any codec without a look at bounds.
"""

from collections.abc import Iterable, Iterator

import numpy as np

from serbench.plans.layout import RecordingError
from serbench.plans.reading import Recording, Step
from serbench_codecs.errors import CodecsError
from serbench_codecs.plan import FAILED_ROW, Int32Array, StepPlan, StepResult
from serbench_codecs.table import RequestTable, TableLimits


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
    for index, step in enumerate(steps):
        try:
            _check(index, step, table)
        except (CodecsError, ValueError, IndexError) as error:
            raise RecordingError(f"step {index} of the recording can't have been: {error}") from error
        yield step


def _check(index: int, step: Step, table: RequestTable) -> None:
    plan, result = step.plan, step.result
    if (plan.step, plan.epoch) != (index, 0):
        raise ValueError(f"it is number {plan.step} of epoch {plan.epoch}, where {index} of epoch 0 is due")
    plan.validate()
    table.apply(plan)
    table.check(plan)
    rows = due_rows(plan, table)
    _check_result(result, len(rows), table.limits.vocab_size)
    table.advance(plan)
    if len(rows) and int(table.num_tokens[rows].max()) >= table.limits.max_model_len:
        raise ValueError(f"a row samples beyond {table.limits.max_model_len} tokens")
    table.append_sampled(rows, result.token_ids)


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
