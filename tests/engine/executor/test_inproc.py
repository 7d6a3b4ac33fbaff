"""Workers in the scheduler's process: sessions, errors with their traceback, refusals, any number of workers."""

import pytest

from serbench_engine.errors import ConfigError, EngineError, PayloadRefused, WorkerError
from serbench_engine.executor.inproc import InprocExecutor
from tests.engine.executor.workers import outputs, session, sim_engine, sim_spec


@pytest.mark.parametrize("num_workers", [1, 3])
def test_every_worker_runs_every_step(num_workers: int) -> None:
    executor = InprocExecutor(sim_spec(), num_workers)
    assert executor.num_workers == num_workers
    found = []
    for _ in range(2):  # one session after another, with the same workers
        engine = sim_engine(executor, "inproc", codec="none")
        found.append(outputs(engine))
        digests = engine.close().worker_digests
        assert len(digests) == num_workers
        assert len(set(digests)) == 1
    assert found[0] == found[1]
    assert all(len(ids) == 20 for ids in found[0].values())
    executor.close()


def test_what_a_worker_raises_carries_its_traceback_and_leaves_the_executor_usable() -> None:
    executor = InprocExecutor(sim_spec(num_blocks=1))
    engine = sim_engine(executor, "inproc")
    with pytest.raises(WorkerError, match="worker 0: IndexError") as caught:
        outputs(engine)
    assert "in forward" in caught.value.traceback_text
    executor.open(session("inproc")).close()
    executor.close()


def test_garbage_is_refused_and_the_next_payload_is_heard() -> None:
    executor = InprocExecutor(sim_spec(), 2)
    link = executor.open(session("inproc"))
    for _ in range(2):
        link.send(b"no header", b"")
        with pytest.raises(PayloadRefused, match=r"worker 0 .*9 bytes"):
            link.receive()
    assert [report.rank for report in link.close()] == [0, 1]
    assert link.close() == []
    executor.close()


def test_a_step_in_progress_does_not_keep_a_session_from_closing() -> None:
    executor = InprocExecutor(sim_spec())
    link = executor.open(session("inproc"))
    link.send(b"never looked at", b"")
    assert len(link.close()) == 1
    executor.close()


def test_other_transports_and_closed_executors_are_refused() -> None:
    executor = InprocExecutor(sim_spec())
    with pytest.raises(ConfigError, match="inproc only, not with shm"):
        executor.open(session("shm"))
    executor.close()
    executor.close()
    with pytest.raises(EngineError, match="closed"):
        executor.open(session("inproc"))
