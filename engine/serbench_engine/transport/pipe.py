"""Carries payloads through one kernel pipe for each receiver: lengths first, then header and body.

It knows no process and no codec. Who is gone shows at once: a pipe without a reader or a writer says so.
"""

import contextlib
import fcntl
import os
import select
import struct
from typing import Final

import msgspec

from serbench_codecs.codec import MAX_BODY_BYTES, Body
from serbench_engine.errors import TransportError, TransportTimeout
from serbench_engine.transport.base import Channel, Endpoint, Payload, Receiver, Sender
from serbench_engine.transport.channel import DescriptorChannel, close_all, require_buffer
from serbench_engine.transport.lease import Lease
from serbench_engine.transport.wait import WAIT_AUTO, Deadline, PollSource, Waiting, make_wait

PIPE_BYTES: Final = 1 << 20
"""What a user may ask for without privilege, by default."""

_PREFIX: Final = struct.Struct("<II")  # header length, body length
_PREFIX_BYTES: Final = _PREFIX.size
_READ_BYTES: Final = 1 << 18
_MOST_BYTES: Final = MAX_BODY_BYTES + (1 << 16)


class PipeSender:
    """Writes to n pipes, each as fast as its reader takes it. ``fds``: the writing ends in order, not blocking."""

    def __init__(self, fds: list[int]) -> None:
        self._fds = fds
        self._usable = True

    def send(self, header: bytes, body: Body, timeout_s: float) -> None:
        if not self._usable:
            raise TransportError("this sender is closed, or an earlier send failed")
        body = require_buffer(body, "transport pipe")
        self._usable = False
        parts = [_PREFIX.pack(len(header), len(body)), header, body]
        total = _PREFIX_BYTES + len(header) + len(body)
        left = {}
        for index in range(len(self._fds)):
            done = self._write(index, parts)
            if done < total:
                left[index] = done
        if left:
            self._finish(memoryview(b"".join(parts)), left, timeout_s)
        self._usable = True

    def close(self) -> None:
        self._usable = False
        close_all(self._fds)

    def _write(self, index: int, parts: list[bytes | bytearray | memoryview]) -> int:
        try:
            return os.writev(self._fds[index], parts)
        except BlockingIOError:
            return 0
        except BrokenPipeError:
            raise TransportError(f"receiver {index} is gone", index) from None

    def _finish(self, payload: memoryview, left: dict[int, int], timeout_s: float) -> None:
        """Write the rest to each receiver in ``left`` (index → bytes it has) as it makes room."""
        deadline = Deadline(timeout_s)
        poll = select.poll()
        index_of = {self._fds[index]: index for index in left}
        for fd in index_of:
            poll.register(fd, select.POLLOUT)
        while left:
            ready = poll.poll(deadline.left_s() * 1000)
            if not ready:
                slow = min(left)
                raise TransportTimeout(f"receiver {slow} made no room for {timeout_s:g} s", slow)
            for fd, _ in ready:
                index = index_of[fd]
                left[index] += self._write(index, [payload[left[index] :]])
                if left[index] == len(payload):
                    del left[index]
                    poll.unregister(fd)


class PipeReceiver:
    """Reads into a buffer that grows to the largest payload, and hands out views of it. Takes over ``fd``."""

    def __init__(self, waiting: Waiting, fd: int) -> None:
        self._fds = [fd]
        self._wait = make_wait(PollSource([fd], []), waiting)
        self._buffer = memoryview(bytearray(_READ_BYTES))
        self._start = 0  # of the payload that is handed out or due
        self._end = 0  # of what was read
        self._total = 0  # of the payload handed out
        self._lease = Lease(self._give_back)

    def receive(self, timeout_s: float) -> Lease:
        self._lease.check_free()
        if not self._fds:
            raise TransportError("this receiver is closed")
        if self._lacking() > 0:
            self._read(timeout_s)
        header_bytes, body_bytes = self._lengths()
        at = self._start + _PREFIX_BYTES
        body_at = at + header_bytes
        self._total = _PREFIX_BYTES + header_bytes + body_bytes
        return self._lease.hold(
            Payload(bytes(self._buffer[at:body_at]), self._buffer[body_at : body_at + body_bytes]),
        )

    def close(self) -> None:
        close_all(self._fds)

    def _give_back(self) -> None:
        self._start += self._total
        if self._start == self._end:
            self._start = self._end = 0

    def _lengths(self) -> tuple[int, int]:
        header_bytes: int
        body_bytes: int
        header_bytes, body_bytes = _PREFIX.unpack_from(self._buffer, self._start)
        return header_bytes, body_bytes

    def _lacking(self) -> int:
        """Bytes that the payload due still lacks, as far as is known; 0 if it is here."""
        there = self._end - self._start
        if there < _PREFIX_BYTES:
            return _PREFIX_BYTES - there
        header_bytes, body_bytes = self._lengths()
        if header_bytes + body_bytes > _MOST_BYTES:
            raise TransportError(f"the pipe announces {header_bytes + body_bytes} bytes, more than {_MOST_BYTES}")
        return max(0, _PREFIX_BYTES + header_bytes + body_bytes - there)

    def _read(self, timeout_s: float) -> None:
        """Read until the payload due is here."""
        deadline = None
        while (lacking := self._lacking()) > 0:
            self._make_room(lacking)
            try:
                count = os.readv(self._fds[0], [self._buffer[self._end :]])
            except BlockingIOError:
                deadline = deadline or Deadline(timeout_s)
                if not self._wait.wait(deadline.left_s()):
                    raise TransportTimeout(f"nothing from the sender for {timeout_s:g} s") from None
                continue
            if count == 0:
                raise TransportError("the sender is gone")
            self._end += count

    def _make_room(self, lacking: int) -> None:
        if self._end + lacking <= len(self._buffer):
            return
        there = self._end - self._start
        needed = there + lacking
        if needed > len(self._buffer):
            grown = memoryview(bytearray(max(needed, 2 * len(self._buffer))))
            grown[:there] = self._buffer[self._start : self._end]
            self._buffer = grown
        else:
            self._buffer[:there] = bytes(self._buffer[self._start : self._end])
        self._start, self._end = 0, there


def make_channel(num_receivers: int, waiting: Waiting = WAIT_AUTO, pipe_bytes: int = PIPE_BYTES) -> Channel:
    """A pipe for each receiver, of ``pipe_bytes`` where the kernel allows it."""
    reading, writing = [], []
    for _ in range(num_receivers):
        reader, writer = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)
        with contextlib.suppress(PermissionError):  # this user has used up the memory for pipes: smaller works too
            fcntl.fcntl(writer, fcntl.F_SETPIPE_SZ, pipe_bytes)
        reading.append(reader)
        writing.append(writer)
    receivers = [({"waiting": msgspec.to_builtins(waiting)}, [fd]) for fd in reading]
    return DescriptorChannel("pipe", ({}, writing), receivers, connect_sender, connect_receiver)


def connect_sender(endpoint: Endpoint, fds: list[int]) -> Sender:
    """The sending end, from what ``sender_endpoint`` gave; takes over the descriptors."""
    return PipeSender(fds)


def connect_receiver(endpoint: Endpoint, fds: list[int]) -> Receiver:
    """A receiving end, from what ``receiver_endpoint`` gave; takes over the descriptor."""
    return PipeReceiver(msgspec.convert(endpoint.options["waiting"], Waiting), fds[0])
