"""How a receiver waits for its descriptors. It does not know what comes through them.

Blocking in the kernel is the one way there is; a strategy that spins first is another class with the same method.
"""

import select
import time
from typing import Final, Protocol

READABLE: Final = select.POLLIN
WRITABLE: Final = select.POLLOUT
HANG_UP: Final = 0
"""Wait for the other end's death only: the kernel reports that always."""


class Wait(Protocol):
    """A way to wait."""

    def wait(self, timeout_s: float) -> bool:
        """Block until a descriptor is ready or its other end is gone; False after ``timeout_s`` (0: look once)."""
        ...


class PollWait:
    """Sleeps in the kernel, uses no CPU time. ``events``: by descriptor, READABLE, WRITABLE or HANG_UP."""

    def __init__(self, events: dict[int, int]) -> None:
        self._poll = select.poll()
        for descriptor, mask in events.items():
            self._poll.register(descriptor, mask)

    def wait(self, timeout_s: float) -> bool:
        return bool(self._poll.poll(timeout_s * 1000))


class Deadline:
    """The moment at which waiting ends; made where waiting begins, so that the fast path reads no clock."""

    __slots__ = ("_end", "timeout_s")

    def __init__(self, timeout_s: float) -> None:
        self.timeout_s = timeout_s
        self._end = time.monotonic() + timeout_s

    def left_s(self) -> float:
        """Seconds left, never negative."""
        return max(0.0, self._end - time.monotonic())
