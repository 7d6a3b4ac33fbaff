"""Tests the description of the machine. They do not know what it is compared for."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import msgspec
import pytest

from serbench.environment import _git_revision, describe_environment, installed_version


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


@pytest.mark.skipif(shutil.which("git") is None, reason="git isn't installed")
def test_the_revision_says_what_was_changed_and_leaves_the_index_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in [name for name in os.environ if name.startswith("GIT_")]:  # a hook's own repository
        monkeypatch.delenv(name)

    def git(*arguments: str) -> str:
        who = ("-c", "user.name=a", "-c", "user.email=a@example.org")
        command = ["git", "-C", str(tmp_path), *who, *arguments]
        return subprocess.run(command, check=True, capture_output=True, text=True).stdout

    file, index = tmp_path / "file", tmp_path / ".git" / "index"
    git("init")
    file.write_text("as committed")
    git("add", "file")
    assert _git_revision(tmp_path) is None
    git("commit", "-m", "one")
    revision = git("rev-parse", "HEAD")[:12]
    os.utime(file, ns=(0, 0))
    before = index.read_bytes()
    assert _git_revision(tmp_path) == revision
    file.write_text("changed")
    assert _git_revision(tmp_path) == f"{revision}+"
    assert index.read_bytes() == before
