"""A small scheduler that turns a script into the plans of a plausible session, for tests.

It knows no codec. It is not the engine's scheduler: it is plain rather than fast, and does on command what that one
does when it must: preempt, leave out, reorder, begin anew.
"""

from collections import Counter, deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import numpy as np

from serbench_codecs.conformance.conversations import Arrival, Conversation, StepScript
from serbench_codecs.plan import (
    NO_ADMISSIONS,
    NO_ROWS,
    NO_WRITES,
    SAMPLING_DTYPE,
    Admissions,
    Int32Array,
    Ragged,
    SamplingArray,
    StepPlan,
    Writes,
)
from serbench_codecs.table import RequestTable


@dataclass(slots=True, eq=False)
class _Request:
    number: int
    arrival: Arrival
    token_ids: list[int]
    num_prompt_tokens: int
    row: int = -1  # while it runs
    was_preempted: bool = False
    block_ids: list[int] = field(default_factory=list)


@dataclass(slots=True)
class _Step:
    """The plan that is being made."""

    batch: dict[int, int] = field(default_factory=dict)  # tokens of each row, in order
    admitted: list[_Request] = field(default_factory=list)
    grown: set[int] = field(default_factory=set)  # rows that got blocks
    budget: int = 0
    preempted: bool = False


class ReferenceScheduler:
    """Plays one :class:`Conversation`. ``table`` is the scheduler's; ``events`` counts what happened, by name.

    Each step: ``schedule``, then (the plan encoded) ``table.advance``, then ``update``.
    """

    def __init__(self, conversation: Conversation) -> None:
        self.limits = conversation.limits
        self.table = RequestTable(conversation.limits)
        self.epoch = 0
        self.events: Counter[str] = Counter()
        self._conversation = conversation
        self._step = 0
        self._next_number = 1
        self._next_serial = 1
        self._waiting: deque[_Request] = deque()
        self._running: list[_Request] = []
        self._free_rows = list(range(self.limits.max_num_seqs))
        self._free_blocks = list(range(self.limits.num_blocks))
        self._freed: list[int] = []
        self._told_tokens = np.zeros(self.limits.max_num_seqs, dtype=np.int32)
        self._told_blocks = np.zeros(self.limits.max_num_seqs, dtype=np.int32)
        self._last_batch: tuple[Int32Array, Int32Array] = (NO_ROWS, NO_ROWS)

    # --- the three calls of a step -----------------------------------------------------------------------------------

    def schedule(self, script: StepScript) -> StepPlan | None:
        """The next plan, or None where there is nothing to tell and nothing to run."""
        if script.new_epoch:
            self._begin_epoch()
        for arrival in script.arrivals:
            self._add(arrival)
        self._abort(script.aborts)
        for _ in range(min(script.preemptions, len(self._running))):
            self._preempt(self._running[-1])
        step = _Step(budget=self._conversation.token_budget)
        idle = {self._running[pick % len(self._running)].row for pick in script.idle if self._running}
        for request in list(self._running):
            if request in self._running and request.row not in idle:
                self._continue(request, step)
        while self._waiting and self._free_rows and step.budget and not step.preempted:
            if not self._admit(self._waiting[0], step):
                break
        if not step.batch and not self._freed:
            return None
        return self._plan(step, script.rotation)

    def update(self, plan: StepPlan, sampled_rows: Int32Array, token_ids: Int32Array, script: StepScript) -> None:
        """Take what the step sampled; abort what ``script`` aborts meanwhile; finish what is done."""
        self._abort(script.late_aborts)
        alive = [i for i, row in enumerate(sampled_rows.tolist()) if self.table.serial[row]]
        rows, ids = sampled_rows[alive], token_ids[alive]
        self.table.append_sampled(rows, ids)
        by_row = {request.row: request for request in self._running}
        for row, token_id in zip(rows.tolist(), ids.tolist(), strict=True):
            request = by_row[row]
            request.token_ids.append(token_id)
            if reason := self._finish_reason(request, token_id):
                self.events[f"finished: {reason}"] += 1
                self._free(request)

    # --- requests come and go ----------------------------------------------------------------------------------------

    def _add(self, arrival: Arrival) -> None:
        prompt_len = min(arrival.prompt_len, self.limits.max_model_len - 1)
        rng = np.random.default_rng(self._next_number)
        token_ids = rng.integers(0, self.limits.vocab_size, prompt_len).tolist()
        self._waiting.append(_Request(self._next_number, arrival, token_ids, prompt_len))
        self._next_number += 1

    def _abort(self, picks: Sequence[int]) -> None:
        for pick in picks:
            alive = [*self._running, *self._waiting]
            if not alive:
                return
            request = alive[pick % len(alive)]
            if request.row < 0:
                self._waiting.remove(request)
                self.events["aborted preempted" if request.was_preempted else "aborted waiting"] += 1
                continue
            is_prefill = self.table.num_computed_tokens[request.row] < request.num_prompt_tokens
            self.events["aborted in prefill" if is_prefill else "aborted decoding"] += 1
            self._free(request)

    def _free(self, request: _Request) -> None:
        self.table.serial[request.row] = 0
        self._freed.append(request.row)
        self._free_rows.append(request.row)
        self._free_blocks += request.block_ids
        self._running.remove(request)
        request.row, request.block_ids = -1, []

    def _preempt(self, request: _Request) -> None:
        self.events["preempted"] += 1
        request.was_preempted = True
        self._free(request)
        self._waiting.appendleft(request)

    def _begin_epoch(self) -> None:
        """Everything that runs is preempted; the workers' tables begin empty, so there is nothing to free."""
        self.events["epochs"] += 1
        while self._running:
            self._preempt(self._running[-1])
        self._freed.clear()
        self.epoch, self._step = self.epoch + 1, 0
        self._last_batch = (NO_ROWS, NO_ROWS)

    def _finish_reason(self, request: _Request, token_id: int) -> str:
        if len(request.token_ids) == self.limits.max_model_len:
            return "length limit"
        if token_id in request.arrival.stop_ids:
            return "stop"
        return "length" if len(request.token_ids) - request.num_prompt_tokens >= request.arrival.output_len else ""

    # --- one step ----------------------------------------------------------------------------------------------------

    def _continue(self, request: _Request, step: _Step) -> None:
        """Let a running request compute what the budget allows, preempting later ones for its blocks."""
        computed = int(self.table.num_computed_tokens[request.row])
        count = min(len(request.token_ids) - computed, step.budget)
        if not count:
            return
        while not self._grow(request, computed + count):
            step.preempted = True
            victim = self._running[-1]  # not in the batch yet: that is filled in the same order
            self._preempt(victim)
            if victim is request:
                return
        if self.table.num_blocks[request.row] < len(request.block_ids):
            step.grown.add(request.row)
            self._note_blocks(request)
        self._run(request, count, step)

    def _admit(self, request: _Request, step: _Step) -> bool:
        """Give a waiting request a row, its first blocks and what the budget allows; False if blocks are short."""
        block_size, num_tokens = self.limits.block_size, len(request.token_ids)
        computed = min(request.arrival.cached_blocks, (num_tokens - 1) // block_size) * block_size
        count = min(num_tokens - computed, step.budget)
        if not self._grow(request, computed + count):
            return False
        self._waiting.popleft()
        request.row = self._free_rows.pop()
        if request.row in self._freed:
            self.events["row reused in the step that freed it"] += 1
        if request.was_preempted:
            self.events["came back"] += 1
        self._running.append(request)
        self.table.admit(self._admission([request], [self._next_serial], [computed]))
        self._next_serial += 1
        step.admitted.append(request)
        self._run(request, count, step)
        return True

    def _run(self, request: _Request, count: int, step: _Step) -> None:
        if int(self.table.num_computed_tokens[request.row]) + count < len(request.token_ids):
            self.events["chunk of a prefill"] += 1
        step.batch[request.row] = count
        step.budget -= count

    def _grow(self, request: _Request, num_tokens: int) -> bool:
        """Take the blocks for ``num_tokens``; False, and none taken, if there are too few."""
        missing = -(-num_tokens // self.limits.block_size) - len(request.block_ids)
        if missing > len(self._free_blocks):
            return False
        request.block_ids += [self._free_blocks.pop() for _ in range(missing)]
        return True

    def _note_blocks(self, request: _Request) -> None:
        self.table.block_table[request.row, : len(request.block_ids)] = request.block_ids
        self.table.num_blocks[request.row] = len(request.block_ids)

    # --- the plan ----------------------------------------------------------------------------------------------------

    def _plan(self, step: _Step, rotation: int) -> StepPlan:
        rows = np.roll(np.array(list(step.batch), dtype=np.int32), rotation)
        counts = np.roll(np.array(list(step.batch.values()), dtype=np.int32), rotation)
        admitted_rows = [request.row for request in step.admitted]
        known = np.array([r.row for r in self._running if r.row not in admitted_rows], dtype=np.int32)
        blocks = self._writes(known[np.isin(known, list(step.grown))], self.table.num_blocks, self._told_blocks)
        tokens = self._writes(known, self.table.num_tokens, self._told_tokens)
        plan = StepPlan(
            step=self._step,
            epoch=self.epoch,
            freed=np.array(self._freed, dtype=np.int32),
            admitted=self._admissions_of(step.admitted),
            blocks=blocks(self.table.block_table),
            tokens=tokens(self.table.token_ids),
            batch_rows=rows,
            batch_counts=counts,
        )
        running = [request.row for request in self._running]
        self._told_tokens[running] = self.table.num_tokens[running]
        self._told_blocks[running] = self.table.num_blocks[running]
        self._freed.clear()
        self._step += 1
        return self._with_same_arrays(plan)

    def _with_same_arrays(self, plan: StepPlan) -> StepPlan:
        rows, counts = self._last_batch
        same = np.array_equal(rows, plan.batch_rows) and np.array_equal(counts, plan.batch_counts)
        if same and self._conversation.reuses_arrays:
            return StepPlan(plan.step, plan.epoch, plan.freed, plan.admitted, plan.blocks, plan.tokens, rows, counts)
        self._last_batch = (plan.batch_rows, plan.batch_counts)
        return plan

    def _writes(self, rows: Int32Array, now: Int32Array, told: Int32Array) -> Callable[[Int32Array], Writes]:
        """What of a column is new in each of ``rows``, as a function of the column."""
        rows = rows[now[rows] > told[rows]]
        starts = np.maximum(told[rows] - self._conversation.overlap, 0)
        counts = now[rows] - starts

        def of(column: Int32Array) -> Writes:
            if not len(rows):
                return NO_WRITES
            parts = [column[row, start : start + n] for row, start, n in zip(rows, starts, counts, strict=True)]
            return Writes(rows, starts, counts, np.concatenate(parts))

        return of

    def _admissions_of(self, requests: list[_Request]) -> Admissions:
        rows = [request.row for request in requests]
        return self._admission(
            requests, self.table.serial[rows].tolist(), self.table.num_computed_tokens[rows].tolist()
        )

    def _admission(self, requests: list[_Request], serials: list[int], computed: list[int]) -> Admissions:
        if not requests:
            return NO_ADMISSIONS
        return Admissions(
            np.array([request.row for request in requests], dtype=np.int32),
            np.array(serials, dtype=np.int64),
            [f"request-{request.number}-é" for request in requests],
            np.array([request.num_prompt_tokens for request in requests], dtype=np.int32),
            np.array(computed, dtype=np.int32),
            Ragged.of([request.token_ids for request in requests]),
            Ragged.of([request.block_ids for request in requests]),
            np.concatenate([_sampling_of(request.number) for request in requests]),
            Ragged.of([request.arrival.stop_ids for request in requests]),
        )


def _sampling_of(number: int) -> SamplingArray:
    """Parameters that differ between requests in every field; seeds use all 64 bits."""
    rng = np.random.default_rng(number)
    sampling = np.zeros(1, dtype=SAMPLING_DTYPE)
    sampling["seed"] = rng.integers(0, 1 << 64, dtype=np.uint64)
    for name in ("temperature", "top_p", "min_p", "repetition_penalty", "presence_penalty", "frequency_penalty"):
        sampling[name] = rng.random(dtype=np.float32)
    for name in ("top_k", "min_tokens", "num_logprobs"):
        sampling[name] = rng.integers(-1, 1000)
    return sampling


def sampled(table: RequestTable, plan: StepPlan) -> tuple[Int32Array, Int32Array]:
    """What a step samples, by anyone's table that has the plan applied and is not advanced: rows, and their ids.

    The ids follow from the row's own ids and seed, so that whoever holds a wrong one samples wrongly too.
    """
    rows = plan.batch_rows
    done = table.num_computed_tokens[rows] + plan.batch_counts == table.num_tokens[rows]
    rows = rows[done]
    last = table.token_ids[rows, table.num_tokens[rows] - 1].astype(np.int64)
    seeds = (table.sampling["seed"][rows] % np.uint64(1009)).astype(np.int64)
    ids = (last * 31 + table.num_tokens[rows] * 7 + seeds) % table.limits.vocab_size
    return rows, ids.astype(np.int32)
