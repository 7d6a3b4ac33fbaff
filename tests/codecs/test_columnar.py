"""``columnar`` sends no batch that its decoder can tell, and sends it where the forecast is wrong."""

import numpy as np
import pytest

from serbench_codecs.codec import HEADER_BYTES
from serbench_codecs.columnar import APPEND, APPEND_ONE, BATCH, BLOCKS, FORECAST, POSITIONAL, SAME, WHOLE
from serbench_codecs.conformance import Arrival, Conversation, StepScript
from serbench_codecs.plan import NO_ADMISSIONS, NO_ROWS, NO_WRITES, StepPlan, Writes
from serbench_codecs.registry import get_codec
from serbench_codecs.table import RequestTable, TableLimits
from tests.codecs.variants import Step, played

LIMITS = TableLimits(max_num_seqs=64, max_model_len=200, block_size=4, num_blocks=4000, vocab_size=100)


def play(*steps: StepScript, budget: int = 10_000, overlap: int = 0) -> list[Step]:
    return played(get_codec("columnar"), Conversation(LIMITS, budget, steps, overlap=overlap))


def flags(step: Step) -> int:
    assert isinstance(step.sent.body, bytes)
    return int.from_bytes(step.sent.body[14:16], "little")


def batch_of(step: Step) -> int:
    return flags(step) & BATCH


MANY = StepScript(arrivals=tuple(Arrival(9, 100) for _ in range(50)))
QUIET = StepScript()


def test_a_batch_that_decodes_is_not_sent() -> None:
    steps = play(MANY, QUIET, QUIET, QUIET)
    # Admitted rows are expected to compute all they have; then each its one id; then the same again.
    assert [batch_of(step) for step in steps] == [FORECAST, FORECAST, SAME, SAME]
    assert steps[2].payload_bytes == HEADER_BYTES + 16


@pytest.mark.parametrize("change", [StepScript(aborts=(7,)), StepScript(arrivals=(Arrival(5, 100),))])
def test_a_row_that_comes_or_goes_costs_no_batch(change: StepScript) -> None:
    steps = play(MANY, QUIET, QUIET, change, QUIET, QUIET)
    assert batch_of(steps[3]) == FORECAST
    assert steps[3].payload_bytes < 250  # 50 rows would take 200 in two bytes a row and count alone
    assert batch_of(steps[5]) == SAME


def test_a_chunk_is_one_wrong_count() -> None:
    many = StepScript(arrivals=tuple(Arrival(1, 100) for _ in range(50)))
    steps = play(many, QUIET, QUIET, StepScript(arrivals=(Arrival(150, 9),)), QUIET, QUIET, QUIET, budget=110)
    assert [step.plan.batch_counts.max() for step in steps[3:]] == [60, 60, 30, 1]
    # The first chunk is not all that was admitted, the second is as long, the third is the rest, then it decodes.
    assert [batch_of(step) for step in steps[3:]] == [FORECAST, SAME, FORECAST, FORECAST]
    wrong = [int.from_bytes(_batch_section(step)[:4], "little") for step in (steps[3], steps[5], steps[6])]
    assert wrong == [1, 0, 0]


def _batch_section(step: Step) -> bytes:
    """The last section of a payload with a forecast that is wrong in at most one place."""
    assert isinstance(step.sent.body, bytes)
    length = 4 + 8 * int(step.plan.batch_counts.max() == 60)
    return step.sent.body[-length:]


def test_a_batch_in_another_order_is_sent_whole() -> None:
    steps = play(MANY, QUIET, QUIET, StepScript(rotation=3), QUIET)
    assert batch_of(steps[3]) == WHOLE
    assert steps[3].got.batch_rows.tolist() == steps[3].plan.batch_rows.tolist()
    assert batch_of(steps[4]) == WHOLE  # back in the old order


def test_a_row_left_out_and_back_is_sent_whole_once_each() -> None:
    steps = play(MANY, QUIET, QUIET, StepScript(idle=(4,)), QUIET, QUIET)
    assert [batch_of(step) for step in steps[3:]] == [WHOLE, WHOLE, SAME]


def test_a_blocks_place_is_sent_where_it_is_not_the_rows_next() -> None:
    arrivals = tuple(Arrival(8, 100) for _ in range(3))
    quiet = [QUIET] * 6
    kinds = {flags(step) & BLOCKS for step in play(StepScript(arrivals=arrivals), *quiet)}
    assert kinds == {0, APPEND_ONE}
    kinds = {flags(step) & BLOCKS for step in play(StepScript(arrivals=arrivals), *quiet, overlap=1)}
    assert kinds == {0, POSITIONAL}
    chunks = play(StepScript(arrivals=(Arrival(40, 9),)), *quiet, budget=10)
    assert APPEND in {flags(step) & BLOCKS for step in chunks}


@pytest.mark.parametrize("num_rows", [3, 8, 9, 30])
def test_one_place_that_is_not_the_next_makes_all_places_travel(num_rows: int) -> None:
    encoder, decoder = get_codec("columnar").ends(LIMITS)
    table = RequestTable(LIMITS)
    rows, ones = np.arange(num_rows, dtype=np.int32), np.ones(num_rows, dtype=np.int32)
    starts = np.zeros(num_rows, dtype=np.int32)
    kinds, got = [], []
    for step in range(4):
        starts = starts + 1 if step else starts
        if step == 2:
            starts[num_rows // 2] -= 1  # writes its block once more
        blocks = Writes(rows, starts, ones, rows + 100 * step)
        plan = StepPlan(step, 0, NO_ROWS, NO_ADMISSIONS, blocks, NO_WRITES, rows, ones)
        body = encoder.encode(encoder.adapt(plan, table))
        assert isinstance(body, bytes)
        kinds.append(int.from_bytes(body[14:16], "little") & BLOCKS)
        got.append(decoder.adapt(decoder.decode(memoryview(body))).blocks)
        assert [got[-1].rows.tolist(), got[-1].starts.tolist(), got[-1].values.tolist()] == [
            rows.tolist(),
            starts.tolist(),
            (rows + 100 * step).tolist(),
        ]
    assert kinds == [APPEND_ONE, APPEND_ONE, POSITIONAL, APPEND_ONE]
