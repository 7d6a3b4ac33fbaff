"""Tests `serbench compare --aa`: what it measures, says and exits with. Measured times are planted, not taken."""

import json
import re
from pathlib import Path
from types import SimpleNamespace

import msgspec
import pytest

from serbench.cli.options import Choices
from serbench.comparison import Comparison, Row
from serbench.experiment import Experiment
from serbench.results import Run, read_run
from serbench.stats import judge
from tests.serbench.cli.calling import HERE, call, refused

FIRST = [100.0, 101.0, 99.0, 100.0, 100.5]


def compared(ratio: float) -> Comparison:
    """A comparison in which the second's throughput is ``ratio`` of the first's, at little noise."""
    wobble = [1.0, 1.001, 0.999, 1.0, 1.0005]
    finding = judge(FIRST, [a * ratio * b for a, b in zip(FIRST, wobble, strict=True)], higher_is_better=True)
    row = Row(
        run="b",
        label="delta #2",
        output_tokens_per_s=FIRST,
        host_us_per_step=1.0,
        host_us_without_adapt=1.0,
        plan_bytes=1.0,
        plan_bytes_p50=1.0,
        result_bytes=1.0,
        throughput=finding,
        host=None,
        host_without_adapt=None,
        outputs="equal",
    )
    return Comparison(rows=[row, row], warnings=[])


def planted(monkeypatch: pytest.MonkeyPatch, run: Run, ratios: list[float]) -> list[float]:
    """Let each measurement's comparison show the next of the ratios; the list of those not used yet."""
    left = list(ratios)
    monkeypatch.setattr("serbench.cli.measure.measure", lambda *_: SimpleNamespace(runs=[run, run]))
    monkeypatch.setattr("serbench.comparison.compare_runs", lambda _: compared(left.pop(0)))
    return left


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Run:
    """Any run."""
    folder = tmp_path_factory.mktemp("run")
    assert call("run", *HERE, folder=folder).exit_code == 0
    [path] = folder.glob("*.json")
    return read_run(path)


@pytest.mark.parametrize(
    ("ratios", "exit_code", "measurements"),
    [
        ([1.0], 0, 1),
        ([1.05, 1.0], 0, 2),
        ([1.05, 1 / 1.05], 0, 2),  # the other way round the second time: noise
        ([1.05, 1.05], 1, 2),
        ([1 / 1.05, 1 / 1.05], 1, 2),
    ],
)
def test_only_a_difference_that_comes_again_counts(
    ratios: list[float], exit_code: int, measurements: int, run: Run, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    left = planted(monkeypatch, run, [*ratios, 1.0])
    result = call("compare", *HERE, "--repeats", "4", "--aa", folder=tmp_path)
    assert result.exit_code == exit_code, result.output
    assert len(left) == len(ratios) + 1 - measurements
    assert ("differs from itself in throughput, twice" in result.stderr) == (exit_code == 1)


def test_repeats_that_a_noisy_machine_asks_for_are_added(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    noisy, quiet = compared(1.0), compared(1.0)
    finding = judge([100, 80, 120, 100, 90], [90, 100, 110, 95, 105], higher_is_better=True)
    noisy = msgspec.structs.replace(
        noisy, rows=[msgspec.structs.replace(row, throughput=finding) for row in noisy.rows]
    )
    assert finding.verdict == "too noisy to tell"
    asked: list[int] = []

    def measure(experiments: list[Experiment], _: Choices) -> SimpleNamespace:
        asked.append(experiments[0].repeats)
        return SimpleNamespace(runs=[run, run])

    monkeypatch.setattr("serbench.cli.measure.measure", measure)
    monkeypatch.setattr("serbench.comparison.compare_runs", lambda _: noisy if len(asked) == 1 else quiet)
    result = call("compare", *HERE[:-4], "--aa")  # without --repeats 1 --warmup 0
    assert result.exit_code == 0, result.output
    assert asked[0] == 10
    assert 10 < asked[1] <= 50
    assert re.search(
        r"throughput: no difference shown; a difference of up to \d+\.\d% could have hidden", result.stderr
    )


def test_one_codec_is_measured_twice(tmp_path: Path) -> None:
    result = call("compare", *HERE, "--repeats", "4", "--aa", "--codec", "columnar", "--json", folder=tmp_path)
    assert result.exit_code in (0, 1), result.stderr
    rows = json.loads(result.stdout)["rows"]
    assert [row["label"] for row in rows] == ["columnar #1", "columnar #2"]
    assert [row["outputs"] for row in rows] == ["not compared", "equal"]
    assert {len(read_run(path).repeats) for path in tmp_path.glob("*.json")} == {4}
    assert "throughput: " in result.stderr


def test_what_could_show_nothing_is_refused(tmp_path: Path) -> None:
    line = refused("compare", *HERE, "--aa", folder=tmp_path)
    assert "--aa with --repeats 1 could show nothing; it needs at least 4" in line


def test_two_codecs_are_no_thing_and_itself(tmp_path: Path) -> None:
    line = refused("compare", *HERE, "--aa", "--codec", "pickle,delta", folder=tmp_path)
    assert "--aa measures one codec against itself" in line


def test_stored_runs_can_t_be_measured_against_themselves() -> None:
    assert "--aa means nothing here" in refused("compare", "a.json", "b.json", "--aa")
