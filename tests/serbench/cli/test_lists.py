"""Tests the commands that list: codecs, models, the doctor's findings. They do not know how any of them is used."""

import subprocess
import sys

import pytest

from serbench import doctor
from serbench_codecs.registry import CODECS, RESULT_FORMATS
from serbench_engine.models.catalogue import KNOWN_MODELS
from tests.serbench.cli.calling import call, refused


def test_every_codec_is_listed_with_its_options() -> None:
    result = call("codecs")
    assert result.exit_code == 0
    for name, family in CODECS.items():
        assert f" {name} " in result.stdout
        for key, values in family.options.items():
            assert f"{name}:{key}={'|'.join(values)}" in result.stdout
    assert all(name in result.stdout for name in RESULT_FORMATS)


def test_every_model_is_listed() -> None:
    result = call("models")
    assert result.exit_code == 0
    assert all(f" {model.name} " in result.stdout for model in KNOWN_MODELS)
    assert "a step takes 0 ms, or as sim:step=2ms:token=1us says" in " ".join(result.stdout.split())


def test_the_doctor_looks_at_everything() -> None:
    result = call("doctor")
    assert result.exit_code == 0
    for words in (
        "cores",
        "OMP_WAIT_POLICY",
        "memory",
        "/dev/shm",
        "GPU",
        "C++ kernels",
        "Python",
        "torch",
        "weights here",
    ):
        assert words in result.stdout


def test_the_doctor_fails_where_something_needed_is_missing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(doctor, "NEEDED", ("numpy", "no-such-package"))
    result = call("doctor")
    assert result.exit_code == 1
    assert "pip install no-such-package" in result.stdout


@pytest.mark.parametrize("command", ["codecs", "models", "doctor"])
def test_listing_imports_no_torch(command: str) -> None:
    code = (
        "import sys\n"
        "from serbench.cli.commands import cli\n"
        f"try: cli(['{command}'])\n"
        "except SystemExit: pass\n"
        "sys.exit(', '.join({'torch', 'transformers', 'pandas', 'matplotlib'} & set(sys.modules)) or 0)\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=False)
    assert (done.returncode, done.stderr) == (0, "")


@pytest.mark.parametrize("seed", ["-1", str(10**26)])
def test_a_seed_of_conversations_has_the_range_of_all_others(seed: str) -> None:
    assert "'--seed'" in refused("codecs", "--check", "delta", "--seed", seed)
