"""The columns of a step are the same whether or not the step before has begun them."""

from collections.abc import Sequence

import msgspec
import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from serbench_codecs.plan import NO_ADMISSIONS, NO_ROWS, NO_WRITES, Int32Array, StepPlan, StepResult, Writes
from serbench_codecs.table import RequestTable, TableLimits
from serbench_engine.request import SamplingParams
from serbench_engine.runner.inputs import InputPreparer, StepInputs
from serbench_engine.scheduler import Scheduler
from serbench_engine.stopping import StopRules
from serbench_engine.tracked import TrackedRequest

LIMITS = TableLimits(10, 32, 4, 60, 100)


def columns(inputs: StepInputs) -> bytes:
    return msgspec.msgpack.encode(inputs, enc_hook=np.ndarray.tolist)


def tracked(name: str, prompt_len: int, output_len: int) -> TrackedRequest:
    params = SamplingParams(temperature=0, max_tokens=output_len)
    return TrackedRequest(
        name,
        np.arange(1, prompt_len + 1, dtype=np.int32),
        params,
        seed=1,
        stop_ids=NO_ROWS,
        length_limit=min(LIMITS.max_model_len, prompt_len + output_len),
        arrival_ns=0,
        watch=None,
    )


@settings(deadline=None)
@given(
    st.lists(st.tuples(st.integers(1, 12), st.integers(1, 20)), min_size=1, max_size=14),
    st.integers(3, 40),
    st.booleans(),
)
@example([(4, 12)] * 10, 40, False)  # all need a block at once
def test_columns_begun_ahead_are_those_made_in_time(
    lengths: Sequence[tuple[int, int]], budget: int, sampled_ids_travel: bool
) -> None:
    """Arrivals, chunks, endings, rows reused at once, preemptions; ids that the worker knows or is told."""
    scheduler = Scheduler(
        LIMITS, StopRules(LIMITS.max_num_seqs, ()), max_num_batched_tokens=budget, prefix_caching=False
    )
    for i, (prompt_len, output_len) in enumerate(lengths):
        scheduler.add(tracked(str(i), prompt_len, output_len))
    table, ahead, in_time = RequestTable(LIMITS), InputPreparer(), InputPreparer()
    step = 0
    while (scheduled := scheduler.schedule(step, 0)) is not None:
        plan = scheduled.plan
        if not sampled_ids_travel:
            plan = msgspec.structs.replace(plan, tokens=NO_WRITES)
        table.apply(plan)
        inputs = ahead.prepare(plan, table)
        assert columns(inputs) == columns(in_time.prepare(plan, table))
        table.advance(plan)
        scheduler.advance(scheduled.plan)
        ids = (scheduled.sample_rows + step) % 100
        if not sampled_ids_travel:
            table.append_sampled(inputs.sample_rows, ids)
        ahead.look_ahead(table)
        scheduler.update(scheduled, StepResult(step, 0, ids), step)
        step += 1


def ints(*values: int) -> Int32Array:
    return np.array(values, dtype=np.int32)


@pytest.mark.parametrize("change", ["freed and admitted", "told", "moved", "another batch"])
def test_what_a_plan_changes_is_not_taken_from_what_was_begun(change: str) -> None:
    """A row that holds another request, other ids or another block now; or another batch."""
    table, preparer = RequestTable(LIMITS), InputPreparer()
    table.serial[0], table.num_tokens[0], table.num_computed_tokens[0], table.num_blocks[0] = 1, 6, 4, 2
    table.block_table[0, :2] = 7, 8
    first = StepPlan(0, 0, NO_ROWS, NO_ADMISSIONS, NO_WRITES, NO_WRITES, ints(0), ints(1))
    preparer.prepare(first, table)
    table.advance(first)
    preparer.look_ahead(table)
    if change == "freed and admitted":
        second = msgspec.structs.replace(first, freed=ints(0))
        table.num_computed_tokens[0] = 0
    elif change == "told":
        second = msgspec.structs.replace(first, tokens=Writes(ints(0), ints(5), ints(1), ints(42)))
        table.write_tokens(second.tokens)
    elif change == "another batch":
        table.num_tokens[1] = 3
        second = msgspec.structs.replace(first, batch_rows=ints(1, 0), batch_counts=ints(3, 1))
    else:
        second = msgspec.structs.replace(first, blocks=Writes(ints(0), ints(1), ints(1), ints(9)))
        table.write_blocks(second.blocks)
    assert columns(preparer.prepare(second, table)) == columns(InputPreparer().prepare(second, table))
