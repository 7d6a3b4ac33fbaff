"""Compiles the C++ sources of this folder for the CPU at hand, once, into the user's cache. It does not know what they
do, and imports no torch.
"""

import hashlib
import importlib.util
import os
import platform
import shlex
import shutil
import signal
import subprocess
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Final, Literal

from serbench_engine.errors import EngineError, ModelError
from serbench_engine.weights.cache import made_once

SOURCES: Final = Path(__file__).parent
COMPILERS: Final = ("c++", "g++", "clang++")
FLAGS: Final = ("-std=c++17", "-O3", "-fopenmp", "-fno-math-errno", "-shared", "-fPIC")
TIMEOUT_S: Final = 180.0
SWITCH: Final = "SERBENCH_NATIVE"
"""Set to 0, this variable keeps the kernels from being used."""

_LIBRARY: Final = "kernels.so"
_DIGEST: Final = "sha256"  # of the library: loading one that was cut short ends the process

Source = Literal["attention.cpp", "product.cpp", "rows.cpp"]


class NativeError(EngineError):
    """Why the kernels can't be used here; everything is computed without them, slower."""


def compiled_library(sources: Sequence[Source], macros: Mapping[str, int], target: str | None = None) -> Path:
    """The shared library of these sources and macros, for this CPU unless ``target`` is a flag that names another.

    The first call on a machine compiles it, which takes a few seconds; others meanwhile wait.

    Raises:
        NativeError: no compiler, one that fails or hangs, a cache that can't be written, or SERBENCH_NATIVE=0.
    """
    if os.environ.get(SWITCH) == "0":
        raise NativeError(f"{SWITCH}=0 turns them off")
    compiler = _compiler()
    defines = [f"-D{name}={value}" for name, value in macros.items()]
    options = [*FLAGS, *([target] if target else _for_this_cpu()), *defines]
    threads = [*_threads_of_torch()]

    def fill(folder: Path) -> None:
        paths = [str(SOURCES / source) for source in sources]
        _compile([*compiler, *options, *paths, *threads, "-o", str(folder / _LIBRARY)], folder)
        if not os.path.exists(folder / _LIBRARY):
            raise NativeError(f"{shlex.join(compiler)} wrote no library")
        (folder / _DIGEST).write_text(_digest(folder))

    try:
        return made_once(f"kernels-{_key(compiler, [*options, *sources, *threads])}", fill, _is_whole) / _LIBRARY
    except ModelError as error:  # the cache's own
        raise NativeError(str(error)) from None


def _digest(folder: Path) -> str:
    return hashlib.sha256((folder / _LIBRARY).read_bytes()).hexdigest()


def _is_whole(folder: Path) -> bool:
    try:
        return (folder / _DIGEST).read_text() == _digest(folder)
    except (OSError, UnicodeDecodeError):
        return False


def _compiler() -> list[str]:
    """The command; CXX may hold several words, as in ``ccache g++``."""
    named = os.environ.get("CXX", "").strip()
    for command in (_words(named),) if named else ([name] for name in COMPILERS):
        found = shutil.which(command[0])
        if found is not None:
            return [found, *command[1:]]
    wanted = f"CXX names {named}, which is not there" if named else f"none of {', '.join(COMPILERS)} is there"
    raise NativeError(f"no C++ compiler: {wanted}")


def _words(command: str) -> list[str]:
    try:
        return shlex.split(command)
    except ValueError:  # a quotation that does not end
        return [command]


def _for_this_cpu() -> Iterator[str]:
    yield "-march=native" if platform.machine() in ("x86_64", "AMD64") else "-mcpu=native"
    if "GenuineIntel" in _cpu():
        yield "-DSERBENCH_INTEL"


def _threads_of_torch() -> Iterator[str]:
    """Link torch's own OpenMP: two of them in a process would each have threads, which get in each other's way."""
    yield "-Wl,--as-needed"  # the compiler's own is then left out
    spec = importlib.util.find_spec("torch")
    if spec is not None and spec.origin is not None:
        folder = Path(spec.origin).parent / "lib"
        for file in sorted(folder.glob("libgomp*.so*")):
            yield str(file)
            yield f"-Wl,-rpath,{folder}"


def _key(compiler: list[str], arguments: list[str]) -> str:
    """Changes with the sources, wherever they lie, the compiler, what it is told, and the CPU."""
    digest = hashlib.sha256()
    for file in sorted(SOURCES.iterdir()):
        if file.suffix in (".cpp", ".h"):
            digest.update(file.read_bytes())
    digest.update(repr(([_identity(word) for word in compiler], arguments, _cpu())).encode())
    return digest.hexdigest()[:24]


def _identity(word: str) -> tuple[str, int, int]:
    """A program's file, size and time, so that another one in its place is noticed; of an option, itself."""
    found = shutil.which(word)
    if found is None:
        return word, 0, 0
    path = Path(found).resolve()
    stat = path.stat()
    return str(path), stat.st_size, stat.st_mtime_ns


def _cpu() -> str:
    try:
        text = Path("/proc/cpuinfo").read_text()
    except OSError:
        return platform.processor()
    first = text.partition("\n\n")[0]
    telling = ("vendor_id", "model name", "flags", "Features", "CPU part", "isa")
    return "\n".join(line for line in first.splitlines() if line.startswith(telling))


def _compile(command: list[str], folder: Path) -> None:
    """What the compiler writes for itself goes to ``folder`` too, which goes if this fails."""
    # A session of its own: the compiler's own processes must not outlive a timeout.
    process = subprocess.Popen(
        command,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        start_new_session=True,
        env={**os.environ, "TMPDIR": str(folder)},
    )
    try:
        _, stderr = process.communicate(timeout=TIMEOUT_S)
    except BaseException as error:
        os.killpg(process.pid, signal.SIGKILL)
        process.communicate()
        if isinstance(error, subprocess.TimeoutExpired):
            raise NativeError(f"{command[0]} did not finish within {TIMEOUT_S:g} s") from None
        raise
    if process.returncode != 0:
        raise NativeError(f"{command[0]} failed: {_telling_line(stderr.decode(errors='replace'))}")


def _telling_line(stderr: str) -> str:
    lines = [line.strip() for line in stderr.splitlines() if line.strip()] or ["it said nothing"]
    return next((line for line in lines if "error" in line), lines[-1])
