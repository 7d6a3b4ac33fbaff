"""Who may spin while it waits: settled from the cores that there are and the processes that need them.

It does not know how anybody waits (transport/wait.py does) nor what the processes are.
"""

import os

from serbench_engine.executor.base import WorkerSpec
from serbench_engine.models.config import SimConfig
from serbench_engine.transport.wait import Waiting, WaitKind


def settle_waiting(kind: WaitKind, num_workers: int, threads: int, cores: int) -> tuple[Waiting, Waiting]:
    """How workers wait for plans and how the scheduler waits for results; ``threads`` run in a worker's model.

    ``auto`` sleeps always where scheduler and workers are more than the cores. Otherwise the workers may spin towards
    the end of a long wait, since no model computes while they all wait; the scheduler only where the models leave a
    core, for they compute while it waits.
    """
    if kind == "auto" and num_workers + 1 > cores:
        kind = "block"
    return Waiting(kind, core_is_spare=True), Waiting(kind, core_is_spare=num_workers * threads + 1 <= cores)


def usable_cores() -> int:
    """Cores that this process may run on."""
    return len(os.sched_getaffinity(0))


def model_threads(spec: WorkerSpec) -> int:
    """Cores that a worker's model keeps busy."""
    return 1 if isinstance(spec.model.config, SimConfig) else spec.threads or usable_cores()
