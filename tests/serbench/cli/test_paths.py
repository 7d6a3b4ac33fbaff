"""Tests what commands do with paths that they can't use: outputs that are inputs. They do not know what is measured."""

import shutil
from pathlib import Path

import pytest

from tests.serbench.cli.calling import HERE, call, refused


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
