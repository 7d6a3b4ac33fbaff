"""Lists the executors, and refuses combinations that can't be. It does not know how any of them works."""

from collections.abc import Mapping
from types import MappingProxyType
from typing import Final

from serbench_engine.errors import ConfigError
from serbench_engine.executor.base import Executor, WorkerSpec
from serbench_engine.executor.inproc import InprocExecutor
from serbench_engine.executor.mp import STEP_TIMEOUT_S, MpExecutor
from serbench_engine.models.config import SimConfig
from serbench_engine.transport.registry import TRANSPORTS

EXECUTOR_TRANSPORTS: Final[Mapping[str, tuple[str, ...]]] = MappingProxyType(
    {
        "inproc": tuple(name for name, one in TRANSPORTS.items() if not one.leaves_process),
        "mp": tuple(name for name, one in TRANSPORTS.items() if one.leaves_process),
    }
)
"""Every executor, and the transports it works with."""

MOST_STEP_TIMEOUT_S: Final = 1e6
"""Eleven days; the system's own waits count milliseconds in 31 bits."""


def check_executor(kind: str, transport: str) -> None:
    """Refuse an executor that there isn't, and a transport that it does not work with.

    Raises:
        ConfigError: with what would be right.
    """
    if kind not in EXECUTOR_TRANSPORTS:
        raise ConfigError(f"no executor {kind!r}; there are {', '.join(EXECUTOR_TRANSPORTS)}")
    if transport not in TRANSPORTS:
        raise ConfigError(f"no transport {transport!r}; there are {', '.join(TRANSPORTS)}")
    works = EXECUTOR_TRANSPORTS[kind]
    if transport not in works:
        raise ConfigError(f"executor {kind} does not work with transport {transport}; it works with {', '.join(works)}")


def make_executor(
    kind: str,
    spec: WorkerSpec,
    num_workers: int = 1,
    step_timeout_s: float = STEP_TIMEOUT_S,
) -> Executor:
    """Start the workers of ``spec``.

    Raises:
        ConfigError: no such executor, no worker, several of a real model, or a model that can't be loaded (ModelError).
        WorkerError: a worker died on the way.
    """
    if kind not in EXECUTOR_TRANSPORTS:
        raise ConfigError(f"no executor {kind!r}; there are {', '.join(EXECUTOR_TRANSPORTS)}")
    if num_workers < 1:
        raise ConfigError(f"{num_workers} workers; there must be at least 1")
    if num_workers > 1 and not isinstance(spec.model.config, SimConfig):
        raise ConfigError(f"{num_workers} workers: {spec.model.name} runs on 1; only the simulated model (sim) on more")
    if not 0 < step_timeout_s <= MOST_STEP_TIMEOUT_S:
        raise ConfigError(
            f"a step timeout of {step_timeout_s:g} s; it must be above 0 and at most {MOST_STEP_TIMEOUT_S:.0f} s"
        )
    if kind == "inproc":
        return InprocExecutor(spec, num_workers)
    return MpExecutor(spec, num_workers, step_timeout_s)
