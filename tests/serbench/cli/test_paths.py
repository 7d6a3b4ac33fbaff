"""Tests what commands do with paths that they can't use: outputs that are inputs, locked folders.

They do not know what is measured.
"""

import errno
import os
import re
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

import pytest

from serbench.errors import ResultsError
from serbench.paths import check_can_replace, check_can_write
from tests.serbench.cli.calling import HERE, call, one_line, refused

ROOT: Final = Path(__file__).resolve().parents[3]


@pytest.fixture(scope="module")
def stored(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a traced run ``a.json``, a baseline ``b.json`` that reads ``ds.jsonl``, and that."""
    folder = tmp_path_factory.mktemp("stored")
    (folder / "ds.jsonl").write_text('{"prompt": "abc"}\n' * 4)
    assert call("run", *HERE, "--trace", "-q", folder=folder / "runs").exit_code == 0
    [path] = (folder / "runs").glob("*.json")
    shutil.copy(path, folder / "a.json")
    shutil.copy(path.with_name(f"{path.stem}.spans.npz"), folder / "a.spans.npz")
    asked = ("--model", "sim", "--executor", "inproc", "--dataset", str(folder / "ds.jsonl"), "--output-len", "4")
    measuring = ("--num-prompts", "4", "--repeats", "1", "--warmup", "0", "--codec", "delta", "--no-times", "-q")
    done = call("check", str(folder / "b.json"), "--update", *asked, *measuring, folder=folder / "runs")
    assert done.exit_code == 0, done.output
    return folder


@pytest.mark.parametrize(
    ("args", "read", "told"),
    [
        (["trace", "a.json", "--output", "a.json"], "a.json", "over the run"),
        (["trace", "a.json", "--output", "a.spans.npz"], "a.spans.npz", "over its time stamps"),
        (["trace", "a.json", "--output", "link.json"], "a.json", "over the run"),
        (["record", *HERE[:2], "--dataset", "ds.jsonl", "--output", "./ds.jsonl"], "ds.jsonl", "over --dataset"),
        (["check", "b.json", "--no-times", "--markdown", "b.json"], "b.json", "over the baseline"),
        (["check", "b.json", "--no-times", "--github-json", "b.json"], "b.json", "over the baseline"),
        (["check", "b.json", "--no-times", "--markdown", "ds.jsonl"], "ds.jsonl", "over the dataset"),
    ],
)
def test_an_output_that_is_an_input_is_refused(
    args: list[str], read: str, told: str, stored: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(stored)
    Path("link.json").unlink(missing_ok=True)
    Path("link.json").symlink_to("a.json")
    before = Path(read).read_bytes()
    assert told in refused(*args)
    assert Path(read).read_bytes() == before


def test_a_step_summary_that_is_the_baseline_is_refused(stored: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(stored)
    monkeypatch.setenv("GITHUB_STEP_SUMMARY", "b.json")
    assert "$GITHUB_STEP_SUMMARY b.json would be written over the baseline" in refused("check", "b.json", "--no-times")


# --- folders that may not be entered ----------------------------------------------------------------------------------


@pytest.fixture
def locked(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder of which the system says that it may be neither entered nor listed, whoever runs the tests."""
    folder = tmp_path / "locked"
    folder.mkdir()
    for name, least in (("stat", 1), ("scandir", 0), ("listdir", 0)):
        monkeypatch.setattr(os, name, _denying(getattr(os, name), folder, least))
    return folder


def _denying(real: Callable[..., Any], folder: Path, least: int) -> Callable[..., Any]:
    """``real``, but what is so many folders below ``folder`` is denied."""

    def call(path: Any = ".", *args: Any, **options: Any) -> Any:
        if isinstance(path, str | Path) and str(path).startswith(str(folder) + "/" * least):
            raise PermissionError(errno.EACCES, "Permission denied", str(path))
        return real(path, *args, **options)

    return call


ASKING = [
    ("compare", "{}/a.json", "{}/b.json"),
    ("predict", "--step", "2ms", "{}/a"),
    ("report", "{}/a.json"),
    ("trace", "{}/a.json"),
    ("workload", "{}/a.json"),
    ("run", "--model", "sim", "--dataset", "{}/a.json"),
    ("check", "--update", "{}/a.json", "--model", "sim"),
    ("sweep", *HERE, "-q", "--output", "{}/x"),
    ("record", "--model", "sim", "--output", "{}/x.plans"),
]


@pytest.mark.parametrize("args", ASKING, ids=" ".join)
def test_a_folder_that_may_not_be_entered_is_told(args: tuple[str, ...], locked: Path) -> None:
    line = refused(*(arg.format(locked) for arg in args))
    assert str(locked) in line
    assert "Permission denied" in line


@pytest.mark.parametrize("args", ASKING, ids=" ".join)
def test_a_name_that_is_too_long_is_told(args: tuple[str, ...], tmp_path: Path) -> None:
    assert "File name too long" in refused(*(arg.format(tmp_path / ("x" * 300)) for arg in args))


def test_folders_that_may_not_be_listed_are_told(stored: Path, locked: Path) -> None:
    assert f"{locked} can't be read: Permission denied" in refused("report", str(locked))
    assert f"{locked} can't be read: Permission denied" in refused(
        "predict", "--step", "2ms", "a", "--results", str(locked)
    )
    shutil.copy(stored / "a.json", locked.parent)
    result = call("report", str(locked.parent), folder=locked.parent / "report")
    assert result.exit_code == 0
    assert f"left out: {locked} can't be read: Permission denied" in result.stderr


def test_what_is_at_a_path_is_asked_in_one_place() -> None:
    """pathlib's own is_file, is_dir and exists raise for both of the above."""
    asking = re.compile(r"(?<!os\.path)\.(is_file|is_dir|exists)\(")
    files = (ROOT / "serbench").rglob("*.py")
    assert [str(file) for file in files if asking.search(file.read_text())] == []


# --- what can't be written --------------------------------------------------------------------------------------------


def test_a_file_that_may_not_be_written_to_is_told_before(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "access", lambda *_: False)
    for ask in (check_can_write, check_can_replace):
        with pytest.raises(ResultsError, match=r"it .*/it can't be written: Permission denied"):
            ask("it", tmp_path / "it")


def test_a_disk_that_is_full_as_plans_are_kept_fails_the_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(_: int) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    result = call("record", "--model", "sim", "--num-prompts", "2", "-q", "--output", str(tmp_path / "it.plans"))
    assert (result.exit_code, result.stdout) == (1, "")
    assert "it.plans can't be written: No space left on device" in one_line(result.stderr)
    assert not list(tmp_path.iterdir())
