"""Tests reading traces: exact times, lengths, both layouts of BurstGPT, rows that are no requests, shared prefixes."""

import gzip
import json
import re
from pathlib import Path

import numpy as np
import pytest

from serbench.errors import DatasetError, ExperimentError
from serbench.workload.base import Workload
from serbench.workload.build import make_workload
from serbench.workload.formats import read_rows
from serbench.workload.rows import TraceRow, Unusable
from serbench.workload.spec import Arrivals, Dataset, LengthRange
from serbench.workload.traces import mooncake_row, scaled_ns, stamp_ns
from serbench_engine.models.config import ResolvedModel, SimConfig, WeightsSource
from tests.serbench.mocks import Bytes

MODEL = ResolvedModel("sim", SimConfig(vocab_size=300, eos_token_ids=(7,)), WeightsSource("sim"), "sim")

AZURE = "TIMESTAMP,ContextTokens,GeneratedTokens\r\n2023-11-16 18:17:03.9799600,4808,10\r\n2023-11-16 18:17:04.0,3,8"
BURSTGPT = "Timestamp,Model,Request tokens,Response tokens,Total tokens,Log Type\n5,ChatGPT,472,18,490,Conversation log"
BURSTGPT_SESSIONS = (
    "Timestamp,Session ID,Elapsed time,Model,Request tokens,Response tokens,Total tokens,Log Type\n"
    '5.5,"a,b",1.25,ChatGPT,472,18,490,Conversation log\n'
)

FAR = "TIMESTAMP,ContextTokens,GeneratedTokens\n0001-01-01 00:00:00,8,1\n9999-12-31 23:59:59,8,1\n"
GAP = (
    '{"timestamp": 0, "input_length": 8, "output_length": 1}\n'
    '{"timestamp": 31536000000, "input_length": 8, "output_length": 1}\n'
)


def make(path: Path, *, limit: int = 10_000, arrivals: Arrivals = Arrivals(), **options: object) -> Workload:  # noqa: B008
    spec = Dataset(path=str(path), **options)  # type: ignore[arg-type]
    return make_workload(spec, seed=3, model=MODEL, text=Bytes(), max_model_len=limit, arrivals=arrivals)


# --- times ---------------------------------------------------------------------------------------------------------


def test_ticks_are_exact() -> None:
    earlier, later = stamp_ns("2023-11-16 18:17:03.9799600"), stamp_ns("2023-11-16 18:31:17.0593071")
    assert later - earlier == 853_079_347_100
    assert earlier % 10**9 == 979_960_000
    assert stamp_ns("1970-01-01 00:00:01") == 10**9
    assert stamp_ns("1970-01-01T01:00:00.000000001+01:00") == 1
    assert stamp_ns("1969-12-31 23:59:59.9") == -100_000_000


def test_numbers_are_exact() -> None:
    assert scaled_ns("37274", 10**9) == 37_274 * 10**9
    assert scaled_ns("0.1", 10**9) == 100_000_000
    assert scaled_ns(532_806, 10**6) == 532_806_000_000


@pytest.mark.parametrize("text", ["", "x", "2023-11-16", "2023-13-16 18:17:03", "2023-11-16 25:17:03", "17:03", "12"])
def test_stamps_that_are_none(text: str) -> None:
    with pytest.raises(Unusable, match="its time is none"):
        stamp_ns(text)


@pytest.mark.parametrize("value", ["", "x", "nan", "inf", "-inf", "1e99", "1e999999999", None, True, [1]])
def test_numbers_that_are_no_time(value: object) -> None:
    with pytest.raises(Unusable, match="its time is none"):
        scaled_ns(value, 10**9)


# --- rows ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("pack", [bytes, gzip.compress])
@pytest.mark.parametrize(
    ("content", "form", "row"),
    [
        (AZURE, "azure", TraceRow(2, stamp_ns("2023-11-16 18:17:03.97996"), 4808, 10)),
        ("\ufeff" + AZURE + "\r\n", "azure", TraceRow(2, stamp_ns("2023-11-16 18:17:03.97996"), 4808, 10)),
        (BURSTGPT, "burstgpt", TraceRow(2, 5 * 10**9, 472, 18)),
        (BURSTGPT_SESSIONS, "burstgpt", TraceRow(2, 5_500_000_000, 472, 18)),
        (
            '{"timestamp": 27, "input_length": 600, "output_length": 5, "hash_ids": [46, 47]}',
            "mooncake",
            TraceRow(1, 27_000_000, 600, 5, (46, 47)),
        ),
    ],
)
def test_layouts(tmp_path: Path, content: str, form: str, row: TraceRow, pack: type[bytes]) -> None:
    (tmp_path / "trace").write_bytes(pack(content.encode()))
    found = read_rows(tmp_path / "trace")
    assert (found.format, found.rows[0], found.left_out) == (form, row, {})


def test_rows_that_are_no_requests_are_counted_by_reason(tmp_path: Path) -> None:
    rows = ["7,M,5,1,6,L", "6,M,0,0,0,L", "6,M,5,0,5,L", "6,M,-5,1,6,L", "6,M,5.5,1,6,L", "6,M,x,1,6,L", "x,M,5,1,6,L"]
    (tmp_path / "trace").write_text("\n".join([BURSTGPT, *rows, "6,M,5", "", "6,M,8.0,1,9,L"]))
    found = read_rows(tmp_path / "trace")
    assert [(row.line, row.arrival_ns // 10**9) for row in found.rows if isinstance(row, TraceRow)] == [
        (2, 5),
        (12, 6),
        (3, 7),
    ]
    assert found.left_out == {
        "a length below 1 token": [4, 5, 6],
        "a length that is no whole number": [7, 8],
        "its time is none": [9],
        "of the wrong number of columns": [10],
    }


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"hash_ids": [1]}, "hash_ids does not fit input_length"),
        ({"hash_ids": ["a", "b"]}, "hash_ids is no list of whole numbers"),
        ({"hash_ids": 3}, "hash_ids is no list of whole numbers"),
        ({"input_length": True}, "a length that is no whole number"),
        ({"output_length": 1e300}, "a length that is no whole number"),
        ({"output_length": "1e999999999"}, "a length that is no whole number"),
        ({"output_length": "-1e999999999"}, "a length that is no whole number"),
        ({"output_length": "1e-999999999"}, "a length that is no whole number"),
        ({"timestamp": "1e-999999999999999999999"}, "its time is none"),
        ({"output_length": -1}, "a length below 1 token"),
        ({"timestamp": None}, "its time is none"),
    ],
)
def test_rows_of_mooncake_that_are_no_requests(changes: dict[str, object], reason: str) -> None:
    row = {"timestamp": 0, "input_length": 600, "output_length": 5, "hash_ids": [46, 47]}
    assert mooncake_row(1, row).block_ids == (46, 47)
    assert mooncake_row(1, {**row, "hash_ids": []}).block_ids == ()
    with pytest.raises(Unusable, match=reason):
        mooncake_row(1, {**row, **changes})


def test_a_header_that_lacks_a_column(tmp_path: Path) -> None:
    (tmp_path / "trace").write_text("TIMESTAMP,ContextTokens\n2023-11-16 18:17:03,5\n")
    with pytest.raises(DatasetError, match="no column generatedtokens, which an Azure"):
        read_rows(tmp_path / "trace", "azure")


# --- requests ------------------------------------------------------------------------------------------------------


def mooncake(path: Path, *rows: tuple[int, int, int, list[int]]) -> Path:
    names = ("timestamp", "input_length", "output_length", "hash_ids")
    path.write_text("\n".join(json.dumps(dict(zip(names, row, strict=True))) for row in rows))
    return path


def test_equal_names_of_blocks_are_equal_tokens(tmp_path: Path) -> None:
    path = mooncake(
        tmp_path / "trace", (0, 1000, 2, [0, 1]), (5, 1024, 2, [0, 1]), (9, 700, 2, [0, 2]), (9, 600, 2, [3, 1])
    )
    first, again, other, moved = (one.prompt_token_ids for one in make(path).requests(0))
    assert (len(first), len(again), len(other), len(moved)) == (1000, 1024, 700, 600)
    assert np.array_equal(first, again[:1000])
    assert np.array_equal(first[:512], other[:512])
    assert not np.array_equal(first[512:700], other[512:])
    assert np.array_equal(moved[512:], first[512:600])
    assert first.dtype == np.int32
    assert 7 not in first


def test_groups_have_the_same_lengths_and_times_and_other_tokens(tmp_path: Path) -> None:
    path = mooncake(tmp_path / "trace", (3, 1000, 2, [0, 1]), (5, 20, 9, []))
    workload = make(path, arrivals=Arrivals(kind="trace"))
    one, two = workload.requests(0), workload.requests(1)
    assert [request.arrives_ns for request in one] == [request.arrives_ns for request in two] == [0, 2_000_000]
    assert [request.due_tokens for request in one] == [request.due_tokens for request in two] == [2, 9]
    for a, b, again in zip(one, two, make(path).requests(0), strict=True):
        assert len(a.prompt_token_ids) == len(b.prompt_token_ids)
        assert not np.array_equal(a.prompt_token_ids, b.prompt_token_ids)
        assert np.array_equal(a.prompt_token_ids, again.prompt_token_ids)


def test_the_clock_can_be_scaled_or_left_out(tmp_path: Path) -> None:
    path = mooncake(tmp_path / "trace", (3, 10, 2, []), (5, 20, 9, []))
    slow = make(path, arrivals=Arrivals(kind="trace", time_scale=2.5)).requests(0)
    assert [request.arrives_ns for request in slow] == [0, 5_000_000]
    assert [request.arrives_ns for request in make(path).requests(0)] == [0, 0]


@pytest.mark.parametrize(
    ("content", "told"),
    [
        (FAR, "far:3: it arrives 315,537,897,599 s after the request before"),
        (
            GAP,
            "far:2: it arrives 31,536,000 s after the request before, and --arrivals trace waits for 1,000 s at most",
        ),
    ],
)
def test_a_clock_that_would_be_waited_for_is_refused(content: str, told: str, tmp_path: Path) -> None:
    (tmp_path / "far").write_text(content)
    with pytest.raises(ExperimentError, match=re.escape(told)):
        make(tmp_path / "far", arrivals=Arrivals(kind="trace"))
    assert len(make(tmp_path / "far").requests(0)) == 2
    fewer = make(tmp_path / "far", num_prompts=1, arrivals=Arrivals(kind="trace"))
    assert [one.arrives_ns for one in fewer.requests(0)] == [0]


def test_a_gap_counts_as_long_as_it_is_waited_for(tmp_path: Path) -> None:
    (tmp_path / "far").write_text(GAP)
    [_, second] = make(tmp_path / "far", arrivals=Arrivals(kind="trace", time_scale=1e-5)).requests(0)
    assert second.arrives_ns == 315_360_000_000


def test_rows_over_the_limit_make_room_for_others(tmp_path: Path) -> None:
    path = mooncake(tmp_path / "trace", (0, 60, 50, []), (1, 60, 40, []), (2, 99, 1, []), (3, 100, 1, []))
    workload = make(path, limit=100, num_prompts=2)
    assert [len(request.prompt_token_ids) for request in workload.requests(0)] == [60, 99]
    assert workload.notes() == [f"{path}: rows left out: 1 longer than the limit of 100 tokens (line 1)"]
    assert len(make(path, limit=100, num_prompts=9, output_len=LengthRange(1, 1)).requests(0)) == 3
    with pytest.raises(ExperimentError, match="none of its rows can be used: 4 longer than the limit of 20"):
        make(path, limit=20)


def test_strict_names_the_lines(tmp_path: Path) -> None:
    path = mooncake(tmp_path / "trace", (0, 60, 50, []), (1, 0, 40, []), (2, 9, 1, []), (3, 100, 1, []))
    assert len(make(path, limit=100, num_prompts=1).requests(0)) == 1
    with pytest.raises(DatasetError) as refused:
        make(path, limit=100, num_prompts=1, strict=True)
    assert str(refused.value).endswith(
        "rows can't be used: 1 a length below 1 token (line 2); 2 longer than the limit of 100 tokens (lines 1, 4)"
    )
    assert make(mooncake(tmp_path / "good", (0, 9, 1, [])), limit=100, strict=True).requests(0)


def test_only_traces_have_a_clock(tmp_path: Path) -> None:
    (tmp_path / "texts").write_text("one\ntwo\n")
    with pytest.raises(ExperimentError, match="plain text, one prompt a line, which has none: give a --request-rate"):
        make(tmp_path / "texts", arrivals=Arrivals(kind="trace"))
