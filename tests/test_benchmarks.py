"""Every script in benchmarks/ has a page of help, and tells bad options in one line, not as a traceback.

They are not run here: what they time is nothing to test.
"""

import subprocess
import sys
from pathlib import Path

import click
import pytest
from click.testing import CliRunner

import benchmarks.codec_cost
import benchmarks.predict_check
import benchmarks.transport_roundtrip

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
