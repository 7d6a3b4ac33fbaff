"""One measurement of two codecs for all tests of gates. It does not know what is planted into it."""

from pathlib import Path

import pytest

from serbench.results import Run, read_run
from tests.serbench.cli.calling import call

SETTINGS = ("--model", "sim", "--executor", "inproc", "--num-prompts", "12", "--input-len", "40", "--output-len", "24")
TIGHT = ("--max-num-seqs", "8", "--num-blocks", "30", "--max-model-len", "256", "--repeats", "4", "--warmup", "0")
"""Few blocks, so that requests are preempted and that gate has something to hold."""


@pytest.fixture(scope="session")
def runs(tmp_path_factory: pytest.TempPathFactory) -> list[Run]:
    """pickle and delta, measured together."""
    folder: Path = tmp_path_factory.mktemp("gates")
    result = call("compare", *SETTINGS, *TIGHT, "--codec", "pickle,delta", folder=folder)
    assert result.exit_code == 0, result.stderr
    found = {run.spec.codec: run for run in map(read_run, folder.glob("*.json"))}
    assert found["delta"].repeats[0].preemptions > 0
    return [found["pickle"], found["delta"]]
