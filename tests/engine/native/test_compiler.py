"""The kernels' build: what happens where there is no compiler, a broken or a slow one, and many processes at once."""

import ctypes
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch

from serbench_engine.attention.base import AttentionShape, CacheShape
from serbench_engine.attention.cpu import CpuAttention
from serbench_engine.attention.native import NativeAttention
from serbench_engine.attention.registry import make_attention
from serbench_engine.native import compiler
from serbench_engine.native.compiler import SWITCH, NativeError, compiled_library
from serbench_engine.native.library import attention_kernels, native_status
from tests.engine.executor.workers import wait_until_gone

SHAPE = AttentionShape(2, 1, 8, (0,))
CACHE = CacheShape(4, 4, torch.bfloat16, "cpu")
REAL = shutil.which(os.environ.get("CXX") or "c++")
needs_compiler = pytest.mark.skipif(REAL is None, reason="no C++ compiler here")


@pytest.fixture(autouse=True)
def fresh(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """An empty cache, and no memory of what was loaded before or will be after."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.delenv(SWITCH, raising=False)
    attention_kernels.cache_clear()
    yield
    attention_kernels.cache_clear()


def use(script: str, folder: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Make this shell script the C++ compiler."""
    path = folder / "fake-c++"
    path.write_text(f"#!/bin/sh\n{script}\n")
    path.chmod(0o755)
    monkeypatch.setenv("CXX", str(path))
    return path


def test_without_a_compiler_torch_computes_attention(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("CXX", raising=False)
    monkeypatch.setenv("PATH", str(tmp_path))
    assert native_status() == "no C++ compiler: none of c++, g++, clang++ is there"
    assert isinstance(make_attention(SHAPE, CACHE), CpuAttention)


def test_a_named_compiler_that_is_not_there(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CXX", "no-such-c++")
    assert native_status() == "no C++ compiler: CXX names no-such-c++, which is not there"


@needs_compiler
def test_a_compiler_may_be_named_with_words_before_and_after_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    launcher = use(f'echo "$@" > {tmp_path}/told; exec "$@"', tmp_path, monkeypatch)
    monkeypatch.setenv("CXX", f"'{launcher}' {REAL} -DTOLD='1 2'")
    assert native_status() == ""
    assert (tmp_path / "told").read_text().startswith(f"{REAL} -DTOLD=1 2 -std=")
    monkeypatch.setenv("CXX", "'g++")
    attention_kernels.cache_clear()
    assert native_status() == "no C++ compiler: CXX names 'g++, which is not there"


@needs_compiler
def test_the_same_sources_in_another_place_are_not_compiled_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    compiled = compiled_library(["rows.cpp"], {"DTYPE": 0})
    elsewhere = shutil.copytree(compiler.SOURCES, tmp_path / "sources")
    monkeypatch.setattr(compiler, "SOURCES", elsewhere)
    assert compiled_library(["rows.cpp"], {"DTYPE": 0}) == compiled
    (elsewhere / "rows.cpp").write_text((elsewhere / "rows.cpp").read_text() + "\n")
    assert compiled_library(["rows.cpp"], {"DTYPE": 0}) != compiled


def test_a_compiler_that_fails_is_quoted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    use("echo 'In file x.h' >&2; echo 'x.h:1: error: no such header' >&2; exit 1", tmp_path, monkeypatch)
    assert native_status().endswith("fake-c++ failed: x.h:1: error: no such header")
    assert isinstance(make_attention(SHAPE, CACHE), CpuAttention)
    use("exit 0", tmp_path, monkeypatch)
    with pytest.raises(NativeError, match=r"fake-c\+\+ wrote no library"):
        compiled_library(["rows.cpp"], {"DTYPE": 1})
    use("exit 3", tmp_path, monkeypatch)
    with pytest.raises(NativeError, match="failed: it said nothing"):
        compiled_library(["rows.cpp"], {})


def test_a_compiler_that_hangs_is_ended_with_its_children(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    use(f"sleep 100 & echo $! > {tmp_path}/child; wait", tmp_path, monkeypatch)
    monkeypatch.setattr(compiler, "TIMEOUT_S", 3.0)
    begun = time.monotonic()
    with pytest.raises(NativeError, match=r"fake-c\+\+ did not finish within 3 s"):
        compiled_library(["rows.cpp"], {})
    assert time.monotonic() - begun < 50
    wait_until_gone([int((tmp_path / "child").read_text())])


def test_what_a_compiler_writes_beside_goes_with_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    use(f'echo left > "$TMPDIR/cc.s"; echo "$TMPDIR" > {tmp_path}/where; exit 3', tmp_path, monkeypatch)
    with pytest.raises(NativeError):
        compiled_library(["rows.cpp"], {})
    assert not Path((tmp_path / "where").read_text().strip()).exists()


def test_what_is_no_library_is_not_loaded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    use('while [ "$1" != -o ]; do shift; done; echo nonsense > "$2"', tmp_path, monkeypatch)
    assert "kernels.so can't be loaded" in native_status()


def test_a_cache_that_can_not_be_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "file"))
    if REAL is None:
        use("exit 0", tmp_path, monkeypatch)
    assert "can't be written" in native_status()


def test_they_can_be_turned_off(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(SWITCH, "0")
    assert native_status() == "SERBENCH_NATIVE=0 turns them off"
    assert isinstance(make_attention(SHAPE, CACHE), CpuAttention)


@needs_compiler
def test_many_processes_compile_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    use(f'echo x >> {tmp_path}/calls; sleep 0.2; exec {REAL} -O0 "$@"', tmp_path, monkeypatch)
    program = (
        f"import sys; sys.path[:] = {sys.path!r}\n"
        "from serbench_engine.native.library import native_status\n"
        "print(native_status(), 'torch' in sys.modules)"
    )
    processes = [subprocess.Popen([sys.executable, "-c", program], stdout=subprocess.PIPE, text=True) for _ in range(4)]
    assert [process.communicate(timeout=100)[0].split() for process in processes] == [["False"]] * 4
    assert (tmp_path / "calls").read_text() == "x\n"
    assert native_status() == "", "and one that comes later finds it"
    assert (tmp_path / "calls").read_text() == "x\n"


@needs_compiler
@pytest.mark.parametrize("harm", ["cut", "swapped", "gone", "no digest"])
def test_a_library_that_is_not_what_was_compiled_is_compiled_again(
    harm: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    path = compiled_library(["rows.cpp"], {"DTYPE": 0}, "-O1")
    whole = path.read_bytes()
    match harm:
        case "cut":
            path.write_bytes(whole[:5000])
        case "swapped":
            path.write_bytes(whole[::-1])
        case "gone":
            path.unlink()
        case _:
            path.with_name("sha256").unlink()
    again = compiled_library(["rows.cpp"], {"DTYPE": 0}, "-O1")
    assert again == path
    ctypes.CDLL(str(again)).serbench_rms_norm  # noqa: B018


@needs_compiler
def test_each_shape_and_target_has_its_own_library() -> None:
    paths = {compiled_library(["rows.cpp"], {"DTYPE": n}, target) for n, target in [(0, None), (0, "-O1"), (1, "-O1")]}
    assert len(paths) == 3


@needs_compiler
def test_a_model_uses_what_was_compiled() -> None:
    assert native_status() == ""
    assert isinstance(make_attention(SHAPE, CACHE), NativeAttention)
