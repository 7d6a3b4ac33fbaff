"""Payloads that are garbled, repeated or late: the engine recovers and the outputs stay the same."""

from collections.abc import Callable
from contextlib import AbstractContextManager

import pytest

from serbench_codecs.codec import Body
from serbench_codecs.registry import CODECS
from serbench_engine.engine import Engine
from serbench_engine.errors import EngineError, WorkerError
from serbench_engine.executor.base import Link, SessionSpec, WorkerReport
from serbench_engine.executor.inproc import InprocExecutor
from serbench_engine.transport.base import Payload
from tests.engine.serving import SIM, options, random_workload, serve, serve_sim, sim_executor

Fault = Callable[[bytes, bytes], tuple[bytes, bytes]]


class FaultyLink:
    """Passes payloads on, those of the given sends changed by ``fault``. The scheduler looks ahead."""

    runs_aside = True

    def __init__(self, inner: Link, fault: Fault, at: set[int]) -> None:
        self._inner, self._fault, self._at = inner, fault, at
        self._sent = 0

    def send(self, header: bytes, body: Body) -> None:
        if self._sent in self._at:
            assert isinstance(body, bytes | bytearray | memoryview)
            header, body = self._fault(header, bytes(body))
        self._sent += 1
        self._inner.send(header, body)

    def receive(self) -> AbstractContextManager[Payload]:
        return self._inner.receive()

    def close(self) -> list[WorkerReport]:
        return self._inner.close()


class FaultyExecutor:
    """An executor whose links are faulty."""

    def __init__(self, inner: InprocExecutor, fault: Fault, at: set[int]) -> None:
        self._inner, self._fault, self._at = inner, fault, at

    @property
    def num_workers(self) -> int:
        return self._inner.num_workers

    def open(self, spec: SessionSpec) -> Link:
        return FaultyLink(self._inner.open(spec), self._fault, self._at)

    def close(self) -> None:
        self._inner.close()


def _remembered() -> Fault:
    """Sends an old payload instead of the due one."""
    seen: list[tuple[bytes, bytes]] = []

    def fault(header: bytes, body: bytes) -> tuple[bytes, bytes]:
        seen.append((header, body))
        return seen[0] if len(seen) > 1 else (header, body)

    return fault


FAULTS: dict[str, Fault] = {
    "truncated": lambda header, body: (header, body[:-1]),
    "longer": lambda header, body: (header, body + b"\0"),
    "no header": lambda header, body: (header[:5], b""),
    "garbage": lambda header, body: (b"\xa5" * len(header), b"\x5a" * len(body)),
    "another version": lambda header, body: (header[:3] + bytes([header[3] ^ 1]) + header[4:], body),
    "another kind": lambda header, body: (header[:4] + bytes([2]) + header[5:], body),
    "another codec": lambda header, body: (header[:12] + bytes(4) + header[16:], body),
    "a step early": lambda header, body: (header[:16] + bytes([header[16] ^ 0x40]) + header[17:], body),
}
WIRE_CODECS = [name for name in CODECS if name != "none"]


@pytest.mark.parametrize("codec", WIRE_CODECS)
@pytest.mark.parametrize("fault", FAULTS)
def test_outputs_survive_a_garbled_payload(codec: str, fault: str) -> None:
    workload = random_workload(1, 10, (5, 60), (5, 40))
    at = {2, 13, 40}
    executor = FaultyExecutor(sim_executor(num_blocks=40), FAULTS[fault], at)
    engine = Engine(executor, options(codec=codec, num_blocks=40, enable_prefix_caching=True), SIM)
    outcome = serve(engine, workload)
    assert outcome.report.recoveries == len(at)
    assert outcome.outputs == serve_sim(workload).outputs


@pytest.mark.parametrize("codec", WIRE_CODECS)
def test_outputs_survive_repeated_payloads(codec: str) -> None:
    workload = random_workload(2, 10, (5, 60), (5, 40))
    executor = FaultyExecutor(sim_executor(), _remembered(), {3, 9, 30})
    outcome = serve(Engine(executor, options(codec=codec), SIM), workload)
    assert outcome.report.recoveries == 2
    assert outcome.outputs == serve_sim(workload).outputs


def test_with_more_than_one_worker_the_run_ends_and_names_a_rank() -> None:
    executor = FaultyExecutor(sim_executor(num_workers=3), FAULTS["truncated"], {4})
    with pytest.raises(WorkerError, match=r"worker \d.*step 4.*3 workers"):
        serve(Engine(executor, options(codec="delta"), SIM), random_workload(3, 4, (5, 9), (9, 9)))


def test_an_engine_that_only_recovers_gives_up() -> None:
    executor = FaultyExecutor(sim_executor(), FAULTS["truncated"], set(range(100)))
    with pytest.raises(EngineError, match="in a row"):
        serve(Engine(executor, options(codec="delta"), SIM), random_workload(4, 4, (5, 9), (9, 9)))


def test_the_report_says_why_the_first_payload_was_refused() -> None:
    executor = FaultyExecutor(sim_executor(), FAULTS["truncated"], {4, 9})
    report = serve(Engine(executor, options(codec="delta"), SIM), random_workload(3, 4, (5, 9), (9, 9))).report
    assert report.recoveries == 2
    assert report.first_refusal.startswith("worker 0 refused the payload of step 4 in epoch 0: MalformedPayloadError")
