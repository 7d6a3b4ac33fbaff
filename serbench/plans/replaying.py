"""Replays recorded plans through one codec and transport to one worker: the scheduler's side of each step, clocked.

It does not know in which order things are replayed, nor what is made of the times. Where the engine would schedule and
take results in, a table follows the recording; neither is clocked.
"""

from collections.abc import Sequence
from pathlib import Path
from time import monotonic_ns

import msgspec
import numpy as np

from serbench.errors import FaultError
from serbench.experiment import Experiment
from serbench.garbage import swept
from serbench.plans.checking import due_rows
from serbench.plans.reading import Step
from serbench.plans.replay_runner import ReplayRunner
from serbench_codecs.codec import PLAN, RESULT, body_bytes, codec_id, expect_header, pack_header
from serbench_codecs.plan import StepResult
from serbench_codecs.registry import get_codec, get_result_format
from serbench_codecs.table import RequestTable, TableLimits
from serbench_engine.codec_ends import new_ends, raise_broken
from serbench_engine.executor.base import Link, SessionSpec, WorkerSpec
from serbench_engine.executor.inproc import InprocLink
from serbench_engine.executor.mp import MpExecutor
from serbench_engine.models.config import ResolvedModel, SimConfig, WeightsSource
from serbench_engine.phases import (
    SCHEDULER_FIELDS,
    WORKER_FIELDS,
    Float64Array,
    Int64Matrix,
    SpanLog,
    as_spans,
    phases_of,
)

PATH: tuple[str, ...] = (
    "encode",
    "send",
    "transit_out",
    "decode",
    "adapt",
    "apply",
    "reply",
    "transit_back",
    "collect",
)
"""The phases that a replay measures: the way of a plan to the worker's table, and of the result back."""


class Replayed(msgspec.Struct, frozen=True, eq=False):
    """One pass: µs of each phase of PATH, float64[steps]; bytes int64[steps], header included."""

    phases_us: dict[str, Float64Array]
    plan_bytes: Int64Matrix
    result_bytes: Int64Matrix
    wall_s: float


class ReplayWorkers:
    """Opens links to workers that sample what was recorded: in this process, or (started when first needed) in another.

    Raises:
        WorkerError: the worker can't start, or died.
    """

    def __init__(self, path: Path, steps: Sequence[Step], limits: TableLimits, check_every: int) -> None:
        self._path = path
        self._steps = steps
        self._limits = limits
        self._check_every = check_every
        self._elsewhere: MpExecutor | None = None

    def open(self, experiment: Experiment) -> Link:
        """A link for one pass of a settled experiment: its codec, result format and transport."""
        assert experiment.transport is not None, "settled"
        assert experiment.result_format is not None, "settled"
        spec = SessionSpec(
            codec=experiment.codec,
            result_format=experiment.result_format,
            transport=experiment.transport,
            limits=self._limits,
            wait=experiment.wait,
        )
        if experiment.executor == "inproc":
            return InprocLink([ReplayRunner(self._steps, self._check_every)], spec)
        if self._elsewhere is None:
            self._elsewhere = self._start(experiment)
        return self._elsewhere.open(spec)

    def close(self) -> None:
        """End the worker's process. Idempotent."""
        if self._elsewhere is not None:
            self._elsewhere.close()

    def _start(self, experiment: Experiment) -> MpExecutor:
        limits = self._limits
        model = ResolvedModel("replay", SimConfig(vocab_size=limits.vocab_size), WeightsSource("sim"), "replay")
        spec = WorkerSpec(model, "float32", "cpu", limits.block_size, limits.num_blocks, limits.max_num_seqs)
        told = (str(self._path), str(len(self._steps)), str(self._check_every))
        program = ("serbench.plans.replay_worker", *told)
        return MpExecutor(spec, step_timeout_s=experiment.step_timeout_s, program=program)


class ReplaySession:
    """One pass through new codec ends."""

    def __init__(self, link: Link, experiment: Experiment, limits: TableLimits) -> None:
        assert experiment.result_format is not None, "settled"
        codec, results = get_codec(experiment.codec), get_result_format(experiment.result_format)
        self._link = link
        self._codec_id, self._result_id = codec_id(codec.name), codec_id(results.name)
        self._codec = codec
        self._encoder, self._result_decoder = new_ends(codec, limits)[0], results.ends(limits)[1]
        self._table = RequestTable(limits)
        self._log = SpanLog(len(SCHEDULER_FIELDS))

    def run(self, steps: Sequence[Step]) -> Replayed:
        """Replay all steps.

        Raises:
            FaultError: a result that isn't the recorded one. WorkerError: a worker died, or its table is wrong.
            CodecError: a result that can't be decoded. PayloadRefused: a plan that the worker can't decode.
        """
        with swept():
            begun = monotonic_ns()
            for step in steps:
                self._step(step)
            wall_s = (monotonic_ns() - begun) / 1e9
        [report] = self._link.close()
        spans = self._log.to_array()
        phases, spans, _ = phases_of(spans, as_spans(report.spans, len(WORKER_FIELDS)))
        columns = {name: spans[:, i] for i, name in enumerate(SCHEDULER_FIELDS)}
        path = {name: phases[name] for name in PATH}
        return Replayed(path, columns["plan_bytes"], columns["result_bytes"], wall_s)

    def _step(self, step: Step) -> None:
        plan, table = step.plan, self._table
        table.apply(plan)
        begun = monotonic_ns()
        try:
            objects = self._encoder.adapt(plan, table)
            adapted = monotonic_ns()
            body = self._encoder.encode(objects)
            encoded = monotonic_ns()
            header = pack_header(PLAN, self._codec_id, plan.epoch, plan.step, body)
        except BaseException as error:
            raise_broken(self._codec, f"no payload of step {plan.step}", error)
        self._link.send(header, body)
        sent = monotonic_ns()
        with self._link.receive() as payload:
            received = monotonic_ns()
            size = body_bytes(payload.body)
            expect_header(payload.header, size, RESULT, self._result_id, plan.epoch, plan.step)
            objects = self._result_decoder.decode(payload.body)  # type: ignore[arg-type]
            decoded = monotonic_ns()
            result = self._result_decoder.adapt(objects, plan.step, plan.epoch)
            result_bytes = len(payload.header) + size if size else 0
        done = monotonic_ns()
        self._take_in(step, result)
        plan_bytes = len(header) + body_bytes(body) if body_bytes(body) else 0
        sizes = (plan_bytes, result_bytes, len(plan.batch_rows), 0)
        stamps = (begun, begun, adapted, encoded, sent, received, decoded, done, done)
        self._log.add(plan.epoch, plan.step, *stamps, *sizes, 0, 0)

    def _take_in(self, step: Step, result: StepResult) -> None:
        """Follow the recording."""
        ids, table = step.result.token_ids, self._table
        if not np.array_equal(result.token_ids, ids):
            raise FaultError(f"step {step.plan.step}: the result that came back is not the one that was sent")
        rows = due_rows(step.plan, table)
        table.advance(step.plan)
        table.append_sampled(rows, ids)
