"""Tests `serbench predict`: measured now and from stored runs, and bad input. They assert no times."""

import json
from pathlib import Path

import pytest

from tests.serbench.cli.calling import HERE, call, one_line, refused
from tests.serbench.planted_codec import Planted

QUICK = ("--executor", "inproc", "--repeats", "1", "--warmup", "0", "--batch", "4", "--context", "20")


def test_host_times_are_measured_for_the_codecs_asked_for() -> None:
    result = call("predict", "--step", "1ms,20ms", "--codec", "delta,columnar", *QUICK)
    assert result.exit_code == 0, result.stderr
    words = " ".join(result.stdout.split())
    for one in ("4 requests at 20 tokens", "1 ms", "20 ms", "columnar", "assuming: synchronous engine", "too few"):
        assert one in words
    assert max(map(len, result.stdout.splitlines())) <= 80


def test_the_document_has_a_row_for_each_model_and_codec() -> None:
    result = call("predict", "--step", "1ms,2ms", "--token", "3us", "--codec", "delta,columnar", *QUICK, "--json")
    document = json.loads(result.stdout)
    assert document["schema"] == "serbench/prediction/1"
    assert [(row["label"], row["model"]["step_us"]) for row in document["rows"]] == [
        ("delta", 1000.0),
        ("columnar", 1000.0),
        ("delta", 2000.0),
        ("columnar", 2000.0),
    ]
    assert {row["model"]["token_us"] for row in document["rows"]} == {3.0}


def test_stored_runs_are_predicted_from(tmp_path: Path) -> None:
    assert call("compare", *HERE, "--codec", "pickle,columnar", folder=tmp_path).exit_code == 0
    files = sorted(map(str, tmp_path.iterdir()))
    result = call("predict", *files, "--step", "2ms")
    assert result.exit_code == 0, result.stderr
    assert "host times of" in result.stdout
    line = refused("predict", *files, "--step", "2ms", "--batch", "4")
    assert "so --batch means nothing here" in line


def test_what_compare_warns_about_is_told_on_screen_and_in_the_document(tmp_path: Path) -> None:
    for codec in ("pickle", "columnar"):
        assert call("run", *HERE, "--codec", codec, folder=tmp_path).exit_code == 0
    files = sorted(map(str, tmp_path.iterdir()))
    page = " ".join(call("predict", *files, "--step", "2ms").stdout.split())
    told = "the runs were not measured interleaved: a drift of the machine counts as a difference"
    assert f"warning: {told}" in page
    assert "×: geometric mean over pairs of repeats, so not the quotient of what is shown" in page
    assert told in json.loads(call("predict", *files, "--step", "2ms", "--json").stdout)["warnings"]


def test_runs_whose_payloads_were_refused_are_not_predicted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Planted, "lasts", 3)
    assert call("run", *HERE, "--codec", "tests.serbench.planted_codec:CODEC", folder=tmp_path).exit_code == 1
    result = call("predict", *map(str, tmp_path.iterdir()), "--step", "2ms")
    assert (result.exit_code, result.stdout) == (1, "")
    assert "1 payload refused" in one_line(result.stderr)


def test_a_lone_codec_has_no_ratios_to_explain() -> None:
    page = call("predict", "--step", "1ms", "--codec", "delta", "--workers", "2", "--repeats", "1", *QUICK[4:]).stdout
    assert "geometric" not in page
    assert "2 workers that all get every plan" in " ".join(page.split())


@pytest.mark.parametrize(
    ("args", "words"),
    [
        ([], ["Missing option '--step'"]),
        (["--step", "fast"], ["--step 'fast' is no time", "such as 800us, 2ms"]),
        (["--step", "1ms", "--token", "2"], ["--token '2' is no time", "such as 800us, 2ms"]),
        (["--step", "1ms:token=1us"], ["--step '1ms:token=1us' is no time"]),
        (["--step", "90s"], ["--step '90s'", "at most 60s"]),
        (["--step", "1ms", "nothing"], ["nothing is neither a file nor a run"]),
        (["--step", "1ms", "--codec", "detla"], ["no codec 'detla'"]),
    ],
)
def test_bad_input_is_one_clear_line(args: list[str], words: list[str]) -> None:
    line = refused("predict", *args)
    for word in words:
        assert word in line
