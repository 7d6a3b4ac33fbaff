"""Drives a Scheduler step by step with no codec and no model: a bench with every check on. It knows no test."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from serbench_codecs.plan import Int32Array, Logprobs, StepPlan, StepResult
from serbench_codecs.table import RequestTable, TableLimits
from serbench_engine.request import FinishedRequest, SamplingParams
from serbench_engine.scheduler import Scheduler
from serbench_engine.stopping import StopRules
from serbench_engine.tracked import TrackedRequest
from serbench_engine.watching import watch_maker
from tests.engine.serving import greedy

EOS = 99


@dataclass
class Bench:
    """A scheduler, a worker's table beside it, and a sampler: it gives ``next_ids`` of a request, then sevens."""

    num_rows: int = 4
    max_len: int = 64
    num_blocks: int = 32
    budget: int = 16
    prefix_caching: bool = False
    looks_ahead: bool = False
    block_size: int = 4

    def __post_init__(self) -> None:
        limits = TableLimits(self.num_rows, self.max_len, self.block_size, self.num_blocks, 100)
        rules = StopRules(self.num_rows, (EOS,))
        self.scheduler = Scheduler(
            limits, rules, max_num_batched_tokens=self.budget, prefix_caching=self.prefix_caching
        )
        self.worker = RequestTable(limits)
        self.finished: dict[str, FinishedRequest] = {}
        self.plans: list[StepPlan] = []
        self.next_ids: dict[str, list[int]] = {}
        self.requests: dict[str, TrackedRequest] = {}

    def add(self, name: str, prompt_len: int, params: SamplingParams | None = None) -> TrackedRequest:
        return self.add_prompt(name, np.arange(prompt_len, dtype=np.int32) % 50 + 1, params or greedy(8))

    def add_prompt(self, name: str, prompt: Int32Array, params: SamplingParams) -> TrackedRequest:
        limit = min(self.max_len, len(prompt) + (params.max_tokens or self.max_len))
        no_ids = np.empty(0, dtype=np.int32)
        watch = watch_maker(None)(params)
        request = TrackedRequest(
            name, prompt, params, seed=1, stop_ids=no_ids, length_limit=limit, arrival_ns=1, watch=watch
        )
        self.scheduler.add(request)
        self.requests[name] = request
        return request

    def step(self, aborted: Sequence[TrackedRequest] = ()) -> StepPlan | None:
        """One step with every check on: the plan is valid, the worker's table equals the scheduler's.

        ``aborted`` are so while the plan is in flight.
        """
        scheduler = self.scheduler
        scheduled = scheduler.schedule(len(self.plans), 0)
        if scheduled is None:
            self._take(scheduler.take_ended())
            return None
        plan = scheduled.plan
        plan.validate()
        assert int(plan.batch_counts.sum()) <= self.budget
        self.worker.apply(plan)
        self.worker.check(plan)
        known = scheduler.table.num_tokens[plan.batch_rows]
        assert self.worker.digest(plan.batch_rows, known) == scheduler.table.digest(plan.batch_rows, known)
        self.worker.advance(plan)
        scheduler.advance(plan)
        if self.looks_ahead:
            scheduler.look_ahead(plan)
        for request in aborted:
            scheduler.abort(request)
        self._check_blocks()
        names = [scheduler.table.request_ids[row] for row in scheduled.sample_rows]
        ids = [self.next_ids.get(name, [7]).pop(0) if self.next_ids.get(name) else 7 for name in names]
        result = StepResult(plan.step, 0, np.array(ids, dtype=np.int32), self._logprobs(names, ids))
        self._take(scheduler.update(scheduled, result, len(self.plans) + 100).finished)
        self.plans.append(plan)
        return plan

    def run(self) -> None:
        while self.scheduler.has_unfinished:
            self.step()
            assert len(self.plans) < 5000

    def _logprobs(self, names: list[str], ids: list[int]) -> Logprobs | None:
        """One entry, the sampled id's, for each request that asks for logprobs."""
        counts = np.array([self.requests[name].params.logprobs is not None for name in names], dtype=np.int32)
        entries = np.array(ids, dtype=np.int32)[counts > 0]
        ones = np.ones(len(entries), dtype=np.int32)
        return Logprobs(counts, entries, -ones.astype(np.float32), ones) if len(entries) else None

    def _take(self, finished: list[FinishedRequest]) -> None:
        for one in finished:
            assert one.request_id not in self.finished, "told twice"
            self.finished[one.request_id] = one

    def _check_blocks(self) -> None:
        table = self.scheduler.table
        live = np.flatnonzero(table.serial)
        held = [table.block_table[row, : table.num_blocks[row]].tolist() for row in live]
        flat = [block for blocks in held for block in blocks]
        if not self.prefix_caching:
            assert len(flat) == len(set(flat)), "a block belongs to two rows"
        assert len(set(flat)) + self.scheduler._pool.num_free == self.num_blocks
