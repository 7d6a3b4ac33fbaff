"""Decides what runs in each step: continuous batching over the table, with no split between prefill and decode.

It does not know codecs, transports or the model; it reads no clock. A steady decode step is vectorised: Python loops
run over events only (admissions, endings, preemptions, blocks that fill up).
"""

import msgspec
import numpy as np

from serbench_codecs.errors import MalformedPayloadError
from serbench_codecs.plan import (
    NO_ADMISSIONS,
    NO_ROWS,
    NO_WRITES,
    Admissions,
    Int32Array,
    Int64Array,
    StepPlan,
    StepResult,
    Writes,
)
from serbench_codecs.table import RequestTable, TableLimits
from serbench_engine.admitting import Taken, admissions_of
from serbench_engine.blocks import BlockPool
from serbench_engine.prefixes import PrefixCache
from serbench_engine.request import FinishedRequest, FinishReason
from serbench_engine.steady import SteadyDecode
from serbench_engine.stopping import Endings, StopRules, keep_logprobs
from serbench_engine.tracked import TrackedRequest
from serbench_engine.waitlist import WaitList


class Scheduled(msgspec.Struct, frozen=True, eq=False):
    """A plan in flight and whom it samples: ``sample_rows`` int32[s], ``serials`` int64[s], in batch order.

    ``num_tokens`` is the sum of the plan's counts.
    """

    plan: StepPlan
    sample_rows: Int32Array
    serials: Int64Array
    num_tokens: int


class Update(msgspec.Struct, frozen=True, eq=False):
    """What a result changed: the ids appended (int32[s] each), and the requests that ended since the last one.

    The id of a row that failed is -1 (FAILED_ROW): it was not appended.
    """

    rows: Int32Array
    token_ids: Int32Array
    finished: list[FinishedRequest]


class Fresh(msgspec.Struct, frozen=True, eq=False):
    """Ids learnt from the last result that no plan has carried yet; int32[s] each, ``serials`` int64[s]."""

    rows: Int32Array
    serials: Int64Array
    starts: Int32Array
    token_ids: Int32Array


_NOTHING_FRESH = Fresh(NO_ROWS, np.empty(0, dtype=np.int64), NO_ROWS, NO_ROWS)


class Scheduler:
    """First come, first served, within a token budget a step; preempts the youngest by recompute when blocks run out.

    ``table`` is the scheduler's; it is ahead of every worker's by the plan that ``schedule`` returns.
    """

    def __init__(
        self, limits: TableLimits, rules: StopRules, *, max_num_batched_tokens: int, prefix_caching: bool
    ) -> None:
        self.table = RequestTable(limits)
        self.preemptions = 0
        self.cached_tokens = 0
        self._limits = limits
        self._rules = rules
        self._budget = max_num_batched_tokens
        self._pool = BlockPool(limits.num_blocks)
        self._waiting = WaitList(max_num_batched_tokens)
        self._held_back: TrackedRequest | None = None  # the first in the queue, when it did not fit
        self._in_row: list[TrackedRequest | None] = [None] * limits.max_num_seqs
        self._prefixes = PrefixCache(self.table, self._pool, self._in_row) if prefix_caching else None
        self._free_rows = list(range(limits.max_num_seqs))[::-1]
        self._running: Int32Array = NO_ROWS
        self._ones = np.ones(limits.max_num_seqs, dtype=np.int32)
        self._steady_counts = self._ones[:0]
        self._steady: SteadyDecode | None = None
        self._freed: list[int] = []
        self._fresh = _NOTHING_FRESH
        self._ended: list[FinishedRequest] = []
        self._serial = 0

    @property
    def has_unfinished(self) -> bool:
        """Whether a request waits or runs, or an ended one has not been told yet."""
        return bool(self._waiting.requests or len(self._running) or self._ended)

    @property
    def num_running(self) -> int:
        return len(self._running)

    @property
    def num_waiting(self) -> int:
        return len(self._waiting.requests)

    def add(self, request: TrackedRequest) -> None:
        """Put a request, already checked against the limits, at the end of the queue."""
        self._waiting.add(request)

    def abort(self, request: TrackedRequest) -> None:
        """End a request in whatever state; nothing happens to one that has ended."""
        if request.serial:
            row = self._in_row.index(request)
            self._end_row(row, "abort", None)
            self._running = self._running[self._running != row]
        elif request in self._waiting.requests:
            self._waiting.remove(request)
            self._ended.append(request.finished("abort", None))

    def take_ended(self) -> list[FinishedRequest]:
        """Requests that ended and have not been told yet."""
        ended, self._ended = self._ended, []
        return ended

    # --- schedule ---------------------------------------------------------------------------------------------

    def schedule(self, step: int, epoch: int) -> Scheduled | None:
        """The next step, or None when nothing can run. The table is changed as the plan says, and not yet advanced."""
        steady = self._steady
        if steady is None or (blocks := steady.grow()) is None:
            return self._schedule_any(step, epoch)
        rows, tokens = steady.rows, self._known_tokens()
        if self._free_rows and self._waiting.requests and self._may_fit():
            admitted, more = self._admit(self._budget - len(rows))
            if len(more):
                return self._scheduled(step, epoch, admitted, blocks, tokens, np.concatenate([steady.counts, more]))
        plan = StepPlan(step, epoch, NO_ROWS, NO_ADMISSIONS, blocks, tokens, rows, steady.counts)
        return Scheduled(plan, rows, steady.serials, len(rows))

    def _schedule_any(self, step: int, epoch: int) -> Scheduled | None:
        self._leave_steady()
        before = self.preemptions
        counts, needed = self._fit_blocks(self._count_tokens())
        blocks = self._grow(needed)
        tokens = self._known_tokens()
        admitted = NO_ADMISSIONS
        if self.preemptions == before:
            admitted, more = self._admit(self._budget - int(counts.sum()))
            if len(more):
                counts = np.concatenate([counts, more])
        if not len(counts):
            return None
        return self._scheduled(step, epoch, admitted, blocks, tokens, counts)

    def _scheduled(
        self, step: int, epoch: int, admitted: Admissions, blocks: Writes, tokens: Writes, counts: Int32Array
    ) -> Scheduled:
        """The plan of any step: ``counts`` int32[running]."""
        rows, table = self._running, self.table
        if np.count_nonzero(counts) < len(counts):
            rows, counts = rows[counts > 0], counts[counts > 0]
        freed = np.array(self._freed, dtype=np.int32) if self._freed else NO_ROWS
        self._freed.clear()
        plan = StepPlan(step, epoch, freed, admitted, blocks, tokens, rows, counts)
        due = table.num_computed_tokens[rows] + counts == table.num_tokens[rows]
        sample_rows = rows if np.count_nonzero(due) == len(due) else rows[due]
        return Scheduled(plan, sample_rows, table.serial[sample_rows], int(counts.sum()))

    def advance(self, plan: StepPlan) -> None:
        """Count the step's tokens as computed, once the plan is on its way."""
        self.table.advance(plan)

    def look_ahead(self, plan: StepPlan) -> None:
        """While the workers run ``plan``, already counted: do what its result can't change. Plans stay the same."""
        if self._steady is not None:
            self._steady.look_ahead()
        if self._prefixes is not None:
            self._prefixes.look_ahead(plan.batch_rows, self._waiting.come_near())

    def _leave_steady(self) -> None:
        if self._steady is not None:
            self._steady.leave()
            self._steady = None

    def _count_tokens(self) -> Int32Array:
        """How many tokens each running row gets within the budget, in order; the same object while all decode."""
        rows, table = self._running, self.table
        pending = table.num_tokens[rows] - table.num_computed_tokens[rows]
        if len(rows) <= self._budget and not np.count_nonzero(pending != 1):
            if len(self._steady_counts) != len(rows):
                self._steady_counts = self._ones[: len(rows)]
            return self._steady_counts
        before = np.cumsum(pending) - pending
        counts: Int32Array = np.minimum(np.maximum(self._budget - before, 0), pending).astype(np.int32)
        return counts

    def _fit_blocks(self, counts: Int32Array) -> tuple[Int32Array, Int32Array]:
        """Blocks that each running row needs now, int32[running]; preempts the youngest until they are there."""
        needed = self._blocks_needed(counts)
        while len(needed) and int(needed.sum()) > self._pool.num_free:
            self._preempt_last()
            counts, needed = counts[:-1], needed[:-1]
        return counts, needed

    def _blocks_needed(self, counts: Int32Array) -> Int32Array:
        rows, table, size = self._running, self.table, self._limits.block_size
        ends = table.num_computed_tokens[rows] + counts
        held = table.num_blocks[rows]
        if not np.count_nonzero(ends > held * size):
            return NO_ROWS
        needed: Int32Array = np.maximum(-(-ends // size) - held, 0)
        return needed

    def _grow(self, needed: Int32Array) -> Writes:
        """Allocate the needed blocks and enter them into the table."""
        if not len(needed):
            return NO_WRITES
        which = np.flatnonzero(needed)
        rows = self._running[which]
        writes = Writes(rows, self.table.num_blocks[rows], needed[which], self._pool.allocate(int(needed.sum())))
        self.table.write_blocks(writes)
        return writes

    def _known_tokens(self) -> Writes:
        fresh, self._fresh = self._fresh, _NOTHING_FRESH
        if self._freed:
            alive = self.table.serial[fresh.rows] == fresh.serials
            if np.count_nonzero(alive) < len(alive):
                fresh = Fresh(fresh.rows[alive], fresh.serials[alive], fresh.starts[alive], fresh.token_ids[alive])
        if not len(fresh.rows):
            return NO_WRITES
        return Writes(fresh.rows, fresh.starts, self._ones[: len(fresh.rows)], fresh.token_ids)

    # --- admission and preemption -----------------------------------------------------------------------------

    def _admit(self, budget: int) -> tuple[Admissions, Int32Array]:
        """Make the first of the queue run while rows, blocks and budget last; how many tokens each computes."""
        taken: list[Taken] = []
        counts: list[int] = []
        self._held_back = None
        while self._waiting.requests and self._free_rows and budget > 0:
            request = self._waiting.requests[0]
            found = [] if self._prefixes is None else self._prefixes.find(request)
            computed = len(found) * self._limits.block_size
            count = min(len(request.token_ids) - computed, budget)
            new = -(-(computed + count) // self._limits.block_size) - len(found)
            if new > self._pool.num_free - self._pool.count_idle(found):
                self._hold_back(request)
                break
            self._waiting.take_first()
            self._pool.hold(found)
            blocks = self._pool.allocate(new)
            if found:
                blocks = np.concatenate([np.array(found, dtype=np.int32), blocks])
            taken.append(Taken(self._enter_row(request, len(found)), request, blocks, computed))
            counts.append(count)
            budget -= count
        if not taken:
            return NO_ADMISSIONS, NO_ROWS
        self._leave_steady()
        admitted = admissions_of(taken)
        self.table.admit(admitted)
        self._running = np.concatenate([self._running, admitted.rows])
        return admitted, np.array(counts, dtype=np.int32)

    def _hold_back(self, request: TrackedRequest) -> None:
        """Remember that the first in the queue does not fit, for the steps of a steady decode (``_may_fit``)."""
        self._held_back = request
        if self._prefixes is not None:
            self._prefixes.watch(request)

    def _may_fit(self) -> bool:
        """Whether the first in the queue is another one than was held back, or what is found of it changed since.

        Nothing else makes room while a decode is steady: it takes blocks, and leaves no less of the budget than then.
        """
        if self._waiting.requests[0] is not self._held_back:
            return True
        return self._prefixes is not None and self._prefixes.watched_changed

    def _enter_row(self, request: TrackedRequest, num_found: int) -> int:
        row = self._free_rows.pop()
        self._serial += 1
        request.serial = self._serial
        if not request.num_preemptions:
            request.num_cached_tokens = num_found * self._limits.block_size
        self.cached_tokens += num_found * self._limits.block_size
        self._in_row[row] = request
        if self._prefixes is not None:
            self._prefixes.enter(row, num_found)
        self._rules.enter(row, request)
        return row

    def _preempt_last(self) -> None:
        row = int(self._running[-1])
        request = self._leave_row(row)
        request.num_preemptions += 1
        self.preemptions += 1
        self._waiting.add_first(request)
        self._running = self._running[:-1]

    def _leave_row(self, row: int) -> TrackedRequest:
        """Free a row and its blocks; the request takes its ids along. The caller removes it from ``_running``."""
        self._leave_steady()
        table = self.table
        request = self._in_row[row]
        assert request is not None
        num_known = len(request.token_ids)
        request.token_ids = table.token_ids[row, : table.num_tokens[row]].copy()
        request.serial = 0
        self._rules.leave(row, request, len(request.token_ids) - num_known)
        self._pool.release(table.block_table[row, : table.num_blocks[row]])
        table.serial[row] = 0
        self._in_row[row] = None
        self._free_rows.append(row)
        self._freed.append(row)
        return request

    def _end_row(self, row: int, reason: FinishReason, stop_reason: str | int | None) -> None:
        self._ended.append(self._leave_row(row).finished(reason, stop_reason))

    def recover(self) -> None:
        """Preempt all running requests and forget every prefix: the workers start from nothing, in a new epoch.

        A plan in flight is dropped with its result; the ids it would have given are sampled again, the same.
        """
        while len(self._running):
            self._preempt_last()
        self._freed.clear()
        self._fresh = _NOTHING_FRESH
        if self._prefixes is not None:
            self._prefixes.forget_all()

    # --- update -----------------------------------------------------------------------------------------------

    def update(self, scheduled: Scheduled, result: StepResult, now_ns: int) -> Update:
        """Take in a result (an advanced plan's): append ids, publish full blocks, end what is to end.

        Raises:
            MalformedPayloadError: another number of ids than rows that were to be sampled.
        """
        rows, ids = scheduled.sample_rows, result.token_ids
        if len(ids) != len(rows):
            raise MalformedPayloadError(f"{len(ids)} ids for {len(rows)} sampled rows")
        plan, table = scheduled.plan, self.table
        steady = self._steady
        if steady is not None and steady.rows is plan.batch_rows:
            starts, serials = steady.append(ids), steady.serials
            if result.logprobs is not None:
                self._rules.record_logprobs(rows, result.logprobs)
            quiet = not steady.reaches_length and self._rules.nobody_stops(ids, now_ns)
        else:
            self._leave_steady()
            rows, ids, starts = self._append(scheduled, result)
            serials, quiet = table.serial[rows], False
        self._fresh = Fresh(rows, serials, starts, ids)
        if self._prefixes is not None:
            self._prefixes.publish(plan.batch_rows)
        if not quiet:
            self._end(self._rules.judge(table, rows, ids, starts, now_ns))
        elif self._rules.watched:
            self._end(self._rules.ask_watches(rows, ids, starts))
        if self._steady is None:
            self._become_steady(plan)
        return Update(rows, ids, self.take_ended())

    def _become_steady(self, plan: StepPlan) -> None:
        """Take the fast path from the next step on, if ``plan`` gave every row one token and all of them still run."""
        if plan.batch_counts is self._steady_counts and not self._freed and len(self._running) == len(plan.batch_rows):
            self._steady = SteadyDecode(
                self.table, self._pool, self._running, plan.batch_counts, self._rules.length_limits
            )

    def _append(self, scheduled: Scheduled, result: StepResult) -> tuple[Int32Array, Int32Array, Int32Array]:
        """Append what was sampled for rows that are still the same requests': rows, ids and where they went."""
        rows, ids, logprobs, table = scheduled.sample_rows, result.token_ids, result.logprobs, self.table
        alive = table.serial[rows] == scheduled.serials
        if np.count_nonzero(alive) < len(alive):  # ended while the plan was in flight
            rows, ids = rows[alive], ids[alive]
            logprobs = None if logprobs is None else keep_logprobs(logprobs, alive)
        starts = table.num_tokens[rows]
        table.append_sampled(rows, ids)
        if logprobs is not None:
            self._rules.record_logprobs(rows, logprobs)
        return rows, ids, starts

    def _end(self, endings: Endings) -> None:
        if not endings:
            return
        for row, reason, stop_reason in endings:
            self._end_row(row, reason, stop_reason)
        self._running = self._running[self.table.serial[self._running] != 0]
