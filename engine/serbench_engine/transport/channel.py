"""A channel whose ends are descriptors and plain options, as every transport between processes has it.

It does not know what flows through the descriptors.
"""

import os
from collections.abc import Callable
from typing import Any, Final

from serbench_codecs.codec import Body, Buffer
from serbench_engine.errors import TransportError
from serbench_engine.transport.base import Endpoint, Receiver, Sender

_BYTES: Final = (bytes, bytearray)


def close_all(fds: list[int]) -> None:
    """Close descriptors and forget them."""
    while fds:
        os.close(fds.pop())


def duplicate(fds: list[int]) -> list[int]:
    """Second descriptors of the same things, for the end of a channel in another process or object."""
    return [os.dup(fd) for fd in fds]


def require_buffer(body: Body, transport: str) -> Buffer:
    """``body`` if it can leave the process.

    Raises:
        TransportError: it is a plan or a result itself, or a memoryview of something else than contiguous bytes.
    """
    if isinstance(body, _BYTES):  # not a union of types: that is made anew for every payload
        return body
    if isinstance(body, memoryview):
        if body.ndim != 1 or body.itemsize != 1 or not body.contiguous:
            raise TransportError(f"{transport} carries flat bytes, not a memoryview of format {body.format!r}")
        return body
    raise TransportError(
        f"{transport} carries bytes between processes, not a {type(body).__name__}: "
        "a codec that hands plans over by reference (none) needs executor and transport inproc"
    )


class ChannelEnd:
    """One end that nobody holds yet: options for whoever connects, and the descriptors, owned until they are taken."""

    def __init__(self, endpoint: Endpoint, fds: list[int]) -> None:
        self.endpoint = endpoint
        self._fds = fds
        self._used = False

    def take(self) -> tuple[Endpoint, list[int]]:
        """The end for use here: the descriptors change hands."""
        endpoint, fds = self.lend()
        self._fds = []
        return endpoint, fds

    def lend(self) -> tuple[Endpoint, list[int]]:
        """The end for another process: the descriptors stay open here until ``close``."""
        if self._used:
            raise TransportError(f"this {self.endpoint.role} end of {self.endpoint.transport} is in use already")
        self._used = True
        return self.endpoint, self._fds

    def close(self) -> None:
        """Close what was not taken."""
        self._used = True
        close_all(self._fds)


class DescriptorChannel:
    """The Channel of every transport between processes; ``connect_*`` make an end from options and descriptors."""

    def __init__(
        self,
        transport: str,
        sender: tuple[dict[str, Any], list[int]],
        receivers: list[tuple[dict[str, Any], list[int]]],
        connect_sender: Callable[[Endpoint, list[int]], Sender],
        connect_receiver: Callable[[Endpoint, list[int]], Receiver],
    ) -> None:
        def end(role: str, options: dict[str, Any], fds: list[int]) -> ChannelEnd:
            return ChannelEnd(Endpoint(transport, role, options, len(fds)), fds)

        self._sender = end("sender", *sender)
        self._receivers = [end("receiver", *one) for one in receivers]
        self._connect_sender = connect_sender
        self._connect_receiver = connect_receiver

    def sender(self) -> Sender:
        return self._connect_sender(*self._sender.take())

    def receiver(self, index: int) -> Receiver:
        return self._connect_receiver(*self._receivers[index].take())

    def sender_endpoint(self) -> tuple[Endpoint, list[int]]:
        return self._sender.lend()

    def receiver_endpoint(self, index: int) -> tuple[Endpoint, list[int]]:
        return self._receivers[index].lend()

    def close(self) -> None:
        for one in (self._sender, *self._receivers):
            one.close()
