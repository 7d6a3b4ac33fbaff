"""Tests which runs a report finds, and what it says of what it can't read. They do not know what a report shows."""

import json
from pathlib import Path

import msgspec
import pytest

from serbench.errors import ResultsError
from serbench.report.stored_runs import gather_runs
from serbench.results import Run, store_run
from serbench.spans import SUFFIX
from tests.serbench.report.grids import measured


@pytest.fixture
def runs(tmp_path: Path) -> list[Run]:
    return measured(tmp_path / "runs", ["pickle", "delta"])


def ids(names: list[str], folder: Path) -> list[str]:
    return [run.id for run in gather_runs(names, folder).runs]


def test_by_id_by_file_and_by_folder(runs: list[Run], tmp_path: Path) -> None:
    folder = tmp_path / "runs"
    every = sorted(run.id for run in runs)
    assert ids([runs[0].id], folder) == [runs[0].id]
    assert ids([str(folder / f"{runs[1].id}.json")], tmp_path) == [runs[1].id]
    assert sorted(ids([str(folder)], tmp_path)) == every
    assert sorted(ids([str(tmp_path)], tmp_path)) == every  # a folder further down


def test_the_same_run_named_twice_is_one(runs: list[Run], tmp_path: Path) -> None:
    assert len(ids([str(tmp_path / "runs"), runs[0].id, runs[0].id], tmp_path / "runs")) == 2


def test_time_stamps_that_a_wildcard_names_are_passed_over(runs: list[Run], tmp_path: Path) -> None:
    folder = tmp_path / "runs"
    for run in runs:
        (folder / f"{run.id}{SUFFIX}").write_bytes(b"")
    named = sorted(map(str, folder.iterdir()))
    assert len(named) == 2 * len(runs)
    assert ids(named, tmp_path) == ids([str(folder)], tmp_path)
    with pytest.raises(ResultsError, match="neither a file nor a run"):
        ids([*named, f"nowhere{SUFFIX}"], tmp_path)


def test_other_documents_of_a_folder_are_passed_over(runs: list[Run], tmp_path: Path) -> None:
    folder = tmp_path / "runs"
    (folder / "manifest.json").write_text(json.dumps({"schema": "serbench/sweep/1", "points": []}))
    (folder / "comparison.json").write_text(json.dumps({"schema": "serbench/comparison/1"}))
    (folder / "notes.json").write_text("[1, 2]")
    (folder / ".half.json.x1.json").write_text("{")
    gathered = gather_runs([str(folder)], tmp_path)
    assert len(gathered.runs) == 2
    assert gathered.left_out == []


def test_what_can_t_be_read_is_told_and_the_rest_is_read(runs: list[Run], tmp_path: Path) -> None:
    folder = tmp_path / "runs"
    whole = (folder / f"{runs[0].id}.json").read_bytes()
    (folder / "torn.json").write_bytes(whole[: len(whole) // 2])
    (folder / "future.json").write_text(json.dumps({"schema": "serbench/run/9"}))
    store_run(msgspec.structs.replace(runs[0], id="begun", repeats=[]), folder)
    gathered = gather_runs([str(folder)], tmp_path)
    assert len(gathered.runs) == 2
    told = "\n".join(gathered.left_out)
    for words in ("torn.json is no stored run", "future.json: its schema is 'serbench/run/9'", "begun has no repeats"):
        assert words in told


def test_points_of_a_sweep_that_failed_are_told(runs: list[Run], tmp_path: Path) -> None:
    failure = {"point": "007-sim-8-zstd", "reason": "no such codec", "repeats": 1, "at": "2026-01-01T00:00:00Z"}
    (tmp_path / "sweep.json").write_text(json.dumps({"schema": "serbench/sweep/1", "failures": [failure]}))
    assert gather_runs([str(tmp_path)], tmp_path).left_out == ["007-sim-8-zstd failed after 1 repeat: no such codec"]
    (tmp_path / "sweep.json").write_text(json.dumps({"schema": "serbench/sweep/1", "failures": 3}))
    assert "which points failed can't be read" in gather_runs([str(tmp_path)], tmp_path).left_out[0]


def test_a_named_file_that_is_no_run_is_an_error(runs: list[Run], tmp_path: Path) -> None:
    (tmp_path / "manifest.json").write_text(json.dumps({"schema": "serbench/sweep/1"}))
    with pytest.raises(ResultsError, match="serbench/sweep/1"):
        gather_runs([str(tmp_path / "manifest.json")], tmp_path)


def test_nothing_to_report_on_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(ResultsError, match="no run with repeats"):
        gather_runs([str(tmp_path)], tmp_path)
    with pytest.raises(ResultsError, match="neither a file nor a run"):
        gather_runs(["nosuch"], tmp_path)
