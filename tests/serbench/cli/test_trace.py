"""Tests `serbench trace` and `run --trace`: files, ranges, bad input. They do not know the format of traces."""

import gzip
import json
from pathlib import Path

import pytest

from tests.serbench.cli.calling import HERE, QUICK, call, refused


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("traced")
    result = call("run", *HERE, "--repeats", "2", "--trace", "--quiet", folder=folder)
    assert result.exit_code == 0, result.output
    [path] = folder.glob("*.json")
    return path


def test_stamps_are_kept_only_when_asked_for(run: Path, tmp_path: Path) -> None:
    assert sorted(path.name for path in run.parent.iterdir()) == [run.name, f"{run.stem}.spans.npz"]
    call("run", *HERE, folder=tmp_path)
    assert [path.suffix for path in tmp_path.iterdir()] == [".json"]


def test_a_run_by_id_gives_a_trace_beside_it_that_is_no_run(run: Path) -> None:
    result = call("trace", run.stem[:12], "--results", str(run.parent))
    assert result.exit_code == 0, result.output
    target = run.parent / f"{run.stem}.trace.json.gz"
    assert str(target) in result.stdout
    trace = json.loads(gzip.decompress(target.read_bytes()))
    assert trace["otherData"] == {"run": run.stem, "repeat": 0, "model": "sim", "codec": "delta"}
    target.unlink()


def test_repeat_steps_and_file_can_be_chosen(run: Path, tmp_path: Path) -> None:
    target = tmp_path / "deep" / "one.json"
    result = call("trace", str(run), "--repeat", "1", "--steps", "1:2", "--output", str(target))
    assert result.exit_code == 0, result.output
    trace = json.loads(target.read_bytes())
    steps = {e["name"] for e in trace["traceEvents"] if e["ph"] == "X" and e["name"].startswith("step")}
    assert trace["otherData"]["repeat"] == 1
    assert steps == {"step 1", "step 2"}


def test_workers_in_processes_of_their_own_have_tracks(tmp_path: Path) -> None:
    assert call("run", "--model", "sim", "--workers", "2", *QUICK, "--trace", folder=tmp_path).exit_code == 0
    [path] = tmp_path.glob("*.json")
    assert call("trace", str(path), "--output", str(tmp_path / "t.json")).exit_code == 0
    events = json.loads((tmp_path / "t.json").read_bytes())["traceEvents"]
    names = [event["args"]["name"] for event in events if event["name"] == "process_name"]
    assert names == ["scheduler", "transport", "worker 0", "worker 1"]
    assert min(event["ts"] for event in events if event["ph"] == "X" and event["pid"] > 2) > 0  # one clock


def test_bad_input_is_one_line(run: Path, tmp_path: Path) -> None:
    assert "there is no repeat 7" in refused("trace", str(run), "--repeat", "7")
    assert "steps '5-9' are none" in refused("trace", str(run), "--steps", "5-9")
    assert "nothing to show" in refused("trace", str(run), "--steps", "999:")
    assert "neither a file nor a run" in refused("trace", "nosuch", "--results", str(tmp_path))
    assert "can't be written" in refused("trace", str(run), "--output", str(run / "t.json"))
    call("run", *HERE, folder=tmp_path)
    [untraced] = tmp_path.glob("*.json")
    assert "`serbench run --trace` keeps them" in refused("trace", str(untraced))
