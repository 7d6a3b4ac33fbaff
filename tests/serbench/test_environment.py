"""Tests the description of the machine. They do not know what it is compared for."""

import subprocess
import sys

import msgspec
import pytest

from serbench.environment import describe_environment, installed_version


def test_it_describes_this_machine() -> None:
    environment = describe_environment()
    assert environment.cpu
    assert 1 <= environment.cores <= environment.machine_cores
    assert environment.memory_bytes > 1 << 28
    assert environment.versions["numpy"]
    assert environment.python.startswith("CPython 3.")
    assert msgspec.json.decode(msgspec.json.encode(environment), type=type(environment)) == environment


def test_thread_variables_are_those_set(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OMP_NUM_THREADS", "3")
    monkeypatch.delenv("KMP_BLOCKTIME", raising=False)
    threads = describe_environment().threads
    assert threads["OMP_NUM_THREADS"] == "3"
    assert "KMP_BLOCKTIME" not in threads


def test_a_package_that_is_not_there_has_no_version() -> None:
    assert installed_version("no-such-package-as-this") is None


def test_describing_imports_no_torch() -> None:
    code = (
        "import sys; from serbench.environment import describe_environment as d; d(); "
        "sys.exit('torch' in sys.modules or 'transformers' in sys.modules)"
    )
    assert subprocess.run([sys.executable, "-c", code], check=False, timeout=60).returncode == 0
