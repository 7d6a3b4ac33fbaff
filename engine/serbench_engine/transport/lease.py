"""The ``with`` block of a received payload: hands it out, gives its memory back at the end. It knows no transport."""

from collections.abc import Callable
from types import TracebackType

from serbench_engine.errors import TransportError
from serbench_engine.transport.base import Payload


class Lease:
    """One a receiver, used again for every payload: a generator-based context manager would cost more than the receive.

    ``give_back`` is called at the end of each block, when the payload's memory may be overwritten.
    """

    __slots__ = ("_give_back", "_payload")

    def __init__(self, give_back: Callable[[], None]) -> None:
        self._give_back = give_back
        self._payload: Payload | None = None

    def check_free(self) -> None:
        """Raises TransportError if the block of the payload before has not ended."""
        if self._payload is not None:
            raise TransportError("receive() before the with block of the payload before has ended")

    def hold(self, payload: Payload) -> "Lease":
        """Begin with ``payload``; the result is what ``receive`` returns."""
        self._payload = payload
        return self

    def __enter__(self) -> Payload:
        assert self._payload is not None
        return self._payload

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        payload, self._payload = self._payload, None
        if payload is not None and isinstance(payload.body, memoryview):
            try:  # noqa: SIM105 (contextlib.suppress costs more than the release)
                payload.body.release()
            except BufferError:  # a local variable of the caller still holds an array over it; it may not use it again
                pass
        self._give_back()
