"""Tells whether other programs want the core of this thread, so that it should not spin. It does not know who waits.

Linux counts how long a thread was ready to run and had no core. On a machine with enough cores that is next to nothing
while a thread spins; where there are more busy threads than cores it is half of the time, and whoever spins there is
taken for busy and woken late. Only time in which spinning was allowed is judged: a thread that sleeps for every payload
has some of this delay on an idle machine too.
"""

import os
from collections.abc import Callable
from typing import Final

MOST_SHARE: Final = 0.25
"""Of the time, ready without a core: beyond it the machine is too busy to spin."""

WINDOW_S: Final = 0.005
FIRST_PAUSE_S: Final = 0.02
LONGEST_PAUSE_S: Final = 2.0


class Contention:
    """Judges windows of WINDOW_S; after a busy one there is a pause, twice as long after the next."""

    def __init__(self, run_delay_ns: Callable[[], int] | None = None) -> None:
        self._run_delay_ns = run_delay_ns or thread_run_delay_ns
        self._calm = True
        self._since_s = 0.0  # when the window began; 0: not yet
        self._delay_ns = 0  # then
        self._look_at_s = 0.0
        self._pause_s = FIRST_PAUSE_S

    def is_calm(self, now_s: float) -> bool:
        """Whether to spin at ``now_s`` (monotonic)."""
        if now_s >= self._look_at_s:
            self._look(now_s)
        return self._calm

    def _look(self, now_s: float) -> None:
        delay_ns = self._run_delay_ns()
        if self._calm and self._since_s:
            share = (delay_ns - self._delay_ns) / 1e9 / (now_s - self._since_s)
            if share > MOST_SHARE:
                self._calm = False
                self._look_at_s = now_s + self._pause_s
                self._pause_s = min(LONGEST_PAUSE_S, 2 * self._pause_s)
                return
            self._pause_s = max(FIRST_PAUSE_S, self._pause_s / 2)
        self._calm = True
        self._since_s, self._delay_ns, self._look_at_s = now_s, delay_ns, now_s + WINDOW_S


def thread_run_delay_ns() -> int:
    """How long this thread has been ready to run without running, since it began; 0 where the kernel doesn't say."""
    try:
        file = os.open("/proc/thread-self/schedstat", os.O_RDONLY)
    except OSError:
        return 0
    try:
        return int(os.read(file, 100).split()[1])  # time on a core, time ready without one, slices
    finally:
        os.close(file)
