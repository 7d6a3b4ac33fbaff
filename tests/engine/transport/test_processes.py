"""Channels whose other ends are in real processes: whole conversations, deaths, and nothing left behind."""

import gc
import os
import subprocess
import sys
import zlib
from collections.abc import Callable, Iterator
from pathlib import Path

import msgspec
import numpy as np
import pytest

from serbench_engine.errors import TransportError, TransportTimeout
from serbench_engine.transport.base import Channel, Endpoint, Receiver
from serbench_engine.transport.registry import Transport

CHILD = Path(__file__).with_name("child.py")
WAIT_S = 60.0
MEBIBYTE = 1 << 20

Started = subprocess.Popen[str]
Start = Callable[..., Started]


@pytest.fixture
def start() -> Iterator[Start]:
    """Starts children; whatever is an endpoint among the arguments is handed over."""
    children: list[Started] = []

    def begin(*arguments: str | tuple[Endpoint, list[int]]) -> Started:
        words: list[str] = []
        passed: list[int] = []
        for one in arguments:
            if isinstance(one, str):
                words.append(one)
            else:
                endpoint, fds = one
                words.append(f"{msgspec.json.encode(endpoint).decode()}={','.join(map(str, fds))}")
                passed += fds
        environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
        command = [sys.executable, str(CHILD), *words]
        child = subprocess.Popen(command, pass_fds=passed, env=environment, stdout=subprocess.PIPE, text=True)
        children.append(child)
        return child

    yield begin
    for child in children:
        child.kill()
        finish(child)


def finish(child: Started) -> int:
    """Wait for its end and close what it wrote to."""
    code = child.wait()
    if child.stdout is not None:
        child.stdout.close()
    return code


def line(child: Started) -> str:
    assert child.stdout is not None
    return child.stdout.readline().strip()


def traces() -> tuple[int, bool]:
    """What a transport might leave behind in this process: descriptors, and memory that is still mapped."""
    return len(os.listdir("/proc/self/fd")), "memfd:serbench" in Path("/proc/self/maps").read_text()


def named_files() -> list[str]:
    """Files that would stay if this process were killed now."""
    held = [os.readlink(one.path) for one in os.scandir("/proc/self/fd") if os.path.lexists(one.path)]
    held += Path("/proc/self/maps").read_text().split()
    return [one for one in held if one.startswith(("/tmp/", "/dev/shm/")) and os.path.lexists(one)]


@pytest.mark.parametrize("num_receivers", [1, 3])
def test_children_get_everything_in_order(process_transport: Transport, num_receivers: int, start: Start) -> None:
    """10,000 payloads of many sizes, one child falling behind; nothing is left when both sides are done."""
    gc.collect()  # what other tests have left, which might go meanwhile
    before, files = traces(), named_files()
    rng = np.random.default_rng(4)
    noise = rng.bytes(8 * MEBIBYTE)
    sizes = [int(size) for size in rng.integers(0, 600, 10_000)]
    for number, size in enumerate((MEBIBYTE - 1, MEBIBYTE, 4 * MEBIBYTE, 4 * MEBIBYTE + 1, 8 * MEBIBYTE)):
        sizes[1000 * (number + 1)] = size
    channel = process_transport.make_channel(num_receivers)
    children = []
    for index in range(num_receivers):
        pause_s = "0.3" if index == num_receivers - 1 else "0"
        children.append(start("sum", str(len(sizes)), pause_s, channel.receiver_endpoint(index)))
    sender = channel.sender()
    channel.close()
    assert named_files() == files
    expected = 0
    for number, size in enumerate(sizes):
        header, body = number.to_bytes(4), noise[number : number + size]
        expected = zlib.crc32(body, zlib.crc32(header, expected))
        sender.send(header, memoryview(body), WAIT_S)
    for child in children:
        assert line(child) == str(expected)
        assert finish(child) == 0
    sender.close()
    assert traces() == before


def test_there_and_back(process_transport: Transport, start: Start) -> None:
    out, back = process_transport.make_channel(1), process_transport.make_channel(1)
    child = start("echo", out.receiver_endpoint(0), back.sender_endpoint())
    sender, receiver = out.sender(), back.receiver(0)
    out.close()
    back.close()
    for number, size in enumerate([0, 1, 65536, 10 * MEBIBYTE, 7, 10 * MEBIBYTE, 0]):
        body = os.urandom(size)
        sender.send(bytes([number]), body, WAIT_S)
        with receiver.receive(WAIT_S) as payload:
            assert payload == type(payload)(bytes([number]), memoryview(body))
    sender.send(b"", b"", WAIT_S)
    assert finish(child) == 0
    with pytest.raises(TransportError, match="sender is gone"):
        receiver.receive(WAIT_S)
    sender.close()
    receiver.close()


def test_a_killed_receiver_is_named(process_transport: Transport, start: Start) -> None:
    channel = process_transport.make_channel(2)
    child = start("hold", channel.receiver_endpoint(1))
    sender, first = channel.sender(), channel.receiver(0)
    channel.close()
    sender.send(b"header", b"body", WAIT_S)
    assert line(child) == "held"
    child.kill()
    child.wait()
    with pytest.raises(TransportError, match="receiver 1 is gone") as caught:
        send_and_drain(sender.send, first)
    assert not isinstance(caught.value, TransportTimeout)
    assert caught.value.receiver == 1
    sender.close()
    first.close()


def send_and_drain(send: Callable[[bytes, bytes, float], None], receiver: Receiver) -> None:
    for _ in range(200):
        send(b"header", bytes(65536), WAIT_S)
        with receiver.receive(WAIT_S):
            pass


def test_a_stopped_receiver_is_named(process_transport: Transport, start: Start) -> None:
    channel: Channel = process_transport.make_channel(2)
    child = start("hold", channel.receiver_endpoint(1))
    sender, first = channel.sender(), channel.receiver(0)
    channel.close()
    sender.send(b"header", b"body", WAIT_S)
    assert line(child) == "held"
    with pytest.raises(TransportTimeout, match=r"receiver 1 made no room for 2 s"):
        send_and_drain(lambda header, body, _: sender.send(header, body, 2.0), first)
    sender.close()
    first.close()


def test_a_killed_sender_is_noticed_after_what_it_sent(process_transport: Transport, start: Start) -> None:
    channel = process_transport.make_channel(2)
    child = start("send", channel.sender_endpoint())
    receivers = [channel.receiver(index) for index in range(2)]
    channel.close()
    assert line(child) == "sent"
    with receivers[0].receive(WAIT_S) as payload:
        assert payload.header == b"header"
    with receivers[1].receive(WAIT_S) as payload:
        assert payload.body == memoryview(b"body")
    child.kill()
    for receiver in receivers:
        with pytest.raises(TransportError, match="sender is gone") as caught:
            receiver.receive(WAIT_S)
        assert not isinstance(caught.value, TransportTimeout)
        receiver.close()
