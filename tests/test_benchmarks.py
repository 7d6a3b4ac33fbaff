"""Every script in benchmarks/ has a page of help, and tells bad options in one line, not as a traceback.

They are not run here: what they time is nothing to test.
"""

import gc
import subprocess
import sys
from pathlib import Path

import click
import pytest
from click.testing import CliRunner

import benchmarks.ceiling
import benchmarks.codec_cost
import benchmarks.predict_check
import benchmarks.transport_roundtrip
from serbench.experiment import Experiment
from serbench.interleave import balanced_order
from serbench.passes import Pass, Session, drive
from serbench.prepare import prepare
from serbench.workload.base import WorkRequest
from serbench.workload.spec import LengthRange, Synthetic
from serbench_codecs.registry import get_codec

ROOT = Path(__file__).resolve().parents[1]
SCRIPTS = sorted(path.stem for path in (ROOT / "benchmarks").glob("*.py"))


@pytest.mark.parametrize("name", SCRIPTS)
def test_help_is_a_page(name: str) -> None:
    command = [sys.executable, "-m", f"benchmarks.{name}", "--help"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=60, check=False)
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.startswith(f"Usage: python -m benchmarks.{name} [OPTIONS]")


@pytest.mark.parametrize(
    ("command", "args", "words"),
    [
        (benchmarks.transport_roundtrip.main, ["--rounds", "many"], "'many' is not a valid integer"),
        (benchmarks.transport_roundtrip.main, ["--rounds", "20"], "--rounds 20 in --turns 3 leaves no round"),
        (benchmarks.ceiling.main, ["--model", "nonsense"], "--model nonsense: it must be a simulated one"),
        (benchmarks.ceiling.main, ["--codec", "detla"], "no codec 'detla'"),
        (benchmarks.codec_cost.main, ["detla"], "no codec 'detla'"),
        (benchmarks.codec_cost.main, ["--steps", "0"], "--steps"),
        (benchmarks.predict_check.main, ["--batch", "x"], "'x' is no whole number"),
        (benchmarks.predict_check.main, ["--step", "soon"], "--step 'soon' is no time"),
    ],
)
def test_bad_options_are_told(command: click.Command, args: list[str], words: str) -> None:
    result = CliRunner().invoke(command, args)
    assert result.exit_code == 2
    assert words in result.output


def test_codecs_that_hand_plans_over_by_reference_send_no_bytes() -> None:
    sent = {name: benchmarks.codec_cost.measure(get_codec(name), 4, 16, 3)[-1] for name in ("none", "columnar")}
    assert sent["none"] == 0
    assert sent["columnar"] > 24


def test_the_ceiling_warms_up_before_a_balanced_order_begins() -> None:
    passes: list[tuple[int, int, int]] = []

    class Noting:
        def __init__(self, number: int) -> None:
            self._number = number

        def run(self, group: int, order: int) -> None:
            passes.append((group, order, self._number))

    benchmarks.ceiling.take_turns([Noting(number) for number in range(3)], 8)
    assert passes[:3] == [(-1, 0, 0), (-1, 0, 1), (-1, 0, 2)]
    timed = [
        (group, order, number)
        for group, turns in enumerate(balanced_order(3, 8, seed=0))
        for order, number in enumerate(turns)
    ]
    assert passes[3:] == timed


def test_the_ceiling_sweeps_before_each_pass(monkeypatch: pytest.MonkeyPatch) -> None:
    before, frozen = gc.get_freeze_count(), []

    def driven(session: Session, requests: list[WorkRequest]) -> Pass:
        frozen.append(gc.get_freeze_count() > before)
        return drive(session, requests)

    monkeypatch.setattr(benchmarks.ceiling, "drive", driven)
    workload = Synthetic(num_prompts=2, input_len=LengthRange(4, 4), output_len=LengthRange(4, 4))
    [ready] = prepare([Experiment(model="sim", workload=workload, codec="none", executor="inproc")])
    contender = benchmarks.ceiling.Contender(ready)
    try:
        for group in (-1, 0):
            contender.run(group, 0)
    finally:
        contender.close()
    assert frozen == [True, True]
    assert [repeat.group for repeat in contender.repeats] == [0]
