"""The control channel: every thing that is said arrives as it was, with its descriptors, whatever its size."""

import fcntl
import os
import socket
from concurrent.futures import ThreadPoolExecutor

import pytest

from serbench_engine.errors import TransportError, TransportTimeout
from serbench_engine.executor.base import WorkerReport
from serbench_engine.executor.control import (
    ControlSocket,
    Down,
    Failed,
    Opened,
    OpenSession,
    Ready,
    Refused,
    Report,
    Shutdown,
    Start,
    Up,
)
from serbench_engine.transport.base import Endpoint
from tests.engine.executor.workers import open_descriptors, session, sim_spec

SAID: list[Down | Up] = [
    Start(2, sim_spec()),
    OpenSession(session("shm"), Endpoint("shm", "receiver", {"ring_bytes": 4096}, 4), None),
    Shutdown(),
    Ready(),
    Opened(),
    Refused(epoch=1, step=2, reason="garbage", number=3),
    Failed("ValueError", "no", "Traceback …"),
    Report(WorkerReport(0, bytes(5_000_000), 0.5, 1 << 30, "12ab")),
]


def pair() -> tuple[ControlSocket, ControlSocket]:
    ours, theirs = socket.socketpair()
    return ControlSocket(ours), ControlSocket(theirs)


def test_everything_arrives_as_it_was_said() -> None:
    left, right = pair()
    with ThreadPoolExecutor() as pool:
        heard = pool.submit(lambda: [right.receive(10.0) for _ in SAID])
        for one in SAID:
            left.send(one)
        assert heard.result() == [(one, []) for one in SAID]
    left.close()
    right.close()


def test_descriptors_travel_and_are_not_inherited_further() -> None:
    before = open_descriptors()
    left, right = pair()
    reading, writing = os.pipe()
    left.send(Ready(), [reading, writing])
    left.send(Opened())
    said, fds = right.receive(10.0)
    assert (said, len(fds)) == (Ready(), 2)
    assert right.receive(10.0) == (Opened(), [])
    os.write(fds[1], b"through the copy")
    assert os.read(reading, 100) == b"through the copy"
    for fd in fds:
        assert fcntl.fcntl(fd, fcntl.F_GETFD) & fcntl.FD_CLOEXEC
    for fd in (reading, writing, *fds):
        os.close(fd)
    left.close()
    right.close()
    assert open_descriptors() == before


def test_silence_times_out_and_a_closed_end_is_noticed() -> None:
    left, right = pair()
    with pytest.raises(TransportTimeout, match=r"0\.01 s"):
        right.receive(0.01)
    left.send(Ready())
    left.close()
    left.close()
    assert right.receive(10.0) == (Ready(), [])
    with pytest.raises(TransportError, match="the other side is gone"):
        right.receive(10.0)
    with pytest.raises(TransportError, match="control channel is closed"):
        right.send(Ready())
    right.close()


@pytest.mark.parametrize(
    "garbage", [b"\xff\xff\xff\xff\x00", b"\x03\x00\x00\x00\x00\xc1\xc1\xc1", b"\x01\x00\x00\x00\x02\x90"]
)
def test_a_channel_that_is_out_of_step_is_an_error(garbage: bytes) -> None:
    ours, theirs = socket.socketpair()
    ours.sendall(garbage)
    control = ControlSocket(theirs)
    with pytest.raises(TransportError, match=r"out of step|0 descriptors arrived where 2 were sent"):
        control.receive(10.0)
    control.close()
    ours.close()
