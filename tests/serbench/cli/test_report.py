"""Tests `serbench report`: files, failures, bad input. They do not know what is in a report."""

from pathlib import Path

import msgspec
import pytest

import serbench.report.plots.listing as listing
from serbench.report.survey import Survey
from serbench.results import store_run
from tests.serbench.cli.calling import call, refused
from tests.serbench.report.grids import measured

PLOTS = ("throughput", "phases", "bytes", "latency")
FILES = {"report.html", "report.md", *(f"{name}.{kind}" for name in PLOTS for kind in ("svg", "png"))}


@pytest.fixture(scope="module")
def results(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("results")
    measured(folder)
    return folder


def test_a_folder_becomes_a_report(results: Path, tmp_path: Path) -> None:
    out = tmp_path / "deep" / "report"
    before = {path: path.read_bytes() for path in results.iterdir()}
    result = call("report", str(results), folder=out)
    assert result.exit_code == 0, result.output
    assert {path.name for path in out.iterdir()} == FILES
    assert str(out / "report.html") in result.stdout
    assert "left out: Speed-up by the model's step time" in result.stderr
    assert {path: path.read_bytes() for path in results.iterdir()} == before


def test_runs_by_id_and_another_baseline(results: Path, tmp_path: Path) -> None:
    ids = sorted(path.stem for path in results.glob("*.json"))
    result = call("report", *ids[:3], "--results", str(results), "--baseline", "delta", folder=tmp_path)
    assert result.exit_code == 0, result.output
    assert "To delta, paired repeat by repeat" in (tmp_path / "report.md").read_text()


def test_a_plot_that_fails_loses_nothing_else(results: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def failing(_: Survey) -> str:
        raise ZeroDivisionError("planted")

    broken = [listing.Plot(p.name, p.title, p.caption, failing if p.name == "bytes" else p.draw) for p in listing.PLOTS]
    monkeypatch.setattr(listing, "PLOTS", broken)
    result = call("report", str(results), folder=tmp_path)
    assert result.exit_code == 0, result.output
    assert {path.name for path in tmp_path.iterdir()} == FILES - {"bytes.svg", "bytes.png"}
    assert "Bytes by context: drawing it failed (ZeroDivisionError: planted)" in result.stderr
    assert "Bytes by context: drawing it failed" in (tmp_path / "report.html").read_text()


def test_pages_hold_nothing_that_a_terminal_obeys(tmp_path: Path) -> None:
    for run in measured(tmp_path / "runs", ["pickle", "delta"]):
        store_run(msgspec.structs.replace(run, warnings=["\x1b[2J"], session="\x07"), tmp_path / "runs")
    result = call("report", str(tmp_path / "runs"), folder=tmp_path)
    assert result.exit_code == 0, result.output
    for page in (tmp_path / "report.html", tmp_path / "report.md"):
        assert "\x1b" not in page.read_text()
        assert "\N{REPLACEMENT CHARACTER}" in page.read_text()


def test_writing_again_replaces(results: Path, tmp_path: Path) -> None:
    (tmp_path / "report.html").write_text("old")
    call("report", str(results), folder=tmp_path)
    assert (tmp_path / "report.html").read_text().startswith("<!doctype html>")


def test_bad_input_is_one_line(results: Path, tmp_path: Path) -> None:
    assert "neither a file nor a run" in refused("report", "nosuch", "--results", str(tmp_path))
    assert "no run with repeats" in refused("report", str(tmp_path), folder=tmp_path / "out")
    assert "no run of zstd to compare with; there are pickle, delta, columnar" in refused(
        "report", str(results), "--baseline", "zstd", folder=tmp_path / "out"
    )
    (tmp_path / "file").write_text("")
    assert "can't be written" in refused("report", str(results), folder=tmp_path / "file" / "out")
    assert "Missing argument" in refused("report")


def test_an_interrupt_while_a_plot_is_drawn_is_no_plot_that_failed(
    results: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def importing(*_: object) -> object:
        try:
            raise KeyboardInterrupt
        except KeyboardInterrupt as error:
            raise ImportError("initialization failed") from error

    monkeypatch.setattr(listing, "draw", importing)
    result = call("report", str(results), folder=tmp_path)
    assert (result.exit_code, result.stderr.strip()) == (130, "serbench: interrupted")
    assert list(tmp_path.iterdir()) == []
