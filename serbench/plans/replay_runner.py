"""Stands in for the model when plans are replayed: samples what was recorded, and looks at the worker's table.

It does not know codecs or transports. Its checks are made where a model would prepare its inputs, a phase that
replaying does not show.
"""

from collections.abc import Sequence

import msgspec
import numpy as np

from serbench.errors import FaultError
from serbench.plans.checking import due_rows
from serbench.plans.reading import Step
from serbench_codecs.plan import Int32Array, StepPlan, StepResult
from serbench_codecs.table import RequestTable, TableLimits


class ReplayedBatch(msgspec.Struct, frozen=True, eq=False):
    """The rows that sample, and what they sampled when it was recorded."""

    sample_rows: Int32Array
    result: StepResult


class ReplayRunner:
    """Implements ModelRunner. Every step it compares counts and newest ids of the rows that run with those of a table
    kept from the recording alone; every ``check_every`` steps, and in the last, the digests of all that the rows hold.
    """

    device_ns = 0

    def __init__(self, steps: Sequence[Step], check_every: int) -> None:
        self._steps = steps
        self._check_every = check_every
        self._at = 0

    def open(self, limits: TableLimits) -> None:
        """From the first step on."""
        self._at = 0
        self._expected = RequestTable(limits)

    def prepare(self, plan: StepPlan, table: RequestTable) -> ReplayedBatch:
        """Compare, and move on by one step.

        Raises:
            FaultError: the codec left the worker with another batch or another table than the scheduler's.
        """
        step, expected = self._steps[self._at], self._expected
        self._at += 1
        expected.apply(step.plan)
        self._compare(step.plan, plan, table)
        if self._at % self._check_every == 0 or self._at == len(self._steps):
            self._compare_digests(step.plan, table)
        rows = due_rows(step.plan, expected)
        expected.advance(step.plan)
        expected.append_sampled(rows, step.result.token_ids)
        return ReplayedBatch(rows, step.result)

    def forward(self, batch: ReplayedBatch) -> None:
        """There is nothing to compute."""

    def sample(self, output: None, batch: ReplayedBatch) -> StepResult:
        """What was sampled when it was recorded."""
        return batch.result

    def look_ahead(self, table: RequestTable) -> None:
        """There is nothing to prepare."""

    def _compare(self, due: StepPlan, plan: StepPlan, table: RequestTable) -> None:
        rows = due.batch_rows
        if not np.array_equal(plan.batch_rows, rows) or not np.array_equal(plan.batch_counts, due.batch_counts):
            raise FaultError(f"step {due.step}: the worker was told another batch than the one that was scheduled")
        for name in ("serial", "num_tokens", "num_computed_tokens", "num_blocks"):
            self._compare_column(name, rows, getattr(table, name)[rows], getattr(self._expected, name)[rows], due.step)
        last = self._expected.num_tokens[rows] - 1
        ours, theirs = self._expected.token_ids[rows, last], table.token_ids[rows, last]
        self._compare_column("the newest id", rows, theirs, ours, due.step)

    def _compare_column(self, name: str, rows: Int32Array, theirs: Int32Array, ours: Int32Array, step: int) -> None:
        wrong = np.flatnonzero(theirs != ours)
        if len(wrong):
            at = wrong[0]
            both = f"{theirs[at]} in the worker's table and {ours[at]} in the scheduler's"
            raise FaultError(f"step {step}: {name} of row {rows[at]} is {both}")

    def _compare_digests(self, plan: StepPlan, table: RequestTable) -> None:
        rows = plan.batch_rows
        upto = self._expected.num_tokens[rows]
        if table.digest(rows, upto) != self._expected.digest(rows, upto):
            raise FaultError(f"step {plan.step}: the digests of the worker's table and the scheduler's differ")
