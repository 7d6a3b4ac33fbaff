"""What only sockets need: who may write, who may read, garbage, and nothing left behind."""

import contextlib
import os
import socket
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import zmq

from serbench_engine.errors import TransportError, TransportTimeout
from serbench_engine.transport.base import Endpoint, Receiver, Sender
from serbench_engine.transport.lifeline import make_lifeline
from serbench_engine.transport.zeromq import connect_receiver, make_channel

WAIT_S = 30.0
GREETING = 0xFF  # the first byte of ZeroMQ's protocol


@pytest.fixture
def ends() -> Iterator[tuple[Sender, Receiver, str]]:
    """Both ends and the abstract name in between."""
    channel = make_channel(1)
    (name,) = _names()
    sender, receiver = channel.sender(), channel.receiver(0)
    channel.close()
    yield sender, receiver, name
    sender.close()
    receiver.close()
    assert not _names()


def _names() -> list[str]:
    """The abstract names of this transport on which this process listens."""
    ours = {os.readlink(one.path) for one in os.scandir("/proc/self/fd") if os.path.lexists(one.path)}
    found = []
    for line in Path("/proc/net/unix").read_text().splitlines()[1:]:
        fields = line.split()
        if len(fields) == 8 and fields[7].startswith("@serbench-") and f"socket:[{fields[6]}]" in ours:
            found.append(fields[7][1:])
    return sorted(set(found))


def _take(receiver: Receiver) -> tuple[bytes, bytes]:
    with receiver.receive(WAIT_S) as payload:
        assert isinstance(payload.body, memoryview)
        return bytes(payload.header), bytes(payload.body)


def test_nobody_can_write_to_a_receiver_through_its_sender(ends: tuple[Sender, Receiver, str]) -> None:
    """A PUSH that connects, and raw bytes, reach the sender's socket, which reads nothing; the payloads still flow."""
    sender, receiver, name = ends
    sender.send(b"1", b"ours", WAIT_S)
    assert _take(receiver) == (b"1", b"ours")
    context = zmq.Context()
    intruder = context.socket(zmq.PUSH)
    intruder.connect(f"ipc://@{name}")
    raw = socket.socket(socket.AF_UNIX)
    raw.connect("\0" + name)
    raw.sendall(b"\xff" * 64 + b"garbage")
    with contextlib.suppress(zmq.Again):  # it has been turned away already
        intruder.send_multipart([b"2", b"injected"], zmq.NOBLOCK)
    with pytest.raises(TransportTimeout):
        receiver.receive(0.1)
    sender.send(b"2", b"ours", WAIT_S)
    assert _take(receiver) == (b"2", b"ours")
    raw.close()
    intruder.close(linger=0)
    context.term()


def test_neither_end_gives_up_on_one_that_is_made_late() -> None:
    """A receiver that had connected 33 s before its sender was made got nothing; to wait for that takes too long."""
    made: list[zmq.Socket[bytes]] = []

    class Recorded(zmq.Context["zmq.Socket[bytes]"]):
        def socket(self, *arguments: Any, **options: Any) -> "zmq.Socket[bytes]":
            made.append(super().socket(*arguments, **options))
            return made[-1]

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(zmq, "Context", Recorded)
        channel = make_channel(1)
        sender, receiver = channel.sender(), channel.receiver(0)
    channel.close()
    assert [one.getsockopt(zmq.HANDSHAKE_IVL) for one in made] == [0, 0]
    sender.close()
    receiver.close()


def test_a_receiver_listens_nowhere(ends: tuple[Sender, Receiver, str]) -> None:
    sender, receiver, name = ends
    sender.send(b"1", b"", WAIT_S)
    assert _take(receiver) == (b"1", b"")
    sender.close()
    with pytest.raises(ConnectionRefusedError), socket.socket(socket.AF_UNIX) as raw:
        raw.connect("\0" + name)
    with socket.socket(socket.AF_UNIX) as usurper:  # takes over the name: the receiver must not come back
        usurper.bind("\0" + name)
        usurper.listen()
        usurper.settimeout(0.5)
        with pytest.raises(TimeoutError):
            usurper.accept()
    with pytest.raises(TransportError, match="sender is gone"):
        receiver.receive(0.0)


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can become another user")
@pytest.mark.parametrize("user", [0, 65534])
def test_other_users_are_turned_away(ends: tuple[Sender, Receiver, str], user: int) -> None:
    _, _, name = ends
    heard, told = os.pipe()
    child = os.fork()
    if child == 0:
        try:
            os.setuid(user)
            raw = socket.socket(socket.AF_UNIX)
            raw.settimeout(WAIT_S)
            raw.connect("\0" + name)
            os.write(told, raw.recv(1) or b"-")
        finally:
            os._exit(0)
    os.close(told)
    first = os.read(heard, 1)
    os.close(heard)
    os.waitpid(child, 0)
    assert first == (bytes([GREETING]) if user == 0 else b"-")


@pytest.mark.parametrize("parts", [[b"one"], [b"h", b"b", b"three"], [b""] * 50])
def test_another_number_of_parts_is_an_error_and_no_crash(parts: list[bytes]) -> None:
    ours, theirs = make_lifeline()
    context = zmq.Context()
    push = context.socket(zmq.PUSH)
    push.bind("ipc://@serbench-test-*")
    address = push.getsockopt_string(zmq.LAST_ENDPOINT)
    receiver = connect_receiver(Endpoint("zmq", "receiver", {"address": address, "waiting": {}}, 1), [theirs])
    push.send_multipart(parts)
    with pytest.raises(TransportError, match=f"{len(parts)} parts"):
        receiver.receive(WAIT_S)
    push.send_multipart([b"header", b"body"])
    assert _take(receiver) == (b"header", b"body")
    receiver.close()
    push.close(linger=0)
    context.term()
    os.close(ours)
