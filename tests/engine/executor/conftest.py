"""Fixtures of the executors' tests: workers of the simulated model, and their processes as the system sees them."""

from collections.abc import Callable, Iterator

import pytest

from serbench_engine.executor.mp import MpExecutor
from tests.engine.executor.workers import sim_spec

StartMp = Callable[..., MpExecutor]


@pytest.fixture
def start_mp() -> Iterator[StartMp]:
    """Starts executors with worker processes, and ends them after the test."""
    started: list[MpExecutor] = []

    def start(num_workers: int = 1, step_timeout_s: float = 60.0, step_us: float = 0.0) -> MpExecutor:
        started.append(MpExecutor(sim_spec(step_us), num_workers, step_timeout_s))
        return started[-1]

    yield start
    for executor in started:
        executor.close()
