"""``StepPlan.validate`` refuses each way in which a plan can break its contract, and names what is wrong."""

from typing import Any

import msgspec
import numpy as np
import pytest

from serbench_codecs.errors import PlanError
from serbench_codecs.plan import (
    NO_ADMISSIONS,
    NO_ROWS,
    NO_WRITES,
    SAMPLING_DTYPE,
    Admissions,
    Int32Array,
    Ragged,
    StepPlan,
    Writes,
)


def rows(*values: int) -> Int32Array:
    return np.array(values, dtype=np.int32)


def admissions(**columns: Any) -> Admissions:
    """Two requests of 3 and 2 tokens, in rows 4 and 5."""
    sound = Admissions(
        rows(4, 5),
        np.array([7, 8]),
        ["a", "b"],
        rows(3, 2),
        rows(0, 1),
        Ragged.of([[1, 2, 3], [4, 5]]),
        Ragged.of([[10], [11]]),
        np.zeros(2, dtype=SAMPLING_DTYPE),
        Ragged.of([[], [2]]),
    )
    return msgspec.structs.replace(sound, **columns)


def plan(**columns: Any) -> StepPlan:
    """Row 3 is freed, 4 and 5 are admitted, 1 gets two blocks, 0 and 1 a token; 0, 1 and 4 run."""
    sound = StepPlan(
        step=9,
        epoch=0,
        freed=rows(3),
        admitted=admissions(),
        blocks=Writes(rows(1), rows(2), rows(2), rows(20, 21)),
        tokens=Writes(rows(0, 1), rows(6, 7), rows(1, 1), rows(30, 31)),
        batch_rows=rows(0, 1, 4),
        batch_counts=rows(1, 1, 3),
    )
    return msgspec.structs.replace(sound, **columns)


@pytest.mark.parametrize(
    "sound",
    [
        plan(),
        plan(freed=rows(4)),  # freed, and admitted again in the same plan
        plan(freed=NO_ROWS, admitted=NO_ADMISSIONS, blocks=NO_WRITES, tokens=NO_WRITES, batch_rows=rows(0, 1, 2)),
        StepPlan(0, 0, NO_ROWS, NO_ADMISSIONS, NO_WRITES, NO_WRITES, NO_ROWS, NO_ROWS),
    ],
)
def test_a_sound_plan_passes(sound: StepPlan) -> None:
    sound.validate()


@pytest.mark.parametrize(
    ("columns", "says"),
    [
        ({"freed": rows(3, 3)}, "freed: row 3 appears more than once"),
        ({"admitted": admissions(rows=rows(4, 4))}, "admitted: row 4 appears more than once"),
        ({"batch_rows": rows(0, 1, 1)}, "batch: row 1 appears more than once"),
        ({"batch_counts": rows(1, 1)}, "step 9: every batch row needs a count of at least 1"),
        ({"batch_counts": rows(1, 0, 3)}, "step 9: every batch row needs a count of at least 1"),
        ({"batch_rows": rows(0, 3, 4)}, "batch: row 3 was freed"),
        ({"blocks": Writes(rows(3), rows(0), rows(1), rows(1))}, "blocks: row 3 is freed or admitted"),
        ({"tokens": Writes(rows(4), rows(0), rows(1), rows(1))}, "tokens: row 4 is freed or admitted"),
        ({"blocks": Writes(rows(1, 1), rows(0, 1), rows(1, 1), rows(1, 2))}, "blocks: row 1 appears more than once"),
        ({"blocks": Writes(rows(1), rows(0, 1), rows(1), rows(1))}, "blocks: rows, starts and counts differ in length"),
        ({"tokens": Writes(rows(1), rows(-1), rows(1), rows(1))}, "tokens: a start below 0 or a count below 1"),
        ({"tokens": Writes(rows(1), rows(0), rows(0), NO_ROWS)}, "tokens: a start below 0 or a count below 1"),
        ({"tokens": Writes(rows(1), rows(0), rows(2), rows(5))}, "tokens: 1 values for 2 places"),
        ({"admitted": admissions(request_ids=["a"])}, "admitted: columns differ in length"),
        ({"admitted": admissions(sampling=np.zeros(1, dtype=SAMPLING_DTYPE))}, "admitted: columns differ in length"),
        ({"admitted": admissions(stop_ids=Ragged(rows(0, 2, 1), rows(2)))}, "admitted: stop_ids offsets"),
        ({"admitted": admissions(block_ids=Ragged(rows(0, 1, 3), rows(1, 2)))}, "admitted: block_ids offsets"),
        ({"admitted": admissions(serials=np.array([7, 0]))}, "row 5 has impossible counts or serial"),
        ({"admitted": admissions(num_prompt_tokens=rows(3, 0))}, "row 5 has impossible counts or serial"),
        ({"admitted": admissions(num_prompt_tokens=rows(4, 2))}, "row 4 has impossible counts or serial"),
        ({"admitted": admissions(num_computed_tokens=rows(0, 2))}, "row 5 has impossible counts or serial"),
        ({"admitted": admissions(num_computed_tokens=rows(-1, 0))}, "row 4 has impossible counts or serial"),
    ],
)
def test_a_broken_plan_is_refused(columns: dict[str, Any], says: str) -> None:
    with pytest.raises(PlanError, match=says):
        plan(**columns).validate()


def test_ragged_lists_come_out_as_they_went_in() -> None:
    lists = [[1, 2], [], [3]]
    ragged = Ragged.of(lists)
    assert [ragged[i].tolist() for i in range(len(ragged))] == lists
    assert len(Ragged.of([])) == 0
