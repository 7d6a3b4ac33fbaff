"""Says when the requests of a workload arrive. It does not know where they come from, nor who waits for them."""

from collections.abc import Sequence
from itertools import pairwise
from typing import Final

import msgspec
import numpy as np

from serbench.errors import ExperimentError
from serbench.workload.base import Workload, WorkRequest, group_seed
from serbench.workload.rows import TraceRow
from serbench.workload.spec import Arrivals

LONGEST_GAP_S: Final = 1000.0
"""Whoever asks to wait for longer between two requests has made a slip, as with a rate below one in that time."""

_OWN_STREAM = 0x41525256
"""Keeps the times from being drawn from the numbers that the prompts are made of."""


class ArrivingWorkload:
    """The requests of another workload, whose own times are those of its file, or 0.

    At another rate, the same seed and group give the same pattern, wider or narrower.
    """

    def __init__(self, inner: Workload, arrivals: Arrivals, *, seed: int) -> None:
        self._inner = inner
        self._arrivals = arrivals
        self._seed = seed

    def requests(self, group: int) -> list[WorkRequest]:
        """The inner workload's requests of ``group`` with their times; the first arrives at 0."""
        requests = self._inner.requests(group)
        times = self._times_ns(requests, group)
        return [msgspec.structs.replace(one, arrives_ns=ns) for one, ns in zip(requests, times, strict=True)]

    def notes(self) -> list[str]:
        """The inner workload's, and what times do to the figures."""
        notes = self._inner.notes()
        if self._arrivals.kind == "together":
            return notes
        return [*notes, "rates follow the arrivals as long as the engine keeps up: compare latencies and host times"]

    def _times_ns(self, requests: Sequence[WorkRequest], group: int) -> list[int]:
        match self._arrivals.kind:
            case "together":
                return [0] * len(requests)
            case "poisson":
                return self._poisson_ns(len(requests), group)
            case "trace":
                first = requests[0].arrives_ns if requests else 0
                return [round((one.arrives_ns - first) * self._arrivals.time_scale) for one in requests]

    def _poisson_ns(self, count: int, group: int) -> list[int]:
        assert self._arrivals.request_rate is not None, "the specification sees to it"
        rng = np.random.default_rng([*group_seed(self._seed, group), _OWN_STREAM])
        gaps_s = rng.exponential(1 / self._arrivals.request_rate, size=max(count - 1, 0))
        return [0, *np.rint(np.cumsum(gaps_s) * 1e9).astype(np.int64).tolist()][:count]


def check_gaps(rows: Sequence[TraceRow], time_scale: float, path: str) -> None:
    """Refuse to go by the clock of a file where that is waiting for the most part.

    Raises:
        ExperimentError: a request that arrives too long after the one before; with its line.
    """
    for before, row in pairwise(rows):
        gap_s = (row.arrival_ns - before.arrival_ns) / 1e9 * time_scale
        if gap_s > LONGEST_GAP_S:
            raise ExperimentError(
                f"{path}:{row.line}: it arrives {gap_s:,.0f} s after the request before, and --arrivals trace waits "
                f"for {LONGEST_GAP_S:,.0f} s at most; choose a smaller --time-scale, or fewer --num-prompts"
            )
