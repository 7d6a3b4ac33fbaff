"""Which rows end with the ids just sampled, and why; vectorised, with a loop over the rows that want more only.

It does not know how rows are freed (the scheduler's business) nor how stop strings are found (an OutputWatch's).
"""

from collections.abc import Collection
from typing import Final, TypeAlias

import numpy as np
import numpy.typing as npt

from serbench_codecs.extent import FEW
from serbench_codecs.plan import FAILED_ROW, Int32Array, Logprobs
from serbench_codecs.table import RequestTable
from serbench_engine.request import FinishReason, Logprob
from serbench_engine.tracked import OutputWatch, TrackedRequest

Endings: TypeAlias = list[tuple[int, FinishReason, str | int | None]]
"""(row, reason, stop string or id)"""

_FAILED: Final = frozenset([FAILED_ROW])


class StopRules:
    """Per row: length limit, whether end-of-text ids end it, its watch and the times of its tokens.

    ``length_limits`` int32[rows]: a row ends when it has so many tokens, prompt included. ``watched``: the rows with a
    watch.
    """

    def __init__(self, num_rows: int, eos_token_ids: tuple[int, ...]) -> None:
        self._eos_token_ids = eos_token_ids
        self._possible_endings = _FAILED.union(eos_token_ids)
        self.length_limits = np.zeros(num_rows, dtype=np.int32)
        self._min_length = np.zeros(num_rows, dtype=np.int32)
        self._heeds_eos = np.zeros(num_rows, dtype=np.bool_)
        self._num_heeding = 0
        self._first_ns = np.zeros(num_rows, dtype=np.int64)
        self.watched: dict[int, OutputWatch] = {}
        self._logging: dict[int, TrackedRequest] = {}
        self._is_watched = np.zeros(num_rows, dtype=np.bool_)
        self._seen_rows: Int32Array | None = None  # those asked about last
        self._watches: list[tuple[int, int, OutputWatch]] = []  # of them: place among them, row, watch
        self._now_ns = 0  # when the last ids came
        self._failed_after_ns: dict[int, int] = {}  # per row that failed just now: when the ids before came

    def enter(self, row: int, request: TrackedRequest) -> None:
        """A request was admitted to ``row``."""
        self.length_limits[row] = request.length_limit
        self._min_length[row] = min(request.num_prompt_tokens + request.params.min_tokens, np.iinfo(np.int32).max)
        self._heeds_eos[row] = not request.params.ignore_eos
        self._num_heeding += not request.params.ignore_eos
        self._first_ns[row] = request.first_token_ns
        self._is_watched[row] = request.watch is not None
        self._seen_rows = None
        if request.watch is not None:
            self.watched[row] = request.watch
        if request.logprobs is not None:
            self._logging[row] = request

    def leave(self, row: int, request: TrackedRequest, num_sampled: int) -> None:
        """It ended or was preempted, after so many tokens in this row."""
        last_ns = self._failed_after_ns.pop(row, self._now_ns)
        if num_sampled:
            request.first_token_ns = int(self._first_ns[row])
            request.last_token_ns = last_ns
        self._num_heeding -= bool(self._heeds_eos[row])
        self._is_watched[row] = False
        self._seen_rows = None
        self.watched.pop(row, None)
        self._logging.pop(row, None)

    def nobody_stops(self, token_ids: Int32Array, now_ns: int) -> bool:
        """Whether it is plain from the ids alone that no row ends but by its length or watch; all past their first."""
        endings = self._possible_endings if self._num_heeding else _FAILED
        if len(token_ids) <= FEW:
            nobody = endings.isdisjoint(token_ids.tolist())
        else:
            nobody = not any(np.count_nonzero(token_ids == one) for one in endings)
        if nobody:
            self._now_ns = now_ns
        return nobody

    def judge(
        self, table: RequestTable, rows: Int32Array, token_ids: Int32Array, starts: Int32Array, now_ns: int
    ) -> Endings:
        """The rows that end with ``token_ids`` int32[s], just appended at ``starts`` int32[s]."""
        before_ns, self._now_ns = self._now_ns, now_ns
        endings: Endings = []
        failed = token_ids == FAILED_ROW
        if np.count_nonzero(failed):
            endings += self._take_back(table, rows[failed], before_ns)
            rows, token_ids, starts = rows[~failed], token_ids[~failed], starts[~failed]
        first = starts == table.num_prompt_tokens[rows]
        if np.count_nonzero(first):
            self._first_ns[rows[first]] = now_ns
        over = starts + 1 >= self.length_limits[rows]
        stopped = self._stopped(rows, token_ids, starts)
        if stopped is not None:
            endings += [(row, "stop", None) for row in rows[stopped].tolist()]
        if self.watched:
            endings += self.ask_watches(rows, token_ids, starts, {row for row, _, _ in endings})
        if np.count_nonzero(over):
            ended = {row for row, _, _ in endings}
            endings += [(row, "length", None) for row in rows[over].tolist() if row not in ended]
        return endings

    def _take_back(self, table: RequestTable, rows: Int32Array, before_ns: int) -> Endings:
        """What was appended to rows that failed is no token; the ids before came at ``before_ns``."""
        table.num_tokens[rows] -= 1
        self._failed_after_ns = dict.fromkeys(rows.tolist(), before_ns)
        return [(row, "error", None) for row in self._failed_after_ns]

    def _stopped(self, rows: Int32Array, token_ids: Int32Array, starts: Int32Array) -> npt.NDArray[np.bool_] | None:
        if not self._num_heeding or not self._eos_token_ids:
            return None
        hit: npt.NDArray[np.bool_] = token_ids == self._eos_token_ids[0]
        for eos in self._eos_token_ids[1:]:
            hit |= token_ids == eos
        if not np.count_nonzero(hit):
            return None
        hit &= self._heeds_eos[rows] & (starts >= self._min_length[rows])
        return hit

    def ask_watches(
        self, rows: Int32Array, token_ids: Int32Array, starts: Int32Array, ended: Collection[int] = ()
    ) -> Endings:
        """The rows that their watches end with ``token_ids`` int32[s]; those in ``ended`` are not asked."""
        if self._seen_rows is not rows:
            self._seen_rows = rows
            places = np.flatnonzero(self._is_watched[rows])
            watched = zip(places.tolist(), rows[places].tolist(), strict=True)
            self._watches = [(place, row, self.watched[row]) for place, row in watched]
        endings: Endings = []
        for place, row, watch in self._watches:
            if row in ended:
                continue
            stop_reason = watch.push(int(token_ids[place]))
            if stop_reason is not None and starts[place] >= self._min_length[row]:
                endings.append((row, "stop", stop_reason))
        return endings

    def record_logprobs(self, rows: Int32Array, logprobs: Logprobs) -> None:
        """Give each row that asked its entries: the sampled id first, then the likeliest."""
        ends = np.cumsum(logprobs.counts)
        for i in np.flatnonzero(logprobs.counts).tolist():
            request = self._logging.get(int(rows[i]))
            if request is None or request.logprobs is None:
                continue
            span = slice(int(ends[i] - logprobs.counts[i]), int(ends[i]))
            entries = zip(
                logprobs.token_ids[span].tolist(),
                logprobs.values[span].tolist(),
                logprobs.ranks[span].tolist(),
                strict=True,
            )
            request.logprobs.append({token: Logprob(value, rank) for token, value, rank in entries})


def keep_logprobs(logprobs: Logprobs, kept: npt.NDArray[np.bool_]) -> Logprobs:
    """The entries of the kept rows (bool[s])."""
    entries = np.repeat(kept, logprobs.counts)
    return Logprobs(
        logprobs.counts[kept], logprobs.token_ids[entries], logprobs.values[entries], logprobs.ranks[entries]
    )
