"""Who may spin, by cores, workers and the threads of their models."""

import pytest

from serbench_engine.executor.waiting import model_threads, settle_waiting, usable_cores
from serbench_engine.transport.wait import Waiting
from tests.engine.serving import sim_spec


@pytest.mark.parametrize(
    ("workers", "threads", "cores", "plans", "results"),
    [
        (1, 1, 2, Waiting("auto", core_is_spare=True), Waiting("auto", core_is_spare=True)),
        (1, 2, 2, Waiting("auto", core_is_spare=True), Waiting("auto", core_is_spare=False)),
        (3, 1, 4, Waiting("auto", core_is_spare=True), Waiting("auto", core_is_spare=True)),
        (3, 2, 4, Waiting("auto", core_is_spare=True), Waiting("auto", core_is_spare=False)),
        (3, 1, 2, Waiting("block", core_is_spare=True), Waiting("block", core_is_spare=False)),
        (1, 1, 1, Waiting("block", core_is_spare=True), Waiting("block", core_is_spare=False)),
    ],
)
def test_auto_takes_no_core_that_a_model_or_another_worker_needs(
    workers: int, threads: int, cores: int, plans: Waiting, results: Waiting
) -> None:
    assert settle_waiting("auto", workers, threads, cores) == (plans, results)


@pytest.mark.parametrize("kind", ["spin", "block"])
def test_what_the_user_asks_for_stays(kind: str) -> None:
    settled = settle_waiting(kind, 8, 8, 1)  # type: ignore[arg-type]
    assert [one.kind for one in settled] == [kind, kind]


def test_a_simulated_model_keeps_one_core_busy() -> None:
    assert model_threads(sim_spec()) == 1
    assert usable_cores() >= 1
