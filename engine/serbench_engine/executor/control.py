"""The control channel between an executor and one worker: what is said on it, and how it travels with descriptors.

It does not know who starts a worker or what a session does. Payloads never pass here: this is for opening sessions, for
errors and for reports.
"""

import socket
import struct
from array import array
from collections.abc import Sequence
from typing import Final, TypeAlias

import msgspec

from serbench_engine.errors import TransportError, TransportTimeout
from serbench_engine.executor.base import SessionSpec, WorkerReport, WorkerSpec
from serbench_engine.transport.base import Endpoint


class Start(msgspec.Struct, frozen=True, tag=True):
    """Down, first: load this."""

    rank: int
    spec: WorkerSpec


class OpenSession(msgspec.Struct, frozen=True, tag=True):
    """Down: a new session; the descriptors of ``plans`` and then of ``results`` travel beside it."""

    spec: SessionSpec
    plans: Endpoint
    results: Endpoint | None


class Shutdown(msgspec.Struct, frozen=True, tag=True):
    """Down, last: end the process."""


class Ready(msgspec.Struct, frozen=True, tag=True):
    """Up: the model is loaded."""


class Opened(msgspec.Struct, frozen=True, tag=True):
    """Up: both ends of the session's channels are connected."""


class Refused(msgspec.Struct, frozen=True, tag=True):
    """Up: the session's payload ``number`` (the first is 1) could not be used; nothing was run."""

    epoch: int
    step: int
    reason: str
    number: int


class Failed(msgspec.Struct, frozen=True, tag=True):
    """Up, last: the worker ends. ``kind`` is the name of the exception's class."""

    kind: str
    reason: str
    traceback_text: str


class Report(msgspec.Struct, frozen=True, tag=True):
    """Up: the session has ended."""

    report: WorkerReport


Down: TypeAlias = Start | OpenSession | Shutdown
Up: TypeAlias = Ready | Opened | Refused | Failed | Report

_PREFIX: Final = struct.Struct("<IB")  # bytes of the rest, descriptors beside it
_MOST_FDS: Final = 64
_MOST_BYTES: Final = 1 << 30
_SEND_TIMEOUT_S: Final = 10.0


class ControlSocket:
    """One end of a stream socket pair; one thread at a time receives, one sends. Takes over ``connection``."""

    def __init__(self, connection: socket.socket) -> None:
        self._socket = connection
        self._encoder = msgspec.msgpack.Encoder()
        self._decoder = msgspec.msgpack.Decoder(Down | Up)

    def fileno(self) -> int:
        """For poll; -1 once closed."""
        return self._socket.fileno()

    def send(self, what: Down | Up, fds: Sequence[int] = ()) -> None:
        """Say something; the descriptors stay open on this side.

        Raises:
            TransportError: the other side is gone, or has read nothing for ten seconds.
        """
        data = self._encoder.encode(what)
        prefix = _PREFIX.pack(len(data), len(fds))
        try:
            self._socket.settimeout(_SEND_TIMEOUT_S)
            ancillary = [(socket.SOL_SOCKET, socket.SCM_RIGHTS, array("i", fds))] if fds else []
            self._socket.sendmsg([prefix], ancillary)  # so short that it is taken whole
            self._socket.sendall(data)
        except TimeoutError:
            raise TransportTimeout(f"the control channel took nothing for {_SEND_TIMEOUT_S:g} s") from None
        except OSError as error:
            raise TransportError(f"the control channel is closed: {error.strerror}") from None

    def receive(self, timeout_s: float | None) -> tuple[Down | Up, list[int]]:
        """Hear something, and own the descriptors beside it. ``timeout_s`` None waits for ever.

        Raises:
            TransportTimeout: nothing (or only half of it) came within ``timeout_s``.
            TransportError: the other side is gone, or an interrupted ``receive`` has left half of something behind.
        """
        try:
            self._socket.settimeout(timeout_s)
            prefix, fds = self._prefix()
            length, num_fds = _PREFIX.unpack(prefix)
            if length > _MOST_BYTES:
                raise TransportError(f"the control channel is out of step: it announces {length} bytes")
            data = self._exactly(length)
        except TimeoutError:
            raise TransportTimeout(f"nothing on the control channel for {timeout_s:g} s") from None
        except OSError as error:
            raise TransportError(f"the control channel is closed: {error.strerror}") from None
        if len(fds) != num_fds:
            raise TransportError(f"{len(fds)} descriptors arrived where {num_fds} were sent")
        try:
            return self._decoder.decode(data), fds
        except msgspec.DecodeError as error:
            raise TransportError(f"the control channel is out of step: {error}") from None

    def close(self) -> None:
        """Close this end: the other one hangs up. Idempotent."""
        self._socket.close()

    def _prefix(self) -> tuple[bytes, list[int]]:
        room = socket.CMSG_SPACE(_MOST_FDS * array("i").itemsize)
        prefix, ancillary, _, _ = self._socket.recvmsg(_PREFIX.size, room, socket.MSG_CMSG_CLOEXEC)
        if not prefix:
            raise TransportError("the control channel is closed: the other side is gone")
        fds = array("i")
        for level, kind, data in ancillary:
            if (level, kind) == (socket.SOL_SOCKET, socket.SCM_RIGHTS):
                fds.frombytes(data)
        return prefix + self._exactly(_PREFIX.size - len(prefix)), fds.tolist()

    def _exactly(self, count: int) -> bytes:
        data = bytearray(count)
        view, done = memoryview(data), 0
        while done < count:
            got = self._socket.recv_into(view[done:])
            if got == 0:
                raise TransportError("the control channel is closed: the other side is gone")
            done += got
        return bytes(data)
