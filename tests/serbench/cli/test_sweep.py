"""Tests `serbench sweep` on the simulated model: killed and resumed, from options and from a file, refused and failed.

They assert no times.
"""

import json
import os
import random
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import click.testing
import pytest

from serbench.cli.commands import cli
from serbench.results import read_run
from tests.serbench.cli.calling import full_after, one_line

TINY = ("--model", "sim", "--executor", "inproc", "--output-len", "4", "--warmup", "0")
GRID = (*TINY, "--codec", "pickle,delta", "--num-prompts", "4,8", "--input-len", "8,16", "--repeats", "4")
PASSES = 2 * 2 * 2 * 4
OF_TIME = ("output_tokens_per_s", "host_us_per_step", "host_us_without_adapt", "throughput", "host")
PROGRAM = "from serbench.cli.main import main; main()"


def sweep(folder: Path, *args: str) -> click.testing.Result:
    return click.testing.CliRunner().invoke(
        cli, ["sweep", *args, "--output", str(folder)], catch_exceptions=False, prog_name="serbench"
    )


def rows_of(document: str) -> list[dict[str, Any]]:
    """The rows without what times say."""
    rows: list[dict[str, Any]] = json.loads(document)["rows"]
    for row in rows:
        for name in (*OF_TIME, "host_without_adapt"):
            del row["figures"][name]
    return rows


def stored(folder: Path) -> dict[tuple[str, int], float]:
    """The wall time of every stored repeat: no two passes take the same."""
    return {
        (path.stem, repeat.group): repeat.wall_s
        for path in folder.glob("sweep-*/runs/*.json")
        for repeat in read_run(path).repeats
    }


def killed_once_it_has(repeats: int, folder: Path, environment: dict[str, str]) -> None:
    """Start the sweep and kill it at once when more repeats are stored, wherever it is then."""
    command = [sys.executable, "-c", PROGRAM, "sweep", *GRID, "--output", str(folder)]
    with subprocess.Popen(
        command, env=environment, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, start_new_session=True
    ) as process:
        while process.poll() is None and len(stored(folder)) < repeats:
            time.sleep(0.005)  # leave the core to it
        os.killpg(process.pid, signal.SIGKILL)


@pytest.mark.timeout(240)
def test_killed_again_and_again_the_table_is_that_of_an_undisturbed_sweep(tmp_path: Path) -> None:
    undisturbed = sweep(tmp_path / "a", *GRID, "--json")
    assert undisturbed.exit_code == 0, undisturbed.stderr
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    rng, kept, kills = random.Random(0), dict[tuple[str, int], float](), 0
    while kills < 4:
        killed_once_it_has(len(kept) + rng.randint(1, 5), tmp_path / "b", environment)
        now = stored(tmp_path / "b")
        assert {key: now[key] for key in kept} == kept  # no stored repeat was made again
        kept, kills = now, kills + 1
    assert len(kept) < PASSES, "the last kill came too late to test anything"
    resumed = sweep(tmp_path / "b", *GRID, "--json")
    assert resumed.exit_code == 0, resumed.stderr
    assert f"{len(kept)} of {PASSES} are there already" in resumed.stderr
    assert rows_of(resumed.stdout) == rows_of(undisturbed.stdout)
    now = stored(tmp_path / "b")
    assert len(now) == PASSES
    assert {key: now[key] for key in kept} == kept
    assert not list((tmp_path / "b").rglob(".*.json.*")), "a half-written file was left behind"


def test_the_table_has_a_row_a_point_with_what_it_is_compared_with(tmp_path: Path) -> None:
    result = sweep(tmp_path, *TINY, "--codec", "pickle,delta", "--num-prompts", "4,8", "--repeats", "4", "--json")
    assert result.exit_code == 0, result.stderr
    document = json.loads(result.stdout)
    assert document["schema"] == "serbench/sweep-table/1"
    assert [(row["values"]["num_prompts"], row["values"]["codec"]) for row in document["rows"]] == [
        ("4", "pickle"), ("4", "delta"), ("8", "pickle"), ("8", "delta"),
    ]  # fmt: skip
    assert [row["reference"] for row in document["rows"]] == [None, "000-4-pickle", None, "002-8-pickle"]
    for row in document["rows"][1::2]:
        assert row["figures"]["throughput"]["pairs"] == 4
    shown = sweep(tmp_path, *TINY, "--codec", "pickle,delta", "--num-prompts", "4,8", "--repeats", "4").stdout
    assert "4 of 4 points done" in shown
    assert "×" in shown


def test_a_grid_comes_from_a_file_and_the_command_line_comes_first(tmp_path: Path) -> None:
    file = tmp_path / "grid.toml"
    file.write_text(
        'model = "sim"\nexecutor = "inproc"\ncodec = ["pickle", "delta"]\nnum-prompts = [4, 8]\noutput_len = 4\n'
        "enable-prefix-caching = [false, true]\nrepeats = 9\nwarmup = 0\n"
    )
    result = sweep(tmp_path, "--grid", str(file), "--repeats", "1", "--codec", "delta", "--json")
    assert result.exit_code == 0, result.stderr
    rows = json.loads(result.stdout)["rows"]
    assert [row["values"] for row in rows] == [
        {"num_prompts": prompts, "enable_prefix_caching": caching, "codec": "delta"}
        for prompts in ("4", "8")
        for caching in ("False", "True")
    ]
    assert {row["repeats"] for row in rows} == {1}


def test_a_point_that_can_t_be_is_told_and_the_rest_is_measured(tmp_path: Path) -> None:
    result = sweep(tmp_path, *TINY, "--input-len", "8,70000", "--repeats", "1", "--json")
    assert result.exit_code == 1
    rows = json.loads(result.stdout)["rows"]
    assert [row["state"] for row in rows] == ["done", "failed"]
    assert "--input-len 70000 leaves no room" in rows[1]["note"]
    assert "001-70000 failed" in result.stderr


@pytest.mark.parametrize(
    ("args", "told"),
    [
        (("--codec", "pickle,dleta"), "no codec 'dleta'. Did you mean delta?"),
        (("--codec", "delta,delta"), "--codec has delta twice"),
        (("--max-num-seqs", "16,x"), "'x' is no whole number"),
        (("--max-num-seqs", "16,,32"), "'16,,32' has an empty value"),
        (("--repeats", "4,5"), "'4,5' is no whole number"),
        (("--input-len", "70000,80000"), "--input-len 70000 leaves no room"),
        (("--name", "../mine"), "--name '../mine' can't name a folder"),
        (("--grid", "nowhere.toml"), "--grid nowhere.toml can't be read: No such file or directory"),
    ],
)
def test_what_no_point_could_be_is_bad_input(args: tuple[str, ...], told: str, tmp_path: Path) -> None:
    result = sweep(tmp_path, *TINY, *args)
    assert (result.exit_code, result.stdout) == (2, "")
    assert told in one_line(result.stderr)
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("codec = [", "is no TOML"),
        ("kodec = 'delta'", "there is no option 'kodec'; did you mean codec?"),
        ("repeats = [1, 2]", "repeats holds for the whole sweep"),
        ("num-prompts = [4, true]", "True is no whole number"),
        ("request-rate = inf", "inf is out of range; write one from 0.001 to 1,000,000"),
        ("[model]\nname = 'sim'", "model is a table"),
    ],
)
def test_a_grid_file_that_makes_no_sense_is_bad_input(text: str, told: str, tmp_path: Path) -> None:
    (tmp_path / "grid.toml").write_text(text)
    result = sweep(tmp_path, "--grid", str(tmp_path / "grid.toml"))
    assert result.exit_code == 2
    assert told in one_line(result.stderr)


def test_results_are_on_disk_before_anything_is_drawn(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(_: object) -> object:
        raise RuntimeError("no table today")

    monkeypatch.setattr("serbench.report.sweep_table.sweep_report", broken)
    with pytest.raises(RuntimeError):
        sweep(tmp_path, *TINY, "--num-prompts", "4,8", "--repeats", "2")
    assert len(stored(tmp_path)) == 4
    monkeypatch.undo()
    again = sweep(tmp_path, *TINY, "--num-prompts", "4,8", "--repeats", "2")
    assert "4 of 4 are there already" in again.stderr
    assert "2 of 2 points done" in again.stdout
    assert all(len(line) <= 80 for line in again.stdout.splitlines() if "Stored in" not in line)


def test_a_full_disk_is_told_with_what_is_really_kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("serbench.results.write_atomically", full_after(3))
    result = sweep(tmp_path, *TINY, "--num-prompts", "4,8", "--repeats", "4", "--quiet")
    kept, error = result.stderr.splitlines()
    assert kept.startswith("3 of 8 repeats are kept in ")
    assert error.endswith("can't be written: No space left on device")
    assert result.exit_code == 1
    assert len(stored(tmp_path)) == 3


def test_a_name_that_another_sweep_has_is_refused(tmp_path: Path) -> None:
    assert sweep(tmp_path, *TINY, "--repeats", "1", "--name", "mine").exit_code == 0
    result = sweep(tmp_path, *TINY, "--repeats", "2", "--name", "mine")
    assert result.exit_code == 2
    assert "sweep-mine holds another sweep, begun 20" in one_line(result.stderr)
