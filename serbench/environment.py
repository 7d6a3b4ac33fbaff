"""Describes the machine and the software that figures were taken on. It imports none of the packages that it names."""

import os
import platform
import subprocess
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Final

import msgspec
import psutil

PACKAGES: Final = ("serbench", "torch", "transformers", "tokenizers", "msgspec", "cloudpickle", "numpy", "pyzmq")
THREAD_VARIABLES: Final = (
    "OMP_NUM_THREADS",
    "OMP_WAIT_POLICY",
    "OMP_PROC_BIND",
    "GOMP_SPINCOUNT",
    "KMP_BLOCKTIME",
    "MKL_NUM_THREADS",
    "OPENBLAS_NUM_THREADS",
    "TOKENIZERS_PARALLELISM",
    "PYTHONHASHSEED",
)


class Environment(msgspec.Struct, frozen=True, kw_only=True):
    """What figures depend on besides the experiment. ``cores`` are those this process may use, of ``machine_cores``.

    ``versions``: None for a package that isn't there. ``threads``: the variables that are set. ``load_average``: over
    one minute, before the first repeat. ``git_revision``: of serbench's sources, with ``+`` where they were changed.
    """

    cpu: str
    architecture: str
    cores: int
    machine_cores: int
    memory_bytes: int
    system: str
    python: str
    versions: dict[str, str | None]
    threads: dict[str, str]
    load_average: float
    git_revision: str | None = None


def describe_environment() -> Environment:
    """What is true here and now."""
    return Environment(
        cpu=_cpu_model(),
        architecture=platform.machine(),
        cores=len(os.sched_getaffinity(0)),
        machine_cores=os.cpu_count() or 1,
        memory_bytes=psutil.virtual_memory().total,
        system=f"{platform.system()} {platform.release()}",
        python=f"{platform.python_implementation()} {platform.python_version()}",
        versions={name: installed_version(name) for name in PACKAGES},
        threads={name: os.environ[name] for name in THREAD_VARIABLES if name in os.environ},
        load_average=os.getloadavg()[0],
        git_revision=_git_revision(Path(__file__).resolve().parents[1]),
    )


def installed_version(package: str) -> str | None:
    """The version of an installed distribution, without importing it; None if it isn't there."""
    try:
        return version(package)
    except PackageNotFoundError:
        return None


def _cpu_model() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        lines = []
    for line in lines:
        key, _, value = line.partition(":")
        if key.strip() in ("model name", "Model", "cpu model"):
            return value.strip()
    return platform.processor() or platform.machine()


def _git_revision(folder: Path) -> str | None:
    if not os.path.exists(folder / ".git"):
        return None
    commit = _git(folder, "rev-parse", "--short=12", "HEAD")
    # Not `describe --dirty`: that locks and rewrites the index, and a commit made meanwhile would fail.
    changed = _git(folder, "--no-optional-locks", "status", "--porcelain", "--untracked-files=no")
    return commit and commit + ("+" if changed else "")


def _git(folder: Path, *arguments: str) -> str | None:
    """What git says; None where it fails or isn't there."""
    command = ["git", "-C", str(folder), *arguments]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=10, check=True)
    except (OSError, subprocess.SubprocessError):
        return None
    return done.stdout.strip()
