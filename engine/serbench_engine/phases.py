"""Where the time of each step went: span logs that are written while running, and the report made of them afterwards.

It does not read clocks: the engine's step and the worker's loop do, and hand their stamps over.
"""

import struct
from typing import Final

import msgspec
import numpy as np
import numpy.typing as npt

from serbench_engine.executor.base import WorkerReport

Int64Matrix = npt.NDArray[np.int64]
Float64Array = npt.NDArray[np.float64]

PHASES: Final = (
    "schedule",
    "encode",
    "send",
    "transit_out",
    "decode",
    "adapt",
    "apply",
    "prepare",
    "forward",
    "sample",
    "reply",
    "transit_back",
    "collect",
    "update",
    "other",
)
"""In the order in which they are shown; ``adapt`` sums both directions and both sides, ``other`` is what is left."""

SCHEDULER_FIELDS: Final = (
    "epoch",
    "step",
    "begun",
    "scheduled",
    "adapted",
    "encoded",
    "sent",
    "received",
    "decoded",
    "result_adapted",
    "updated",
    "plan_bytes",
    "result_bytes",
    "batch_size",
    "num_tokens",
    "continues",  # 1: more requests were unfinished when the step ended, so the gap to the next step is `other`
    "ahead_ns",  # spent, while the workers ran this step, on what else need not wait for it; 0 in one process
)
WORKER_FIELDS: Final = (
    "epoch",
    "step",
    "received",
    "decoded",
    "adapted",
    "applied",
    "prepared",
    "forwarded",
    "sampled",
    "result_adapted",
    "replied",
    "device_ns",
    "ahead_ns",  # spent after the answer
)


class SpanLog:
    """Rows of int64, one a step, in a preallocated buffer that doubles when it is full.

    Stamps are CLOCK_MONOTONIC in ns, one clock for all processes of a host.
    """

    def __init__(self, num_fields: int, capacity: int = 4096) -> None:
        self._struct = struct.Struct(f"<{num_fields}q")
        self._num_fields = num_fields
        self._buffer = bytearray(capacity * self._struct.size)
        self._end = 0

    def add(self, *values: int) -> None:
        """Append one row."""
        if self._end == len(self._buffer):
            self._buffer.extend(bytes(len(self._buffer)))
        self._struct.pack_into(self._buffer, self._end, *values)
        self._end += self._struct.size

    def to_bytes(self) -> bytes:
        return bytes(self._buffer[: self._end])

    def to_array(self) -> Int64Matrix:
        """int64[steps, fields], a copy."""
        return as_spans(self.to_bytes(), self._num_fields)


def as_spans(data: bytes, num_fields: int) -> Int64Matrix:
    """The rows of a SpanLog from its bytes: int64[steps, fields]."""
    return np.frombuffer(data, dtype="<i8").reshape(-1, num_fields)


class SessionReport(msgspec.Struct, frozen=True, kw_only=True, eq=False):
    """What one session (one repeat) cost, step by step.

    ``phases_us`` float64[steps] for each of PHASES; ``step_us`` their sum; ``host_us`` = step − forward − sample;
    ``plan_bytes``, ``result_bytes`` int64[steps], header included (0 where nothing was serialized); ``batch_sizes`` and
    ``num_tokens`` int64[steps]; ``device_us`` float64[steps] the realised time of a simulated device, else 0;
    ``ahead_us`` float64[steps] what scheduler and worker did beside the step, for which it did not wait.
    ``cpu_scheduler_s`` includes the workers where they share the scheduler's process (``cpu_workers_s`` is 0 then).
    ``scheduler_spans`` int64[steps, SCHEDULER_FIELDS] and, by rank, ``worker_spans`` int64[steps, WORKER_FIELDS] are
    the logs as they were written, steps that only one side finished included. ``recoveries``: payloads refused, and
    why the first was.
    """

    phases_us: dict[str, Float64Array]
    step_us: Float64Array
    host_us: Float64Array
    plan_bytes: Int64Matrix
    result_bytes: Int64Matrix
    batch_sizes: Int64Matrix
    num_tokens: Int64Matrix
    device_us: Float64Array
    ahead_us: Float64Array
    batches_digest: str
    preemptions: int
    recoveries: int
    first_refusal: str
    cached_tokens: int
    cpu_scheduler_s: float
    cpu_workers_s: list[float]
    peak_rss_bytes: list[int]
    worker_digests: list[str]
    scheduler_spans: Int64Matrix = msgspec.field(default_factory=lambda: as_spans(b"", len(SCHEDULER_FIELDS)))
    worker_spans: list[Int64Matrix] = []

    @staticmethod
    def of(
        scheduler_spans: Int64Matrix,
        reports: list[WorkerReport],
        *,
        cpu_s: float,
        shares_process: bool,
        batches_digest: str,
        preemptions: int,
        recoveries: int,
        first_refusal: str,
        cached_tokens: int,
    ) -> "SessionReport":
        """Put the scheduler's log and the workers' reports together; phases are those of rank 0, which answers."""
        logs = [as_spans(report.spans, len(WORKER_FIELDS)) for report in reports]
        answering = logs[0] if logs else as_spans(b"", len(WORKER_FIELDS))
        phases, scheduler, worker = phases_of(scheduler_spans, answering)
        columns = {name: scheduler[:, i] for i, name in enumerate(SCHEDULER_FIELDS)}
        step_us = np.sum([phases[name] for name in PHASES], axis=0)
        return SessionReport(
            phases_us=phases,
            step_us=step_us,
            host_us=step_us - phases["forward"] - phases["sample"],
            plan_bytes=columns["plan_bytes"],
            result_bytes=columns["result_bytes"],
            batch_sizes=columns["batch_size"],
            num_tokens=columns["num_tokens"],
            device_us=worker[:, WORKER_FIELDS.index("device_ns")] / 1e3,
            ahead_us=(columns["ahead_ns"] + worker[:, WORKER_FIELDS.index("ahead_ns")]) / 1e3,
            batches_digest=batches_digest,
            preemptions=preemptions,
            recoveries=recoveries,
            first_refusal=first_refusal,
            cached_tokens=cached_tokens,
            cpu_scheduler_s=cpu_s,
            cpu_workers_s=[0.0 if shares_process else report.cpu_s for report in reports],
            peak_rss_bytes=[report.peak_rss_bytes for report in reports],
            worker_digests=[report.rolling_digest for report in reports],
            scheduler_spans=scheduler_spans,
            worker_spans=logs,
        )


def phases_of(scheduler: Int64Matrix, worker: Int64Matrix) -> tuple[dict[str, Float64Array], Int64Matrix, Int64Matrix]:
    """Split every step that both sides finished into phases, in µs; also the two logs' rows of those steps.

    A receiver may be awake before the sender's call has returned: then ``send`` (or ``reply``) ends where the receiver
    wakes and the transit is 0, so that no time counts twice and the phases add up to the step.
    """
    scheduler, worker = _matched(scheduler, worker)
    s = {name: scheduler[:, i] for i, name in enumerate(SCHEDULER_FIELDS)}
    w = {name: worker[:, i] for i, name in enumerate(WORKER_FIELDS)}
    sent = np.minimum(s["sent"], w["received"])
    replied = np.minimum(w["replied"], s["received"])
    ends = np.append(s["begun"][1:], s["updated"][-1:])
    ends = np.where(s["continues"] == 1, np.maximum(ends, s["updated"]), s["updated"])
    adapt = (s["adapted"] - s["scheduled"]) + (w["adapted"] - w["decoded"])
    adapt = adapt + (w["result_adapted"] - w["sampled"]) + (s["result_adapted"] - s["decoded"])
    spans = {
        "schedule": s["scheduled"] - s["begun"],
        "encode": s["encoded"] - s["adapted"],
        "send": sent - s["encoded"],
        "transit_out": w["received"] - sent,
        "decode": w["decoded"] - w["received"],
        "adapt": adapt,
        "apply": w["applied"] - w["adapted"],
        "prepare": w["prepared"] - w["applied"],
        "forward": w["forwarded"] - w["prepared"],
        "sample": w["sampled"] - w["forwarded"],
        "reply": replied - w["result_adapted"],
        "transit_back": s["received"] - replied,
        "collect": s["decoded"] - s["received"],
        "update": s["updated"] - s["result_adapted"],
        "other": ends - s["updated"],
    }
    return {name: spans[name] / 1e3 for name in PHASES}, scheduler, worker


def _matched(scheduler: Int64Matrix, worker: Int64Matrix) -> tuple[Int64Matrix, Int64Matrix]:
    """The rows of both logs with the same (epoch, step): a step cut short by a recovery is in one log only."""
    if len(scheduler) == len(worker) and (scheduler[:, :2] == worker[:, :2]).all():
        return scheduler, worker
    index = {key: i for i, key in enumerate(map(tuple, worker[:, :2].tolist()))}
    pairs = [(i, index[key]) for i, key in enumerate(map(tuple, scheduler[:, :2].tolist())) if key in index]
    left, right = [i for i, _ in pairs], [j for _, j in pairs]
    return scheduler[left], worker[right]
