"""Tests `serbench record` and `serbench replay`: what is told, and bad input. They assert no times."""

import json
from pathlib import Path

import msgspec
import pytest

from serbench import replay
from tests.serbench.cli.calling import call, refused

RUN = ("--model", "sim", "--num-prompts", "4", "--input-len", "8", "--output-len", "4")


@pytest.fixture(scope="module")
def file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("plans") / "a.plans"
    result = call("record", *RUN, "--output", str(path))
    assert result.exit_code == 0, result.stderr
    assert "4 steps of 4 requests of sim (32 tokens in, 16 out)" in result.stdout
    assert f"{path.stat().st_size:,} bytes" in result.stdout
    return path


def test_a_run_s_options_are_taken_and_told_to_mean_nothing(tmp_path: Path) -> None:
    path = str(tmp_path / "a.plans")
    result = call("record", *RUN, "--codec", "delta", "--transport", "pipe", "--repeats", "3", "--output", path)
    assert result.exit_code == 0, result.stderr
    assert "so --codec, --transport, --repeats changed nothing" in result.stderr
    assert call("record", *RUN, "--quiet", "--json", "--output", path).stderr == ""


def test_the_table_says_what_was_replayed(file: Path) -> None:
    result = call("replay", str(file), "--codec", "pickle,columnar", "--transport", "inproc", "--repeats", "4")
    assert result.exit_code == 0, result.stderr
    page = result.stdout
    for words in ("4 steps of", "tables equal in every step", "columnar", "path µs", "encode", "steps/s", "plan"):
        assert words in page
    assert "steps/s: of the replay as a whole, with the checks" in page
    assert max(map(len, page.splitlines())) <= 80


def test_the_help_says_nothing_of_prompts() -> None:
    page = " ".join(call("replay", "--help").stdout.split())
    assert "all of the same steps" in page
    assert "order in which codecs and transports take turns" in page
    assert "prompts" not in page


def test_what_is_advised_is_possible(file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    scatter = iter([1.0, 9.0, 1.0, 900.0] * 10)
    made = replay._pass
    monkeypatch.setattr(
        replay, "_pass", lambda *args: msgspec.structs.replace(made(*args), path_us=1e4 * next(scatter))
    )
    quick = ("--transport", "inproc", "--repeats", "4", "--warmup", "0")
    page = call("replay", str(file), "--codec", "delta,columnar", *quick).stdout
    assert "make each repeat longer with a longer recording" in " ".join(page.split())


def test_the_document_has_every_pass(file: Path) -> None:
    result = call("replay", str(file), "--codec", "none,delta", "--transport", "inproc", "--repeats", "2", "--json")
    document = json.loads(result.stdout)
    assert document["schema"] == "serbench/replay/1"
    assert [len(row["passes"]) for row in document["rows"]] == [2, 2]
    assert document["rows"][1]["path"]["verdict"] == "too few repeats"


@pytest.mark.parametrize(
    ("args", "words"),
    [
        (["none.plans"], ["none.plans can't be read: No such file"]),
        ([__file__], ["does not begin with serplans"]),
        (["FILE", "--codec", "detla"], ["no codec 'detla'", "Did you mean delta"]),
        (["FILE", "--codec", "none"], ["codec none hands things over by reference", "--transport inproc"]),
        (["FILE", "--transport", "tcp"], ["no transport 'tcp'", "inproc, pipe, shm, zmq"]),
        (["FILE", "--result-format", "pakced"], ["no result format 'pakced'"]),
        (["FILE", "--steps", "0"], ["--steps"]),
    ],
)
def test_bad_input_is_one_clear_line(file: Path, args: list[str], words: list[str]) -> None:
    line = refused("replay", *(str(file) if arg == "FILE" else arg for arg in args))
    for word in words:
        assert word in line


def test_a_recording_needs_a_file() -> None:
    assert "Missing option '--output'" in refused("record", *RUN)
