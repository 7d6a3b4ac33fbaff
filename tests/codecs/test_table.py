"""What a plan does to a table, what a table refuses unchanged, and what its digest covers."""

from collections.abc import Callable
from typing import Any

import msgspec
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from serbench_codecs.errors import PlanError
from serbench_codecs.plan import NO_ADMISSIONS, NO_ROWS, NO_WRITES, Ragged, StepPlan, Writes
from serbench_codecs.table import RequestTable, TableLimits
from tests.codecs.test_plan import admissions, plan, rows

LIMITS = TableLimits(max_num_seqs=8, max_model_len=12, block_size=3, num_blocks=40, vocab_size=100)


def running_table() -> RequestTable:
    """Rows 0, 1 and 3 run, with 6, 7 and 5 tokens and two blocks each."""
    table = RequestTable(LIMITS)
    for row, num_tokens in ((0, 6), (1, 7), (3, 5)):
        one = admissions(
            rows=rows(row),
            serials=np.array([row + 1]),
            request_ids=[f"r{row}"],
            num_prompt_tokens=rows(num_tokens),
            num_computed_tokens=rows(0),
            token_ids=Ragged.of([list(range(num_tokens))]),
            block_ids=Ragged.of([[2 * row, 2 * row + 1]]),
            sampling=admissions().sampling[:1],
            stop_ids=Ragged.of([[2]]),
        )
        table.admit(one)
    return table


def test_row_bytes_are_what_a_table_of_many_rows_takes() -> None:
    limits = TableLimits(max_num_seqs=1000, max_model_len=50, block_size=16, num_blocks=4, vocab_size=9)
    columns = vars(RequestTable(limits)).values()
    arrays = sum(one.nbytes for one in columns if isinstance(one, np.ndarray) and len(one) == 1000)
    lists = sum(8 * len(one) for one in columns if isinstance(one, list))
    assert arrays + lists == 1000 * limits.row_bytes


def everything(table: RequestTable) -> bytes:
    columns = (table.serial, table.token_ids, table.num_tokens, table.num_computed_tokens, table.block_table)
    return b"".join([column.tobytes() for column in (*columns, table.num_blocks, table.sampling)])


def test_apply_frees_admits_and_writes() -> None:
    table = running_table()
    table.apply(plan())
    assert table.serial.tolist() == [1, 2, 0, 0, 7, 8, 0, 0]
    assert table.token_ids[4, :3].tolist() == [1, 2, 3]
    assert table.num_tokens.tolist()[:6] == [7, 8, 0, 5, 3, 2]
    assert table.token_ids[0, 6] == 30
    assert table.block_table[1, :4].tolist() == [2, 3, 20, 21]
    assert table.num_blocks[1] == 4
    assert table.num_computed_tokens[5] == 1
    assert table.request_ids[4] == "a"
    assert table.stop_ids[5].tolist() == [2]


def test_a_freed_row_is_admitted_again_in_the_same_plan() -> None:
    table = running_table()
    table.apply(plan(freed=rows(3, 4), admitted=admissions(rows=rows(3, 5)), batch_rows=rows(0, 1, 3)))
    assert table.serial[3] == 7
    assert table.num_tokens[3] == 3


def test_writing_twice_is_harmless() -> None:
    once, twice = running_table(), running_table()
    once.apply(plan())
    twice.apply(plan())
    twice.apply(plan(freed=NO_ROWS))
    assert everything(once) == everything(twice)


def test_both_sides_count_what_was_computed() -> None:
    table = running_table()
    table.apply(plan())
    table.advance(plan())
    assert table.num_computed_tokens.tolist() == [1, 1, 0, 0, 3, 1, 0, 0]
    table.append_sampled(rows(4, 0), rows(50, 51))
    assert table.token_ids[4, 3] == 50
    assert table.token_ids[0, 7] == 51
    assert table.num_tokens.tolist()[:5] == [8, 8, 0, 5, 4]


@given(
    st.lists(st.tuples(st.integers(0, 7), st.integers(0, 8), st.integers(1, 4)), max_size=8, unique_by=lambda w: w[0]),
)
def test_ragged_writes_go_where_they_say(writes: list[tuple[int, int, int]]) -> None:
    counts = [count for _, _, count in writes]
    values = np.arange(1, sum(counts) + 1, dtype=np.int32)
    expected = np.zeros((8, 12), dtype=np.int32)
    for (row, start, count), part in zip(writes, np.split(values, np.cumsum(counts)[:-1]), strict=False):
        expected[row, start : start + count] = part
    table = RequestTable(LIMITS)
    if writes:
        table.write_tokens(Writes(rows(*[w[0] for w in writes]), rows(*[w[1] for w in writes]), rows(*counts), values))
    assert (table.token_ids == expected).all()
    assert table.num_tokens.sum() == sum(start + count for _, start, count in writes)


def writes(row: int = 1, start: int = 0, count: int = 1, values: tuple[int, ...] = (1,)) -> Writes:
    return Writes(rows(row), rows(start), rows(count), rows(*values))


@pytest.mark.parametrize(
    ("columns", "says"),
    [
        ({"freed": rows(8)}, r"freed rows: 8 is outside 0 … 7"),
        ({"freed": rows(-1)}, r"freed rows: -1 is outside 0 … 7"),
        ({"admitted": admissions(rows=rows(4, 8))}, r"admitted rows: 8 is outside 0 … 7"),
        ({"admitted": admissions(serials=np.array([7, 0]))}, "serial 0 is below 1"),
        ({"admitted": admissions(request_ids=["a"])}, "columns differ in length"),
        ({"admitted": admissions(token_ids=Ragged.of([[1], [100]]))}, r"token ids: 100 is outside 0 … 99"),
        ({"admitted": admissions(block_ids=Ragged.of([[1], [40]]))}, r"block ids: 40 is outside 0 … 39"),
        ({"admitted": admissions(token_ids=Ragged.of([[1], [1] * 13]))}, "13 token_ids where 12 fit"),
        ({"admitted": admissions(block_ids=Ragged.of([[1], [1] * 5]))}, "5 block_ids where 4 fit"),
        ({"admitted": admissions(stop_ids=Ragged.of([[], [100]]))}, r"stop ids: 100 is outside 0 … 99"),
        ({"admitted": admissions(num_computed_tokens=rows(0, -1))}, r"-1 computed ones of"),
        ({"admitted": admissions(num_computed_tokens=rows(0, 9))}, r"9 computed ones of"),
        ({"admitted": admissions(num_prompt_tokens=rows(1, 0))}, r"0 prompt tokens and"),
        ({"admitted": admissions(num_prompt_tokens=rows(1, 9))}, r"9 prompt tokens and"),
        ({"admitted": admissions(stop_ids=Ragged(rows(0, 5, 1), rows(1)))}, "stop_ids offsets do not cover"),
        ({"blocks": writes(row=8)}, r"blocks rows: 8 is outside 0 … 7"),
        ({"blocks": writes(start=4)}, r"blocks starts: 4 is outside 0 … 3"),
        ({"blocks": writes(start=3, count=2, values=(1, 2))}, r"blocks ends: 4 is outside 0 … 3"),
        ({"blocks": writes(count=2)}, "blocks: values do not fit the counts"),
        ({"blocks": writes(values=(40,))}, r"block ids: 40 is outside 0 … 39"),
        ({"blocks": Writes(rows(1, 2), rows(0), rows(1), rows(1))}, "blocks: rows, starts and counts differ in length"),
        ({"tokens": writes(start=12)}, r"tokens starts: 12 is outside 0 … 11"),
        ({"tokens": writes(values=(-1,))}, r"token ids: -1 is outside 0 … 99"),
        ({"batch_rows": rows(0, 1, 8)}, r"batch rows: 8 is outside 0 … 7"),
        ({"batch_counts": rows(1, 1, 0)}, r"batch counts: -1 is outside 0 … 11"),
        ({"batch_counts": rows(1, 1)}, "batch rows and counts differ in length"),
    ],
)
def test_a_plan_out_of_bounds_changes_nothing(columns: dict[str, Any], says: str) -> None:
    table = running_table()
    before = everything(table)
    with pytest.raises(PlanError, match=says):
        table.apply(plan(**columns))
    assert everything(table) == before


@pytest.mark.parametrize(
    ("blocks", "says"),
    [
        (writes(row=8), r"blocks rows: 8 is outside 0 … 7"),
        (writes(row=-1), r"blocks rows: -1 is outside 0 … 7"),
        (writes(start=4), r"blocks starts: 4 is outside 0 … 3"),
        (writes(start=-1), r"blocks starts: -1 is outside 0 … 3"),
        (writes(values=(40,)), r"block ids: 40 is outside 0 … 39"),
        (writes(values=(-1,)), r"block ids: -1 is outside 0 … 39"),
        (writes(count=2), "blocks: values do not fit the counts"),
        (Writes(rows(1, 2), rows(0), rows(1), rows(1)), "blocks: rows, starts and counts differ in length"),
        (Writes(rows(0, 1), rows(0, 4), rows(1, 1), rows(5, 6)), r"blocks starts: 4 is outside 0 … 3"),
    ],
)
def test_blocks_out_of_bounds_change_nothing_while_the_batch_stays(blocks: Writes, says: str) -> None:
    table, step = running_table(), plan(freed=NO_ROWS, admitted=NO_ADMISSIONS, tokens=NO_WRITES)
    table.apply(step)
    before = everything(table)
    with pytest.raises(PlanError, match=says):
        table.apply(msgspec.structs.replace(step, blocks=blocks))
    assert everything(table) == before


@pytest.mark.parametrize("num_events", [0, 1, 2, 16, 17, 40])
def test_a_steady_step_does_what_any_other_does(num_events: int) -> None:
    limits = TableLimits(max_num_seqs=64, max_model_len=12, block_size=3, num_blocks=400, vocab_size=100)
    batch = {"batch_rows": rows(*range(64)), "batch_counts": rows(*[1] * 64)}
    nothing = plan(freed=NO_ROWS, admitted=NO_ADMISSIONS, blocks=NO_WRITES, tokens=NO_WRITES, **batch)
    which = np.random.default_rng(num_events).permutation(64)[:num_events].astype(np.int32)
    blocks = Writes(which, which % 4, np.ones_like(which), which * 6)
    steady, fresh = RequestTable(limits), RequestTable(limits)
    steady.num_blocks[:] = fresh.num_blocks[:] = 2  # so that some writes are beyond what a row holds, some are not
    steady.apply(nothing)
    for table in (steady, fresh):
        table.apply(msgspec.structs.replace(nothing, blocks=blocks))
    assert everything(steady) == everything(fresh)
    assert steady.block_table.sum() == blocks.values.sum()
    assert steady.num_blocks[which].tolist() == np.maximum(2, which % 4 + 1).tolist()


def test_a_batch_that_was_refused_is_refused_again() -> None:
    table = running_table()
    bad = plan(batch_rows=rows(0, 1, 8))
    for _ in range(2):
        with pytest.raises(PlanError):
            table.apply(bad)


@pytest.mark.parametrize(
    ("columns", "says"),
    [
        ({"batch_rows": rows(0, 1, 2)}, "step 9: batch row 2 is empty"),
        ({"batch_counts": rows(1, 9, 3)}, "step 9: batch row 1 computes past its tokens"),
        ({"batch_counts": rows(1, 1, 3), "blocks": NO_WRITES}, "step 9: batch row 4 computes past its blocks"),
    ],
)
def test_check_finds_what_only_a_table_can_tell(columns: dict[str, Any], says: str) -> None:
    table = running_table()
    admitted = admissions(block_ids=Ragged.of([[], [11]])) if "blocks" in columns else admissions()
    step = plan(admitted=admitted, **columns)
    table.apply(step)
    with pytest.raises(PlanError, match=says):
        table.check(step)


def test_check_lets_a_sound_plan_pass() -> None:
    table = running_table()
    table.apply(plan())
    table.check(plan())


def _set(name: str, value: Any) -> Callable[[RequestTable], None]:
    def change(table: RequestTable) -> None:
        getattr(table, name)[1] = value

    return change


def _change_token(table: RequestTable) -> None:
    table.token_ids[1, 6] += 1


def _change_block(table: RequestTable) -> None:
    table.block_table[1, 1] += 1


def _change_sampling(table: RequestTable) -> None:
    table.sampling["top_k"][1] = 5


@pytest.mark.parametrize(
    "change",
    [
        _set("serial", 99),
        _set("num_prompt_tokens", 2),
        _set("num_computed_tokens", 2),
        _set("num_blocks", 1),
        _set("request_ids", "other"),
        _set("stop_ids", rows(3)),
        _change_token,
        _change_block,
        _change_sampling,
    ],
)
def test_a_digest_tells_every_column(change: Callable[[RequestTable], None]) -> None:
    one, other = running_table(), running_table()
    which, upto = rows(1), rows(7)
    assert one.digest(which, upto) == other.digest(which, upto)
    change(other)
    assert one.digest(which, upto) != other.digest(which, upto)


def test_a_digest_covers_ids_up_to_the_given_length_only() -> None:
    one, other = running_table(), running_table()
    _change_token(other)
    assert one.digest(rows(1), rows(6)) == other.digest(rows(1), rows(6))


def test_a_plan_of_nothing_changes_nothing() -> None:
    table = running_table()
    before = everything(table)
    nothing = StepPlan(0, 0, NO_ROWS, NO_ADMISSIONS, NO_WRITES, NO_WRITES, NO_ROWS, NO_ROWS)
    table.apply(nothing)
    table.check(nothing)
    table.advance(nothing)
    assert everything(table) == before
