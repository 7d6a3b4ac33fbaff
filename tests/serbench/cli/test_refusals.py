"""Tests what commands do where payloads were refused: they store and show the run, and fail with one line."""

import json
from pathlib import Path

import pytest

from serbench.results import read_run
from tests.serbench.cli.calling import HERE, call, one_line
from tests.serbench.planted_codec import Planted

TIRED = "tests.serbench.planted_codec:CODEC"
LINE = (
    "codec {codec} by inproc: 2 payloads refused, first: worker 0 refused the payload of step 3 in epoch 0: "
    "MalformedPayloadError: tired. Nothing garbled them: the codec or the transport is wrong"
)


@pytest.fixture(autouse=True)
def _tired(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Planted, "lasts", 3)


def test_a_run_is_stored_and_fails(tmp_path: Path) -> None:
    result = call("run", *HERE, "--repeats", "2", "--codec", TIRED, folder=tmp_path)
    assert result.exit_code == 1
    assert one_line(result.stderr) == f"serbench: {LINE.format(codec=TIRED)}"
    assert "the whole step" in result.stdout
    assert "refused" not in result.stdout
    [path] = tmp_path.iterdir()
    run = read_run(path)
    assert [repeat.recoveries for repeat in run.repeats] == [1, 1]
    assert len([line for line in run.warnings if "refused" in line]) == 1


def test_a_comparison_marks_the_row_and_fails(tmp_path: Path) -> None:
    result = call("compare", *HERE, "--repeats", "2", "--codec", f"pickle,{TIRED}", folder=tmp_path)
    assert result.exit_code == 1
    assert one_line(result.stderr) == f"serbench: {LINE.format(codec=TIRED)}"
    assert "outputs equal" in result.stdout
    assert result.stdout.count("REFUSED") == 1
    runs = [str(path) for path in sorted(tmp_path.iterdir(), key=lambda path: read_run(path).spec.codec)]
    again = call("compare", *runs, "--json")
    assert again.exit_code == 1
    assert [row["refused"] for row in json.loads(again.stdout)["rows"]] == [0, 2]


def test_a_sweep_goes_on_and_fails_at_its_end(tmp_path: Path) -> None:
    result = call("sweep", *HERE, "--repeats", "2", "--codec", f"{TIRED},pickle", "--quiet", folder=tmp_path)
    assert result.exit_code == 1
    assert one_line(result.stderr) == f"serbench: {LINE.format(codec=TIRED)}"
    assert "2 of 2 points done" in result.stdout


def test_no_baseline_is_made_of_it(tmp_path: Path) -> None:
    path = tmp_path / "base.json"
    result = call("check", str(path), "--update", "--no-times", *HERE, "--codec", TIRED)
    assert result.exit_code == 1
    assert "1 payload refused" in one_line(result.stderr)
    assert not path.exists()
