"""One rank's half of a session: receive a payload, bring the table up to date, run the model, answer.

It does not know which codec, transport or model it was given, nor in which process it lives.
"""

import resource
import zlib
from collections.abc import Callable
from time import CLOCK_PROCESS_CPUTIME_ID, clock_gettime, monotonic_ns

import msgspec

from serbench_codecs.codec import (
    END,
    PLAN,
    RESULT,
    Header,
    body_bytes,
    check_header,
    codec_id,
    is_due,
    pack_header,
    parse_header,
)
from serbench_codecs.errors import CodecError, PlanError
from serbench_codecs.plan import NO_ROWS, StepPlan
from serbench_codecs.registry import get_codec, get_result_format
from serbench_codecs.table import RequestTable
from serbench_engine.codec_ends import new_ends, raise_broken
from serbench_engine.errors import PayloadRefused
from serbench_engine.executor.base import SessionSpec, WorkerReport
from serbench_engine.phases import WORKER_FIELDS, SpanLog
from serbench_engine.runner.base import Batch, ModelRunner
from serbench_engine.transport.base import Payload, Receiver, Sender


class Taken(msgspec.Struct, frozen=True, eq=False, gc=False):
    """A plan that is applied and prepared, and when each part of that was done (CLOCK_MONOTONIC, ns)."""

    plan: StepPlan
    batch: Batch
    decoded: int
    adapted: int
    applied: int
    prepared: int


class Worker:
    """Runs steps one after another. A payload that can't be used is reported through ``refuse`` and not run.

    A payload of a higher epoch starts everything anew: table, decoder, the runner's memory of rows. ``runs_aside``:
    the scheduler does something else meanwhile (as Link.runs_aside), so that work after an answer costs nothing.
    """

    def __init__(
        self,
        rank: int,
        runner: ModelRunner,
        spec: SessionSpec,
        receiver: Receiver,
        sender: Sender | None,
        refuse: Callable[[PayloadRefused], None],
        runs_aside: bool,
    ) -> None:
        self._rank = rank
        self._runner = runner
        self._spec = spec
        self._receiver = receiver
        self._sender = sender
        self._refuse = refuse
        self._codec = get_codec(spec.codec)
        self._codec_id = codec_id(self._codec.name)
        self._ids_travel = self._codec.traits.sampled_ids_travel
        self._runs_aside = runs_aside
        results = get_result_format(spec.result_format)
        self._result_id = codec_id(results.name)
        self._result_encoder = results.ends(spec.limits)[0]
        self._log = SpanLog(len(WORKER_FIELDS))
        self._cpu_begun_s = clock_gettime(CLOCK_PROCESS_CPUTIME_ID)
        self._rolling = 0
        self._begin_epoch(epoch=0, step=0)

    def _begin_epoch(self, epoch: int, step: int) -> None:
        self._epoch = epoch
        self._due = step
        self._broken = False
        self._table = RequestTable(self._spec.limits)
        self._decoder = new_ends(self._codec, self._spec.limits)[1]
        self._seen_batch = (NO_ROWS, NO_ROWS)
        self._runner.open(self._spec.limits)

    def step(self, timeout_s: float) -> bool:
        """Wait for one payload and run it. False when it was the session's end.

        Raises:
            TransportTimeout: nothing came. Whatever the model raises ends the worker.
        """
        with self._receiver.receive(timeout_s) as payload:
            received = monotonic_ns()
            step = self._due
            try:
                size = body_bytes(payload.body)
                if not is_due(payload.header, size, PLAN, self._codec_id, self._epoch, step):
                    header = parse_header(payload.header, size)
                    if header.kind == END:
                        return False
                    step = header.step
                    self._expect(header)
                taken = self._take(step, payload)
            except CodecError as error:
                self._broken = True
                self._refuse(PayloadRefused(self._rank, self._epoch, step, f"{type(error).__name__}: {error}"))
                return True
        self._run(taken, received, timeout_s)
        return True

    def _take(self, step: int, payload: Payload) -> Taken:
        """From the bytes of the payload due to a batch, while the payload is valid."""
        if self._broken:
            raise PlanError("an earlier payload of this epoch was refused")
        try:
            objects = self._decoder.decode(payload.body)  # type: ignore[arg-type]
            decoded = monotonic_ns()
            plan = self._decoder.adapt(objects)
            del objects  # throwing them away is the codec's cost too; left to the end it would count as the model's
            adapted = monotonic_ns()
        except CodecError:
            raise
        except BaseException as error:
            raise_broken(self._codec, f"the payload of step {step} can't be decoded", error)
        if not isinstance(plan, StepPlan):
            raise PlanError(f"codec {self._codec.name} decoded a {type(plan).__name__}; a StepPlan was due")
        if plan.step != step or plan.epoch != self._epoch:
            raise PlanError(f"a plan of step {plan.step}, epoch {plan.epoch} under another header")
        self._apply(plan)
        applied = monotonic_ns()
        batch = self._prepare(plan)
        return Taken(plan, batch, decoded, adapted, applied, monotonic_ns())

    def _run(self, taken: Taken, received: int, timeout_s: float) -> None:
        """Run the batch, answer, and note when what was done."""
        plan, batch = taken.plan, taken.batch
        output = self._runner.forward(batch)
        forwarded = monotonic_ns()
        result = self._runner.sample(output, batch)
        sampled = monotonic_ns()
        result_adapted = replied = sampled
        if self._sender is not None:
            objects = self._result_encoder.adapt(result)
            result_adapted = monotonic_ns()
            body = self._result_encoder.encode(objects)
            self._sender.send(pack_header(RESULT, self._result_id, self._epoch, plan.step, body), body, timeout_s)
            replied = monotonic_ns()
        self._table.advance(plan)
        if not self._ids_travel:
            self._table.append_sampled(batch.sample_rows, result.token_ids)
            if self._runs_aside:
                self._runner.look_ahead(self._table)
        ahead = monotonic_ns() - replied if self._runs_aside else 0
        self._due = plan.step + 1
        taken_at = (received, taken.decoded, taken.adapted, taken.applied, taken.prepared)
        answered = (forwarded, sampled, result_adapted, replied)
        self._log.add(self._epoch, plan.step, *taken_at, *answered, self._runner.device_ns, ahead)

    def report(self) -> WorkerReport:
        """Timings and digests of the session so far."""
        return WorkerReport(
            rank=self._rank,
            spans=self._log.to_bytes(),
            cpu_s=clock_gettime(CLOCK_PROCESS_CPUTIME_ID) - self._cpu_begun_s,
            peak_rss_bytes=resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024,
            rolling_digest=f"{self._rolling:08x}" if self._spec.rolling_digest else "",
        )

    def _expect(self, header: Header) -> None:
        if header.kind == PLAN and header.epoch > self._epoch:
            self._begin_epoch(header.epoch, header.step)
        check_header(header, PLAN, self._codec_id, self._epoch, self._due)

    def _apply(self, plan: StepPlan) -> None:
        if self._spec.validate:
            plan.validate()
        self._table.apply(plan)
        seen = self._seen_batch
        if self._spec.validate or plan.batch_rows is not seen[0] or plan.batch_counts is not seen[1]:
            self._table.check(plan)
            self._seen_batch = (plan.batch_rows, plan.batch_counts)

    def _prepare(self, plan: StepPlan) -> Batch:
        try:
            batch: Batch = self._runner.prepare(plan, self._table)
        except IndexError as error:  # only where a corrupt plan passed the checks of its columns
            raise PlanError(f"step {plan.step} reaches outside the table: {error}") from error
        if self._spec.rolling_digest:
            self._roll(plan)
        return batch

    def _roll(self, plan: StepPlan) -> None:
        rows = plan.batch_rows
        for column in (rows, plan.batch_counts, self._table.num_computed_tokens[rows], self._table.num_blocks[rows]):
            self._rolling = zlib.crc32(column.tobytes(), self._rolling)
        last = self._table.num_computed_tokens[rows]
        self._rolling = zlib.crc32(self._table.token_ids[rows, last].tobytes(), self._rolling)
