"""Drives one pass of requests through an engine's session and turns what happened into a Repeat.

It does not know which experiment it belongs to, in which order passes are made, nor where they are stored.
"""

import hashlib
from collections.abc import Callable, Sequence
from typing import Protocol

import msgspec
import numpy as np
import numpy.typing as npt

from serbench.errors import FaultError
from serbench.results import (
    LATENCY_PERCENTS,
    BatchSizes,
    Bytes,
    CpuSeconds,
    Latencies,
    Latency,
    PayloadBytes,
    PhaseTimes,
    Repeat,
)
from serbench.stats import FloatArray, percentile
from serbench.workload.base import WorkRequest
from serbench_codecs.plan import Int32Array
from serbench_engine.phases import SessionReport
from serbench_engine.request import FinishedRequest, SamplingParams


class Stepped(Protocol):
    """What a step hands back."""

    @property
    def finished(self) -> Sequence[FinishedRequest]: ...


class Session(Protocol):
    """An engine for one pass, made anew; ``serbench_engine.engine.Engine`` is one."""

    @property
    def has_unfinished(self) -> bool: ...

    def add_request(
        self,
        request_id: str,
        prompt_token_ids: Sequence[int] | Int32Array,
        params: SamplingParams,
        arrival_ns: int | None = None,
    ) -> None: ...

    def step(self) -> Stepped: ...

    def close(self) -> SessionReport: ...


class Pass(msgspec.Struct, frozen=True, eq=False):
    """What one pass did: its requests' ends in the order in which they were sent, and CLOCK_MONOTONIC stamps in ns."""

    finished: list[FinishedRequest]
    begun_ns: int
    ended_ns: int


def drive(session: Session, requests: Sequence[WorkRequest], clock_ns: Callable[[], int]) -> Pass:
    """Send all requests, which arrive together, and step until the last one has ended.

    Raises:
        EngineError: whatever the engine raises. FaultError: requests that never ended.
    """
    begun = ended = clock_ns()
    for request in requests:
        session.add_request(request.request_id, request.prompt_token_ids, request.params, begun)
    finished: list[FinishedRequest] = []
    while session.has_unfinished:
        output = session.step()
        if output.finished:
            finished.extend(output.finished)
            ended = clock_ns()
    by_id = {one.request_id: one for one in finished}
    lost = [request.request_id for request in requests if request.request_id not in by_id]
    if lost:
        raise FaultError(f"{len(lost)} of {len(requests)} requests never ended, the first is {lost[0]}")
    return Pass([by_id[request.request_id] for request in requests], begun, ended)


def record(done: Pass, report: SessionReport, *, group: int, order: int) -> Repeat:
    """The Repeat of a pass and its session's report."""
    wall_s = max((done.ended_ns - done.begun_ns) / 1e9, 1e-9)
    inputs = sum(len(one.prompt_token_ids) for one in done.finished)
    outputs = sum(len(one.output_token_ids) for one in done.finished)
    return Repeat(
        group=group,
        order=order,
        outputs_digest=outputs_digest(done.finished),
        wall_s=wall_s,
        requests_per_s=len(done.finished) / wall_s,
        output_tokens_per_s=outputs / wall_s,
        total_tokens_per_s=(inputs + outputs) / wall_s,
        steps=len(report.step_us),
        phases_us={name: _phase(values) for name, values in report.phases_us.items()},
        host_us_per_step=_mean(report.host_us),
        payload_bytes=PayloadBytes(_bytes(report.plan_bytes), _bytes(report.result_bytes)),
        latency_s=latencies(done.finished),
        cpu_s=CpuSeconds(report.cpu_scheduler_s, float(sum(report.cpu_workers_s))),
        preemptions=report.preemptions,
        input_tokens=inputs,
        output_tokens=outputs,
        batches_digest=report.batches_digest,
        recoveries=report.recoveries,
        peak_rss_bytes=list(report.peak_rss_bytes),
        batch_sizes=_batch_sizes(report.batch_sizes),
        latency_quantiles_s={name: _quantiles(times) for name, times in latency_samples(done.finished).items()},
    )


def outputs_digest(finished: Sequence[FinishedRequest]) -> str:
    """Hex over the requests in order: their ids and the ids of their output tokens."""
    digest = hashlib.blake2b(digest_size=16)
    for one in finished:
        digest.update(f"{one.request_id} {len(one.output_token_ids)} ".encode())
        digest.update(np.ascontiguousarray(one.output_token_ids, dtype="<i4").tobytes())
    return digest.hexdigest()


def short_of_due(requests: Sequence[WorkRequest], finished: Sequence[FinishedRequest]) -> list[FinishedRequest]:
    """The requests that did not produce just the tokens they were to produce."""
    return [
        end
        for request, end in zip(requests, finished, strict=True)
        if request.due_tokens is not None and len(end.output_token_ids) != request.due_tokens
    ]


def latency_samples(finished: Sequence[FinishedRequest]) -> dict[str, FloatArray]:
    """Each latency of every request that has it, in s: ``ttft`` and ``e2e`` (to the first and last token) from arrival,
    ``tpot`` per token after the first.
    """
    produced = [one for one in finished if len(one.output_token_ids)]
    arrival = np.array([one.times.arrival_ns for one in produced], dtype=np.int64)
    first = np.array([one.times.first_token_ns for one in produced], dtype=np.int64)
    last = np.array([one.times.last_token_ns for one in produced], dtype=np.int64)
    after_first = np.array([len(one.output_token_ids) - 1 for one in produced], dtype=np.int64)
    several = after_first > 0
    return {
        "ttft": (first - arrival) / 1e9,
        "tpot": (last - first)[several] / after_first[several] / 1e9,
        "e2e": (last - arrival) / 1e9,
    }


def latencies(finished: Sequence[FinishedRequest]) -> Latencies:
    """What each latency was like over the requests."""
    return Latencies(**{name: _latency(times) for name, times in latency_samples(finished).items()})


def _quantiles(seconds: FloatArray) -> list[float]:
    return [percentile(seconds, percent) for percent in LATENCY_PERCENTS] if len(seconds) else []


def _batch_sizes(counts: npt.NDArray[np.int64]) -> BatchSizes | None:
    if not len(counts):
        return None
    return BatchSizes(percentile(counts.astype(np.float64), 50), int(counts.max()), float(counts.mean()))


def _latency(seconds: FloatArray) -> Latency | None:
    if not len(seconds):
        return None
    return Latency(percentile(seconds, 50), percentile(seconds, 99), float(seconds.mean()))


def _phase(us: FloatArray) -> PhaseTimes:
    if not len(us):
        return PhaseTimes(0.0, 0.0, 0.0, 0.0)
    return PhaseTimes(percentile(us, 50), percentile(us, 99), float(us.mean()), float(us.sum()))


def _bytes(counts: npt.NDArray[np.int64]) -> Bytes:
    if not len(counts):
        return Bytes(0.0, 0, 0.0, 0)
    middle = percentile(counts.astype(np.float64), 50)
    return Bytes(middle, int(counts.max()), float(counts.mean()), int(counts.sum()))


def _mean(values: FloatArray) -> float:
    return float(values.mean()) if len(values) else 0.0
