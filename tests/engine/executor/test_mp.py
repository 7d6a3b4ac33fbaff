"""Workers in processes of their own: sessions over every transport, refusals, and how each kind of end is told."""

import gc
import os
import signal
from collections.abc import Callable
from pathlib import Path

import pytest

from serbench_codecs.plan import NO_ADMISSIONS, NO_ROWS, NO_WRITES, StepPlan
from serbench_engine.errors import (
    ConfigError,
    EngineError,
    ModelError,
    PayloadRefused,
    TransportError,
    WorkerError,
    WorkerTimeout,
)
from serbench_engine.executor.base import WorkerSpec
from serbench_engine.executor.mp import MpExecutor, MpLink
from serbench_engine.executor.registry import EXECUTOR_TRANSPORTS
from serbench_engine.models.config import ModelConfig, ResolvedModel, WeightsSource
from serbench_engine.transport.pipe import PipeSender
from tests.engine.executor.workers import (
    is_gone,
    open_descriptors,
    outputs,
    session,
    sim_engine,
    sim_spec,
    stop,
    wait_until_gone,
    worker_pids,
)

StartMp = Callable[..., MpExecutor]
TRANSPORTS = EXECUTOR_TRANSPORTS["mp"]
LONG_STEP_US = 60e6


def test_sessions_of_every_transport_with_the_same_living_workers(start_mp: StartMp) -> None:
    executor = start_mp(num_workers=3)
    pids = worker_pids()
    assert len(pids) == executor.num_workers == 3
    before = open_descriptors()
    expected = None
    for transport in (*TRANSPORTS, *TRANSPORTS):
        engine = sim_engine(executor, transport)
        found = outputs(engine)
        report = engine.close()
        assert len(report.worker_digests) == 3
        assert len(set(report.worker_digests)) == 1
        assert all(cpu_s > 0 for cpu_s in report.cpu_workers_s)
        expected = expected or (found, report.worker_digests)
        assert (found, report.worker_digests) == expected
        assert open_descriptors() == before
    assert worker_pids() == pids
    executor.close()
    executor.close()
    wait_until_gone(pids)


def test_workers_keep_no_descriptor_of_a_session_that_has_ended(start_mp: StartMp) -> None:
    executor = start_mp()
    (pid,) = worker_pids()
    held = []
    for transport in (*TRANSPORTS, *TRANSPORTS):
        link = executor.open(session(transport))
        link.close()
        executor.open(session("pipe"))  # a session whose descriptors are known, opened after the one before was closed
        held.append(open_descriptors(pid))
    assert all(one == held[0] for one in held)


def test_a_simulated_worker_loads_no_torch(start_mp: StartMp) -> None:
    executor = start_mp()
    outputs(sim_engine(executor, "shm"))
    (pid,) = worker_pids()
    assert "torch" not in Path(f"/proc/{pid}/maps").read_text()


def test_garbage_is_refused_by_rank_0_and_what_was_refused_before_is_dropped(start_mp: StartMp) -> None:
    link = start_mp().open(session("pipe"))
    for _ in range(2):
        link.send(b"no header", b"")
    with pytest.raises(PayloadRefused, match=r"worker 0 .*9 bytes") as caught:
        link.receive()
    assert (caught.value.rank, caught.value.epoch) == (0, 0)
    link.send(b"three", b"")
    with pytest.raises(PayloadRefused, match="5 bytes"):
        link.receive()
    assert [report.rank for report in link.close()] == [0]


@pytest.mark.parametrize("recovered", [False, True])
def test_a_death_while_a_session_ends_is_told(
    recovered: bool, start_mp: StartMp, monkeypatch: pytest.MonkeyPatch
) -> None:
    link = start_mp().open(session("pipe"))
    if recovered:
        link.send(b"no header", b"")
        with pytest.raises(PayloadRefused):
            link.receive()
    (pid,) = worker_pids()
    stop(pid)  # so that it can't have reported yet
    plans = link._plans
    send = plans.send

    def send_and_kill(header: bytes, body: bytes, timeout_s: float) -> None:
        send(header, body, timeout_s)
        os.kill(pid, signal.SIGKILL)

    monkeypatch.setattr(plans, "send", send_and_kill)
    with pytest.raises(WorkerError, match="worker 0: was ended by SIGKILL"):
        link.close()


def test_a_refusal_by_a_worker_that_does_not_answer_ends_the_session_as_an_error(start_mp: StartMp) -> None:
    link = start_mp(num_workers=2).open(session("pipe"))
    only_rank_1 = PipeSender([link._plans._fds[1]])  # type: ignore[attr-defined]
    only_rank_1.send(b"no header", b"", 1.0)
    with pytest.raises(WorkerError, match="worker 1: refused the payload of step 0"):
        link.close()


@pytest.mark.parametrize("transport", TRANSPORTS)
def test_what_a_worker_raises_ends_the_call_with_its_traceback(transport: str) -> None:
    executor = MpExecutor(sim_spec(num_blocks=1), num_workers=2)
    pids = worker_pids()
    engine = sim_engine(executor, transport)
    with pytest.raises(WorkerError, match=r"worker \d: IndexError") as caught:
        outputs(engine)
    assert "in forward" in caught.value.traceback_text
    assert not isinstance(caught.value, WorkerTimeout)
    wait_until_gone(pids)
    engine.close()
    with pytest.raises(WorkerError, match=r"not running any more; ended after: .*IndexError"):
        executor.open(session(transport))
    executor.close()


@pytest.mark.parametrize(("transport", "rank"), [("pipe", 0), ("shm", 0), ("shm", 2), ("zmq", 0)])
def test_a_worker_killed_in_the_middle_of_a_step_is_named(transport: str, rank: int, start_mp: StartMp) -> None:
    engine = sim_engine(start_mp(num_workers=3, step_us=LONG_STEP_US), transport)
    pids = worker_pids()
    previous = signal.signal(signal.SIGALRM, lambda *_: os.kill(pids[rank], signal.SIGKILL))
    signal.setitimer(signal.ITIMER_REAL, 0.2)  # the step is under way by then
    with pytest.raises(WorkerError, match=f"worker {rank}: was ended by SIGKILL"):
        engine.step()
    signal.signal(signal.SIGALRM, previous)
    wait_until_gone(pids)


def test_the_death_of_a_worker_that_does_not_answer_is_noticed_while_steps_go_on(start_mp: StartMp) -> None:
    executor = start_mp(num_workers=2, step_us=30_000)
    engine = sim_engine(executor, "shm", max_tokens=50)  # 1.5 s
    pids = worker_pids()
    engine.step()
    os.kill(pids[1], signal.SIGKILL)
    with pytest.raises(WorkerError, match="worker 1: was ended by SIGKILL"):
        outputs(engine)


@pytest.mark.parametrize("transport", TRANSPORTS)
def test_a_hung_worker_is_a_timeout_that_names_the_step(transport: str, start_mp: StartMp) -> None:
    engine = sim_engine(start_mp(), transport)
    pids = worker_pids()
    engine.step()
    stop(pids[0])
    engine._link._step_timeout_s = 0.5  # type: ignore[attr-defined]
    with pytest.raises(WorkerTimeout, match=r"worker 0: no answer to step 1 within 0\.5 s"):
        engine.step()
    wait_until_gone(pids)
    engine.close()


@pytest.mark.parametrize("transport", TRANSPORTS)
def test_a_hung_worker_that_makes_no_room_is_named(transport: str, start_mp: StartMp) -> None:
    link = start_mp(num_workers=2, step_timeout_s=3.0).open(session(transport))  # the other worker makes room in time
    pids = worker_pids()
    stop(pids[1])
    with pytest.raises(WorkerTimeout, match=r"worker 1: made no room for the payload within 3 s"):
        send_many(link)
    wait_until_gone(pids)
    assert link.close() == []


def send_many(link: MpLink) -> None:
    for _ in range(200):
        link.send(b"no header", bytes(1 << 18))


def test_a_worker_hung_at_the_end_of_a_session_is_named(start_mp: StartMp) -> None:
    link = start_mp(num_workers=2).open(session("shm"))
    pids = worker_pids()
    stop(pids[1])
    link._step_timeout_s = 3.0  # the other worker reports in time
    with pytest.raises(WorkerTimeout, match="worker 1: did not report within 3 s"):
        link.close()
    wait_until_gone(pids)


@pytest.mark.parametrize("transport", TRANSPORTS)
def test_an_interrupted_send_can_be_closed_and_leaves_nothing(transport: str, start_mp: StartMp) -> None:
    executor = start_mp(num_workers=2)
    link = executor.open(session(transport))
    pids = worker_pids()
    stop(pids[1])
    previous = signal.signal(signal.SIGALRM, signal.default_int_handler)
    signal.setitimer(signal.ITIMER_REAL, 0.5)  # the send waits for room by then
    with pytest.raises(KeyboardInterrupt):
        send_many(link)
    signal.signal(signal.SIGALRM, previous)
    assert link.close() == []
    executor.close()
    wait_until_gone(pids)


def test_an_engine_that_goes_on_after_a_failure_is_told_so_at_once(start_mp: StartMp) -> None:
    engine = sim_engine(start_mp(), "shm")
    os.kill(worker_pids()[0], signal.SIGKILL)
    with pytest.raises(WorkerError, match="SIGKILL"):
        engine.step()
    with pytest.raises(EngineError, match=r"a step failed \(worker 0: was ended by SIGKILL.*make a new LLM or Engine"):
        engine.step()


def test_an_error_while_loading_is_told_and_leaves_nothing() -> None:
    before = open_descriptors()
    with pytest.raises(WorkerError, match=r"worker \d: .*MemoryError"):
        MpExecutor(sim_spec(num_blocks=10**13), num_workers=2)
    assert worker_pids() == []
    assert open_descriptors() == before


def test_a_transport_of_one_process_and_a_body_by_reference_are_refused_cleanly(start_mp: StartMp) -> None:
    executor = start_mp()
    with pytest.raises(ConfigError, match="inproc does not leave its process"):
        executor.open(session("inproc"))
    link = executor.open(session("shm"))
    with pytest.raises(TransportError, match="not a StepPlan"):
        link.send(b"a header", StepPlan(0, 0, NO_ROWS, NO_ADMISSIONS, NO_WRITES, NO_WRITES, NO_ROWS, NO_ROWS))
    link.close()
    assert len(outputs(sim_engine(executor, "shm"))) == 4


def test_a_worker_that_hangs_while_it_loads_is_told_by_the_limit_for_loading() -> None:
    hangs = ("timeit", "-n", "1", "-r", "1", "import time; time.sleep(60)")
    with pytest.raises(WorkerTimeout, match=r"worker 0: has not loaded its model \(a limit apart .*\) within 0\.2 s"):
        MpExecutor(sim_spec(), step_timeout_s=60, start_timeout_s=0.2, program=hangs)
    assert worker_pids() == []


def test_a_new_session_ends_the_one_before(start_mp: StartMp) -> None:
    executor = start_mp()
    first = executor.open(session("shm"))
    second = executor.open(session("pipe"))
    assert first.close() == []
    assert len(second.close()) == 1


def test_an_executor_that_nobody_holds_ends_its_workers() -> None:
    executor = MpExecutor(sim_spec(), num_workers=2)
    pids = worker_pids()
    assert len(pids) == 2
    del executor
    gc.collect()
    assert all(is_gone(pid) for pid in pids)


def test_a_fork_of_this_process_does_not_end_its_workers(start_mp: StartMp) -> None:
    executor = start_mp()
    child = os.fork()
    if child == 0:
        try:
            executor.close()
        finally:
            os._exit(0)
    os.waitpid(child, 0)
    assert len(outputs(sim_engine(executor, "shm"))) == 4


def test_what_a_worker_prints_does_not_reach_standard_output(start_mp: StartMp) -> None:
    start_mp()
    (pid,) = worker_pids()
    assert os.readlink(f"/proc/{pid}/fd/1") == os.readlink(f"/proc/{pid}/fd/2")
    assert os.readlink(f"/proc/{pid}/fd/0") == "/dev/null"


def test_what_is_wrong_with_a_model_is_one_line_for_the_user() -> None:
    config = ModelConfig("OPTForCausalLM", "opt", 100, 8, 16, 1, 2, 2, 4, 64, True, "relu", ())
    model = ResolvedModel("opt", config, WeightsSource("safetensors", ("/nowhere/model.safetensors",)), "x")
    with pytest.raises(ModelError) as caught:
        MpExecutor(WorkerSpec(model, "float32", "cpu", 16, 8, 64))
    assert str(caught.value).startswith("/nowhere/model.safetensors")
    assert "\n" not in str(caught.value)
    assert worker_pids() == []
