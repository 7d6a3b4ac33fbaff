"""Tests `serbench compare` on the simulated model: measured and stored, equal and refused. They assert no times."""

import json
from pathlib import Path

import pytest

from serbench.results import read_run
from tests.serbench.cli.calling import HERE, QUICK, call, refused

SEEDS = ["pickle", "cloudpickle", "msgspec", "delta", "cached", "columnar"]


@pytest.fixture(scope="module")
def stored(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """Runs of three codecs, measured interleaved, by codec."""
    folder = tmp_path_factory.mktemp("stored")
    limits = ("--num-prompts", "8", "--input-len", "64", "--output-len", "16", "--repeats", "4")
    args = ("--model", "sim", "--executor", "inproc", *limits)
    result = call("compare", *args, "--codec", "pickle,delta,columnar", folder=folder)
    assert result.exit_code == 0, result.stderr
    return {read_run(path).spec.codec: path for path in folder.iterdir()}


def test_all_of_the_seeds_are_the_default(tmp_path: Path) -> None:
    result = call("compare", "--model", "sim", *QUICK, folder=tmp_path)
    assert result.exit_code == 0, result.stderr
    assert sorted(read_run(path).spec.codec for path in tmp_path.iterdir()) == sorted(SEEDS)
    for codec in SEEDS:
        assert f" {codec} " in result.stdout
    assert "too few" in result.stdout


def test_bytes_fall_from_codec_to_codec(stored: dict[str, Path]) -> None:
    result = call("compare", *(str(stored[codec]) for codec in ("pickle", "delta", "columnar")), "--json")
    rows = json.loads(result.stdout)["rows"]
    assert rows[0]["plan_bytes"] > rows[1]["plan_bytes"] > rows[2]["plan_bytes"]
    assert rows[2]["plan_bytes_p50"] < 50 < rows[2]["plan_bytes"], "a steady decode step sends almost nothing"
    assert [row["outputs"] for row in rows] == ["not compared", "equal", "equal"]


def test_ratios_have_intervals_and_verdicts(stored: dict[str, Path]) -> None:
    document = json.loads(call("compare", str(stored["pickle"]), str(stored["delta"]), "--json").stdout)
    assert document["schema"] == "serbench/comparison/1"
    first, second = document["rows"]
    assert first["throughput"] is None
    for name in ("throughput", "host", "host_without_adapt"):
        finding = second[name]
        assert finding["low"] < finding["ratio"] < finding["high"]
        assert finding["pairs"] == 4
        assert finding["verdict"] in ("faster", "slower", "no difference shown", "too noisy to tell")
    assert document["warnings"] == []


def test_runs_are_found_by_id(stored: dict[str, Path]) -> None:
    folder = stored["pickle"].parent
    result = call("compare", stored["pickle"].stem, stored["delta"].stem, folder=folder)
    assert result.exit_code == 0
    assert "delta" in result.stdout


def test_a_folder_is_the_runs_in_it(stored: dict[str, Path], tmp_path: Path) -> None:
    document = json.loads(call("compare", str(stored["pickle"].parent), "--json").stdout)
    assert [row["label"] for row in document["rows"]] == ["pickle", "delta", "columnar"]
    changed(stored["pickle"], tmp_path / "a.json")
    assert "one run" in refused("compare", str(tmp_path))
    changed(stored["delta"], tmp_path / "b.json", seed=3)
    line = refused("compare", str(tmp_path))
    assert "seeds, and so prompts, differ" in line
    assert line.endswith(f"`serbench report {tmp_path}` compares those that can be")


def test_an_id_that_isn_t_there_is_refused(stored: dict[str, Path]) -> None:
    line = refused("compare", "nothing", str(stored["delta"]), folder=stored["delta"].parent)
    assert "nothing is neither a file nor a run" in line


def changed(path: Path, to: Path, **changes: object) -> str:
    document = json.loads(path.read_text())
    document["spec"].update(changes)
    to.write_text(json.dumps(document))
    return str(to)


def test_what_can_t_be_compared_is_refused_with_the_reason(stored: dict[str, Path], tmp_path: Path) -> None:
    other = changed(stored["delta"], tmp_path / "other.json", dtype="bfloat16", seed=3)
    line = refused("compare", str(stored["pickle"]), other)
    assert "can't be compared: dtypes differ (float32 and bfloat16); seeds, and so prompts, differ (0 and 3)" in line


def test_another_schema_is_refused(stored: dict[str, Path], tmp_path: Path) -> None:
    other = tmp_path / "other.json"
    other.write_text('{"schema": "somebody/else/7"}')
    line = refused("compare", str(stored["pickle"]), str(other))
    assert "its schema is 'somebody/else/7', this serbench reads 'serbench/run/1'" in line


def test_outputs_that_differ_where_they_must_not_fail(stored: dict[str, Path], tmp_path: Path) -> None:
    document = json.loads(stored["delta"].read_text())
    document["repeats"][2]["outputs_digest"] = "0" * 32
    other = tmp_path / "other.json"
    other.write_text(json.dumps(document))
    result = call("compare", str(stored["pickle"]), str(other))
    assert (result.exit_code, result.stdout) == (1, "")
    ids, error = result.stderr.splitlines()
    assert stored["pickle"].stem in ids
    assert error.startswith("serbench: outputs of pickle and delta differ in group 2")


def test_a_run_is_not_compared_with_itself(stored: dict[str, Path], tmp_path: Path) -> None:
    copy = tmp_path / "copy.json"
    copy.write_bytes(stored["delta"].read_bytes())
    for other in (stored["delta"], copy):
        line = refused("compare", str(stored["delta"]), str(other))
        assert f"{stored['delta'].stem} can't be compared with itself" in line
        assert "--aa" in line


def hostile(path: Path, to: Path, model: str) -> str:
    """A stored run whose names hold what clears a terminal and sets its title."""
    escapes = "\x1b[2J\x1b]0;title\x07"
    document = json.loads(path.read_text())
    document["id"] += escapes
    document["spec"].update(model=model + escapes, codec=document["spec"]["codec"] + escapes)
    document["warnings"] = [escapes]
    to.write_text(json.dumps(document))
    return str(to)


def test_names_in_a_file_do_not_command_the_terminal(stored: dict[str, Path], tmp_path: Path) -> None:
    first = hostile(stored["pickle"], tmp_path / "a.json", "one")
    line = refused("compare", first, hostile(stored["delta"], tmp_path / "b.json", "another"))
    result = call("compare", first, hostile(stored["delta"], tmp_path / "b.json", "one"))
    assert result.exit_code == 0, result.stderr
    assert not {"\x1b", "\x07"} & set(line + result.stdout + result.stderr)
    assert "models differ (one�[2J" in line
    assert "delta�[2J" in result.stdout


def test_a_codec_against_itself(tmp_path: Path) -> None:
    result = call("compare", *HERE, "--codec", "delta,delta", folder=tmp_path)
    assert result.exit_code == 0
    assert "delta #1" in result.stdout
    assert "delta #2" in result.stdout


def test_none_can_be_compared_in_one_process(tmp_path: Path) -> None:
    result = call("compare", *HERE, "--codec", "none,delta", "--json", folder=tmp_path)
    assert result.exit_code == 0, result.stderr
    rows = json.loads(result.stdout)["rows"]
    assert (rows[0]["plan_bytes"], rows[0]["result_bytes"]) == (0, 0)
    assert rows[1]["plan_bytes"] > 0
