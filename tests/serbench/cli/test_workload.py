"""Tests `serbench workload`, and runs of files over time, from the command line. They assert no times."""

import json
from pathlib import Path

import pytest
from tokenizers import Tokenizer
from tokenizers.models import BPE

from serbench.results import read_run
from tests.serbench.cli.calling import call, refused

TRACE = "Timestamp,Model,Request tokens,Response tokens,Total tokens,Log Type\n" + "".join(
    f"{i},ChatGPT,{0 if i % 7 == 3 else 20 + i},{2 + i % 3},1,Conversation log\n" for i in range(21)
)
QUICK = ("--model", "sim", "--executor", "inproc", "--repeats", "1", "--warmup", "0")


@pytest.fixture
def trace(tmp_path: Path) -> Path:
    (tmp_path / "trace.csv").write_text(TRACE)
    return tmp_path / "trace.csv"


def test_a_file_is_described(trace: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "60")
    result = call("workload", str(trace))
    assert result.exit_code == 0
    assert max(map(len, result.stdout.splitlines())) <= 60
    page = " ".join(result.stdout.split())
    for words in ("a BurstGPT trace (CSV): 18 requests", "input tokens", "█", "requests/s", "3 rows left out"):
        assert words in page
    assert "3 a length below 1 token (lines 5, 12, 19)" in page


def test_lengths_are_in_what_was_asked_for(trace: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "200")
    (tmp_path / "texts").write_text("a b\n")
    folder = tmp_path / "mine"
    folder.mkdir()
    Tokenizer(BPE({chr(code): code for code in range(256)}, [])).save(str(folder / "tokenizer.json"))
    counted = call("workload", str(tmp_path / "texts"), "--tokenizer", str(folder)).stdout
    assert f"lengths in tokens of {folder}" in " ".join(counted.split())
    assert "input tokens" in counted
    text = call("workload", str(tmp_path / "texts")).stdout
    assert "lengths in bytes of UTF-8" in text
    assert "input bytes" in text
    assert "token" not in text.partition("output length")[0]
    assert "lengths in tokens, the trace's own" in call("workload", str(trace)).stdout


def test_many_rows_left_out_are_written_with_their_thousands_and_nothing_is_no_line(tmp_path: Path) -> None:
    head, *rows = TRACE.splitlines()
    rows = [row for row in rows if ",0," not in row]
    (tmp_path / "few.csv").write_text("\n".join([head, *rows]))
    assert not call("workload", str(tmp_path / "few.csv")).stdout.endswith("\n\n")
    (tmp_path / "many.csv").write_text("\n".join([head, rows[0], *["5,ChatGPT,5000,9,9,x"] * 1015]))
    page = " ".join(call("workload", str(tmp_path / "many.csv"), "--max-model-len", "2048").stdout.split())
    assert "1,015 rows left out: 1,015 longer than the limit of 2,048 tokens" in page
    assert "and 1,010 more" in page


def test_json_is_the_document_and_nothing_else(trace: Path) -> None:
    document = json.loads(call("workload", str(trace), "--json").stdout)
    assert (document["schema"], document["format"], document["usable"]) == ("serbench/workload/1", "burstgpt", 18)
    assert document["rate"]["span_s"] == 20
    assert document["left_out"] == [{"reason": "a length below 1 token", "rows": 3, "lines": [5, 12, 19]}]


def test_files_that_are_none_are_one_line(trace: Path, tmp_path: Path) -> None:
    assert "lines 5, 12, 19" in refused("workload", str(trace), "--strict")
    assert "there is no such file" in refused("workload", str(tmp_path / "none"))
    assert ":1: not JSON" in refused("workload", str(trace), "--dataset-format", "mooncake")
    (tmp_path / "result.json").write_text('{"schema": "serbench/run/1", "repeats": []}')
    assert "a run stored by serbench" in refused("workload", str(tmp_path / "result.json"))


def test_every_public_file_is_described_or_refused(shared_data: Path) -> None:
    for path in sorted(shared_data.rglob("*")):
        if path.is_file() and path.stat().st_size < 100_000 and "models" not in path.parts:
            result = call("workload", str(path))
            assert result.exit_code in (0, 2), path
            assert result.exit_code == 0 or len(result.stderr.splitlines()) == 1, path
            assert (result.exit_code == 2) == ("results" in path.parts), path


def test_a_trace_runs_by_its_clock_and_zero_lengths_do_not_run(trace: Path, tmp_path: Path) -> None:
    args = ("--dataset", str(trace), "--num-prompts", "30", "--arrivals", "trace", "--time-scale", "0.01")
    result = call("run", *QUICK, *args, folder=tmp_path / "runs")
    assert result.exit_code == 0, result.output
    [path] = (tmp_path / "runs").iterdir()
    run = read_run(path)
    [repeat] = run.repeats
    assert repeat.input_tokens == sum(20 + i for i in range(21) if i % 7 != 3)
    assert repeat.output_tokens == sum(2 + i % 3 for i in range(21) if i % 7 != 3)
    assert repeat.arrivals is not None
    assert repeat.arrivals.offered_per_s == pytest.approx(17 / 0.2)
    assert any("3 a length below 1 token" in line for line in run.warnings)
    assert any("gave 18 prompts, not the 30 asked for" in line for line in run.warnings)
    assert "arrivals by the file's clock × 0.01" in result.stdout
    assert "requests/s were to arrive" in result.stdout


def test_things_compared_get_the_same_prompts_at_the_same_times(tmp_path: Path) -> None:
    args = ("--num-prompts", "6", "--input-len", "8", "--output-len", "4", "--repeats", "4", "--request-rate", "500")
    result = call(
        "compare", "--model", "sim", "--executor", "inproc", "--codec", "pickle,delta", *args, folder=tmp_path
    )
    assert result.exit_code == 0, result.output
    first, second = (read_run(path) for path in tmp_path.iterdir())
    for mine, theirs in zip(first.repeats, second.repeats, strict=True):
        assert mine.outputs_digest == theirs.outputs_digest
        assert mine.arrivals is not None
        assert theirs.arrivals is not None
        assert mine.arrivals.offered_per_s == theirs.arrivals.offered_per_s
    assert len({one.arrivals.offered_per_s for one in first.repeats if one.arrivals}) == 4
