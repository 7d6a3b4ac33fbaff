"""How a receiver waits: asleep in the kernel, spinning, or what the waits before suggest. It does not know for what.

Spinning saves the wake-up of a process, 5 to 50 µs, and a core's first 100 µs after a sleep, in which it is slow; it
costs the time of a core. ``auto`` buys the one with the other only where that is cheap: it looks at the last few waits
and

- spins through where they were short (SPIN_S), not much longer than they lasted;
- spins for up to SPIN_THROUGH_S where somebody has told that a core is spare while they last, and they were no longer
  than that;
- sleeps all along else, and where this end was busy for more than SPIN_THROUGH_S before: then the other end is asleep,
  and a virtual machine wakes it on this core rather than on one that it takes for unavailable since it is halted. To
  sleep first and spin towards the expected end of a long wait was tried: that meets on one core as often.

After a spin in vain it sleeps through the next wait, and through eight times as many after another: where there are
more processes than cores, the one that is waited for may have none while this one spins. So it goes on spinning only if
three spins of four succeed. And it sleeps all along while others want its core (contention.py).

The other end must be another process: a thread that spins keeps the interpreter from the others of its process.
"""

import math
import os
import select
import time
from collections import deque
from collections.abc import Callable
from typing import Final, Literal, Protocol, TypeAlias

import msgspec

from serbench_engine.transport.contention import Contention

WaitKind: TypeAlias = Literal["auto", "spin", "block"]
Clock: TypeAlias = Callable[[], float]

SPIN_S: Final = 250e-6
"""The longest that ``auto`` spins where nobody has told that a core is spare."""

SPIN_THROUGH_S: Final = 4e-3
"""Waits of up to so long it spins through where a core is spare: one that has slept is slow for some 100 µs after."""

_SLACK_S: Final = 20e-6  # beyond what is expected
_MOST_ASLEEP: Final = 256  # waits
_REMEMBERED: Final = 5  # waits, of which the longest counts as an accident
_LOOK_S: Final = 1e-3  # endless spinning before it looks whether the other end lives
_GLANCES: Final = 32  # between two looks at the clock
_LOOKS: Final = 8  # before others are let run: some 50 µs


class Waiting(msgspec.Struct, frozen=True):
    """How the receivers of a channel wait.

    ``core_is_spare``: whether ``auto`` may spin for longer, because nobody else needs the core meanwhile.
    """

    kind: WaitKind = "auto"
    core_is_spare: bool = False


WAIT_AUTO: Final = Waiting()


class Source(Protocol):
    """What is waited for."""

    def glance(self) -> bool:
        """Whether it is there; cheap, called in a loop."""
        ...

    def block(self, timeout_s: float) -> bool:
        """Sleep until it is there or the other end is gone, or perhaps for no reason (then True too).

        False after ``timeout_s`` (0: look once).
        """
        ...


class Wait(Protocol):
    """A way to wait."""

    def wait(self, timeout_s: float) -> bool:
        """As ``Source.block``, asleep or not."""
        ...


class PollSource:
    """Descriptors: one of ``readable`` has something to read, or the far end of one of ``lifelines`` is gone."""

    def __init__(self, readable: list[int], lifelines: list[int]) -> None:
        self._poll = select.poll()
        for descriptor in readable:
            self._poll.register(descriptor, select.POLLIN)
        for descriptor in lifelines:
            self._poll.register(descriptor, 0)  # the kernel reports a hang-up always

    def glance(self) -> bool:
        return bool(self._poll.poll(0))

    def block(self, timeout_s: float) -> bool:
        """Uses no CPU time. poll counts milliseconds: a timeout may take up to one longer."""
        return bool(self._poll.poll(math.ceil(timeout_s * 1000)))


class BlockWait:
    """Sleeps at once."""

    def __init__(self, source: Source) -> None:
        self._source = source

    def wait(self, timeout_s: float) -> bool:
        return self._source.block(timeout_s)


class SpinWait:
    """Never sleeps: a core is busy as long as a wait lasts. It looks from time to time whether the other end lives."""

    def __init__(self, source: Source) -> None:
        self._source = source

    def wait(self, timeout_s: float) -> bool:
        now = time.monotonic()
        end = now + timeout_s
        while not spin(self._source, min(end, now + _LOOK_S)):
            if self._source.block(0):
                return True
            now = time.monotonic()
            if now >= end:
                return False
        return True


class AutoWait:
    """Spins where that is cheap, as the module says. ``clock`` in seconds, as time.monotonic."""

    def __init__(
        self,
        source: Source,
        core_is_spare: bool,
        clock: Clock = time.monotonic,
        contention: Contention | None = None,
    ) -> None:
        self._source = source
        self._most_s = SPIN_THROUGH_S if core_is_spare else SPIN_S
        self._core_is_spare = core_is_spare
        self._clock = clock
        self._contention = contention or Contention()
        self._recent = deque([math.inf] * _REMEMBERED, maxlen=_REMEMBERED)
        self._begun = 0.0  # of a wait that has run into a timeout and goes on
        self._ended = 0.0  # of the wait before
        self._asleep = 0  # waits to come that are slept through
        self._penalty = 1  # how many, after the next spin in vain

    def wait(self, timeout_s: float) -> bool:
        now = self._clock()
        begun = self._begun or now
        if self._asleep:
            self._asleep -= 1
            came = self._source.block(timeout_s)
        elif now - self._ended > SPIN_THROUGH_S or not self._contention.is_calm(now):
            came = self._source.block(timeout_s)
        else:
            came = self._spin_or_sleep(begun, now, now + timeout_s)
        if came:
            self._ended = self._clock()
            self._recent.append(self._ended - begun)
            self._begun = 0.0
        else:
            self._begun = begun
        return came

    def _spin_or_sleep(self, begun: float, now: float, end: float) -> bool:
        spin_s = self._worth_spinning_s()
        if now - begun < spin_s and now + spin_s < end:  # not again where a wait goes on after a timeout
            if spin(self._source, now + spin_s, self._clock):
                if self._penalty > 1:
                    self._penalty //= 2
                return True
            self._asleep, self._penalty = self._penalty, min(_MOST_ASLEEP, 8 * self._penalty)
        return self._source.block(max(0.0, end - self._clock()))

    def _worth_spinning_s(self) -> float:
        """How long to spin; 0 where the waits before were too long."""
        *_, longest, _ = sorted(self._recent)
        if longest > self._most_s:
            return 0.0
        return self._most_s if self._core_is_spare else min(self._most_s, 1.5 * longest + _SLACK_S)


def spin(source: Source, end: float, clock: Clock = time.monotonic) -> bool:
    """Look again and again; False when ``clock`` has passed ``end``.

    Now and then it lets others run: the other end may have been woken on this core, and would wait for a whole slice.
    """
    glance = source.glance
    while True:
        for _ in range(_LOOKS):
            for _ in range(_GLANCES):
                if glance():
                    return True
            if clock() >= end:
                return False
        os.sched_yield()


def make_wait(source: Source, waiting: Waiting) -> Wait:
    """The way to wait for ``source`` that ``waiting`` asks for."""
    if waiting.kind == "block":
        return BlockWait(source)
    return SpinWait(source) if waiting.kind == "spin" else AutoWait(source, waiting.core_is_spare)


class Deadline:
    """The moment at which waiting ends; made where waiting begins, so that the fast path reads no clock."""

    __slots__ = ("_end", "timeout_s")

    def __init__(self, timeout_s: float) -> None:
        self.timeout_s = timeout_s
        self._end = time.monotonic() + timeout_s

    def left_s(self) -> float:
        """Seconds left, never negative."""
        return max(0.0, self._end - time.monotonic())
