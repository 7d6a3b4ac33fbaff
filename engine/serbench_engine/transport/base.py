"""What a transport is: channels with one sender and n receivers of payloads. It does not look into payloads.

A channel is made in the scheduler's process. Its ends for other processes travel as an Endpoint (plain data) and file
descriptors beside it, over the control socket, so that living workers can be given new channels between repeats.
"""

from contextlib import AbstractContextManager
from typing import Any, Protocol

import msgspec

from serbench_codecs.codec import Body


class Payload(msgspec.Struct, frozen=True):
    """A received payload; ``header`` and ``body`` are valid only within the ``with`` block that handed it out.

    A body of bytes comes as a memoryview; a plan or a result that never left its process comes as itself.
    """

    header: bytes | memoryview
    body: Body


class Sender(Protocol):
    """The one writing end of a channel, for one thread at a time."""

    def send(self, header: bytes, body: Body, timeout_s: float) -> None:
        """Hand a payload to every receiver, whole and in order; it may be larger than any buffer inside.

        Both arguments may be reused as soon as it returns. A send that fails or is interrupted ends the channel,
        because some receivers may have more of the payload than others: every later send raises TransportError.

        Raises:
            TransportTimeout: a receiver made no room within ``timeout_s``; names the receiver's number.
            TransportError: a receiver is gone (noticed at the latest when its buffer is full), or the body is no buffer
                and this transport leaves the process.
        """
        ...

    def close(self) -> None:
        """Release this end; idempotent. What the receivers have not received yet may be lost."""
        ...


class Receiver(Protocol):
    """One of the reading ends of a channel, for one thread at a time."""

    def receive(self, timeout_s: float) -> AbstractContextManager[Payload]:
        """Wait for the next payload. What it hands out is valid within the ``with`` block only.

        A timeout loses nothing: the next call goes on where this one stopped, also in the middle of a payload.

        Raises:
            TransportTimeout: nothing came within ``timeout_s`` (0: look once).
            TransportError: the sender is gone and everything it sent has been received.
        """
        ...

    def close(self) -> None:
        """Release this end; idempotent, and harmless while views of a payload are still alive."""
        ...


class Endpoint(msgspec.Struct, frozen=True):
    """An end of a channel for another process; ``fds`` counts the descriptors that travel beside it."""

    transport: str
    role: str
    options: dict[str, Any]
    fds: int


class Channel(Protocol):
    """One sender, n receivers, made in the scheduler's process. Each end is used once, here or elsewhere."""

    def sender(self) -> Sender:
        """The sending end, here."""
        ...

    def receiver(self, index: int) -> Receiver:
        """Receiving end ``index``, here."""
        ...

    def sender_endpoint(self) -> tuple[Endpoint, list[int]]:
        """The sending end for another process, with descriptors to pass (they stay open here until ``close``).

        Raises:
            TransportError: this transport does not leave its process.
        """
        ...

    def receiver_endpoint(self, index: int) -> tuple[Endpoint, list[int]]:
        """Receiving end ``index`` for another process; as ``sender_endpoint``."""
        ...

    def close(self) -> None:
        """Release what the ends here do not own; idempotent. Ends made here are closed by their users.

        Call it as soon as the other processes have their ends: only then is the end of such a process noticed.
        """
        ...
