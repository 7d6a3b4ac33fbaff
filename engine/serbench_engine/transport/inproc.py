"""Hands payloads over within one process, by reference, between any threads. It serializes nothing.

It does not know what it carries; mutable buffers are copied, because their owner may write the next payload into them.
"""

import queue
from typing import Final, TypeAlias

from serbench_codecs.codec import Body
from serbench_engine.errors import TransportError, TransportTimeout
from serbench_engine.transport.base import Channel, Endpoint, Payload, Receiver, Sender
from serbench_engine.transport.lease import Lease
from serbench_engine.transport.wait import WAIT_AUTO, Waiting

DEPTH: Final = 64
"""Payloads that a receiver may lag behind."""

_STAYS: Final = "transport inproc does not leave its process; between processes use pipe, shm or zmq"

Queue: TypeAlias = "queue.SimpleQueue[Payload | None]"
Room: TypeAlias = "queue.SimpleQueue[bool]"


class _Pipe:
    """What lies between the sender and one receiver; None ends ``payloads``, False ends ``room``."""

    def __init__(self, depth: int) -> None:
        self.payloads: Queue = queue.SimpleQueue()
        self.room: Room = queue.SimpleQueue()
        for _ in range(depth):
            self.room.put(True)


class InprocSender:
    """Puts one reference into every receiver's queue."""

    def __init__(self, pipes: list[_Pipe]) -> None:
        self._pipes = pipes
        self._usable = True

    def send(self, header: bytes, body: Body, timeout_s: float) -> None:
        if not self._usable:
            raise TransportError("this sender is closed, or an earlier send failed")
        self._usable = False
        payload = Payload(header, _stable(body))
        for index, pipe in enumerate(self._pipes):
            if not self._room(pipe, index, timeout_s):
                raise TransportError(f"receiver {index} is closed", index)
            pipe.payloads.put(payload)
        self._usable = True

    def close(self) -> None:
        self._usable = False
        for pipe in self._pipes:
            pipe.payloads.put(None)
        self._pipes = []

    def _room(self, pipe: _Pipe, index: int, timeout_s: float) -> bool:
        try:
            return pipe.room.get(timeout=timeout_s)
        except queue.Empty:
            raise TransportTimeout(f"receiver {index} took nothing for {timeout_s:g} s", index) from None


class InprocReceiver:
    """Takes references out of its queue."""

    def __init__(self, pipe: _Pipe, index: int) -> None:
        self._pipe = pipe
        self._index = index
        self._lease = Lease(self._give_back)
        self._open = True

    def receive(self, timeout_s: float) -> Lease:
        self._lease.check_free()
        if not self._open:
            raise TransportError("this receiver is closed")
        try:
            payload = self._pipe.payloads.get(timeout=timeout_s)
        except queue.Empty:
            raise TransportTimeout(f"receiver {self._index} got nothing from the sender for {timeout_s:g} s") from None
        if payload is None:
            self._pipe.payloads.put(None)
            raise TransportError("the sender is closed")
        if isinstance(payload.body, bytes):
            payload = Payload(payload.header, memoryview(payload.body))
        return self._lease.hold(payload)

    def close(self) -> None:
        if self._open:
            self._open = False
            while not self._pipe.room.empty():
                self._pipe.room.get()
            self._pipe.room.put(False)

    def _give_back(self) -> None:
        if self._open:
            self._pipe.room.put(True)


class InprocChannel:
    """Queues between threads of one process."""

    def __init__(self, num_receivers: int, depth: int = DEPTH) -> None:
        self._pipes = [_Pipe(depth) for _ in range(num_receivers)]

    def sender(self) -> InprocSender:
        return InprocSender(self._pipes)

    def receiver(self, index: int) -> InprocReceiver:
        return InprocReceiver(self._pipes[index], index)

    def sender_endpoint(self) -> tuple[Endpoint, list[int]]:
        raise TransportError(_STAYS)

    def receiver_endpoint(self, index: int) -> tuple[Endpoint, list[int]]:
        return self.sender_endpoint()

    def close(self) -> None:
        self._pipes = []


def _stable(body: Body) -> Body:
    return bytes(body) if isinstance(body, bytearray | memoryview) else body


def make_channel(num_receivers: int, waiting: Waiting = WAIT_AUTO) -> Channel:
    """Queues for ``num_receivers``. In one process there is nothing to spin for: their threads sleep."""
    return InprocChannel(num_receivers)


def connect_sender(endpoint: Endpoint, fds: list[int]) -> Sender:
    """No end of this transport can come from another process. Raises TransportError."""
    raise TransportError(_STAYS)


def connect_receiver(endpoint: Endpoint, fds: list[int]) -> Receiver:
    """As ``connect_sender``."""
    raise TransportError(_STAYS)
