"""The count of bytes that a ring's writer has published, told to its readers. It does not know what the bytes are.

There are two ways to tell it. ``Counters`` go through the kernel: the writer adds to an eventfd of each reader, and its
calls order memory on every architecture. ``Words`` lie in shared memory, so that telling and hearing cost no call
while the reader looks; each reader has an eventfd beside it, its bell, that is rung only where it sleeps. Why that is
sound on x86-64, and so used there only:

- A word has 8 bytes at a multiple of 64 and one writer. ``memoryview.cast("Q")`` copies exactly 8 bytes, which is one
  aligned move: no reader sees half of a count.
- Processors of this architecture show a process's stores to the others in program order, and load in program order
  (Intel SDM vol. 3, 9.2.2; AMD APM vol. 2, 7.1). String moves may be out of order among themselves but not against the
  stores after them, and the C library fences what it stores past the caches. The compiler can't change the order
  either: payload and word are written by different calls of the interpreter. So who sees the count sees the payload.
- Only a load may overtake an earlier store to another place. That is what would lose a wake-up: the writer stores the
  count and looks whether the reader sleeps, the reader says that it sleeps and looks at the count, and both miss the
  other. Both therefore take and release a lock of their own in between: an uncontended lock is an instruction with the
  LOCK prefix, which nothing overtakes. One of the two then sees the other's store.
"""

import mmap
import os
import platform
import threading
from collections.abc import Callable
from typing import Final, Protocol

from serbench_engine.transport.wait import PollSource, Source

WORDS_ARE_SOUND: Final = platform.machine() in ("x86_64", "AMD64")

PAGE_BYTES: Final = mmap.PAGESIZE
"""The words lie before the ring in its memory, in a page of their own."""

MOST_READERS: Final = PAGE_BYTES // 64 - 1

_WORD: Final = 8  # between two words, in words: each has a cache line of its own
_COUNT: Final = 0  # the place of the writer's word; then one for each reader: 1 while it sleeps


class Teller(Protocol):
    """The writer's side."""

    def tell(self, count: int) -> None:
        """So many bytes more are published."""
        ...

    def close(self) -> None:
        """Let go of shared memory; not of descriptors."""
        ...


class Hearer(Source, Protocol):
    """A reader's side; as a Source it is there when ``take`` has something."""

    def take(self) -> int:
        """Bytes published since the last call."""
        ...

    def close(self) -> None:
        """As ``Teller.close``."""
        ...


class WordTeller:
    """Rings the ``bells`` (a descriptor for each reader) of those that sleep."""

    def __init__(self, memory: int, bells: list[int]) -> None:
        self._words = Words(memory)
        self._view = self._words.view
        self._sleepers = [(_sleeps(index), bell) for index, bell in enumerate(bells)]
        self._total = 0
        self._fence = threading.Lock()

    def tell(self, count: int) -> None:
        self._total = total = self._total + count
        view = self._view
        view[_COUNT] = total
        with self._fence:  # the store above comes before the loads below
            pass
        for sleeps, bell in self._sleepers:
            if view[sleeps]:
                os.eventfd_write(bell, 1)

    def close(self) -> None:
        self._words.close()


class WordHearer:
    """Reader number ``index``. ``before_sleep`` is called each time before it may sleep."""

    def __init__(self, memory: int, index: int, bell: int, lifeline: int, before_sleep: Callable[[], None]) -> None:
        self._words = Words(memory)
        self._view = self._words.view
        self._sleeps = _sleeps(index)
        self._bell = bell
        self._source = PollSource([bell], [lifeline])
        self._before_sleep = before_sleep
        self._heard = 0
        self._fence = threading.Lock()

    def take(self) -> int:
        total = self._view[_COUNT]
        count = total - self._heard
        self._heard = total
        return count

    def glance(self) -> bool:
        return self._view[_COUNT] != self._heard

    def block(self, timeout_s: float) -> bool:
        """Sleep; a bell that rang too late for the sleep before may end it for nothing."""
        self._before_sleep()
        view = self._view
        view[self._sleeps] = 1
        try:
            with self._fence:  # the store above comes before the load below
                pass
            if view[_COUNT] != self._heard:
                return True
            woken = self._source.block(timeout_s)
        finally:
            view[self._sleeps] = 0
        if woken:
            _hush(self._bell)
        return woken

    def close(self) -> None:
        self._words.close()


class Words:
    """The page of words, mapped: ``view`` uint64[…]."""

    def __init__(self, memory: int) -> None:
        self._map = mmap.mmap(memory, PAGE_BYTES, flags=mmap.MAP_SHARED | mmap.MAP_POPULATE)
        self._bytes = memoryview(self._map)
        self.view = self._bytes.cast("Q")

    def close(self) -> None:
        """Unmap. Idempotent."""
        self.view.release()
        self._bytes.release()
        self._map.close()


class CounterTeller:
    """Adds to an eventfd of each reader."""

    def __init__(self, counters: list[int]) -> None:
        self._counters = counters

    def tell(self, count: int) -> None:
        for counter in self._counters:
            os.eventfd_write(counter, count)

    def close(self) -> None:
        """There is no memory."""


class CounterHearer:
    """Takes what is in an eventfd, which does not block. ``before_sleep`` as in WordHearer."""

    def __init__(self, counter: int, lifeline: int, before_sleep: Callable[[], None]) -> None:
        self._counter = counter
        self._published = PollSource([counter], [])
        self._source = PollSource([counter], [lifeline])
        self._before_sleep = before_sleep

    def take(self) -> int:
        try:
            return os.eventfd_read(self._counter)
        except BlockingIOError:
            return 0

    def glance(self) -> bool:
        return self._published.glance()

    def block(self, timeout_s: float) -> bool:
        self._before_sleep()
        return self._source.block(timeout_s)

    def close(self) -> None:
        """There is no memory."""


def _sleeps(index: int) -> int:
    """The place of reader ``index``'s word."""
    return (1 + index) * _WORD


def _hush(bell: int) -> None:
    try:  # noqa: SIM105 (contextlib.suppress costs more than the call)
        os.eventfd_read(bell)
    except BlockingIOError:  # woken by the lifeline
        pass
