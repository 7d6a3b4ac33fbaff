"""Drives one pass of requests through an engine's session and turns what happened into a Repeat.

It does not know which experiment it belongs to, in which order passes are made, nor where they are stored.
"""

import hashlib
import time
from collections import deque
from collections.abc import Callable, Sequence
from typing import Protocol

import msgspec
import numpy as np
import numpy.typing as npt

from serbench.errors import FaultError
from serbench.results import (
    LATENCY_PERCENTS,
    ArrivalFigures,
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
    """What one pass did: its requests' ends in the order in which they were sent, and CLOCK_MONOTONIC stamps in ns.

    ``sent_ns``: when each request was handed to the engine, which is not before it arrived.
    """

    finished: list[FinishedRequest]
    begun_ns: int
    ended_ns: int
    sent_ns: list[int] = []


class Pace(msgspec.Struct, frozen=True, eq=False):
    """How a pass waits: the clock (CLOCK_MONOTONIC, ns), what sleeps for some seconds, and how many requests may be
    with the engine at once (None: all).
    """

    clock_ns: Callable[[], int] = time.monotonic_ns
    sleep_s: Callable[[float], object] = time.sleep
    max_concurrency: int | None = None


class Sender:
    """Hands requests over once they have arrived, in order, while there is room. It waits for nothing.

    Each counts from when it arrived, whenever it is handed over: waiting here is part of its latency.
    """

    def __init__(self, session: Session, requests: Sequence[WorkRequest], pace: Pace, begun_ns: int) -> None:
        self._session = session
        self._waiting = deque(requests)
        self._clock_ns = pace.clock_ns
        self._room = pace.max_concurrency or len(requests)
        self._begun_ns = begun_ns
        self.sent_ns: list[int] = []

    @property
    def has_waiting(self) -> bool:
        """Whether requests are still to be handed over."""
        return bool(self._waiting)

    def send(self, with_engine: int) -> None:
        """Hand over what has arrived, where so many are with the engine already."""
        room = self._room - with_engine
        while self._waiting and room > 0 and self.wait_ns() <= 0:
            request = self._waiting.popleft()
            arrived = self._begun_ns + request.arrives_ns
            self.sent_ns.append(self._clock_ns())
            self._session.add_request(request.request_id, request.prompt_token_ids, request.params, arrived)
            room -= 1

    def wait_ns(self) -> int:
        """How long it is until the next one arrives; not above 0 if it has."""
        return self._begun_ns + self._waiting[0].arrives_ns - self._clock_ns()


_DEFAULT_PACE = Pace()


def drive(session: Session, requests: Sequence[WorkRequest], pace: Pace = _DEFAULT_PACE) -> Pass:
    """Send the requests as they arrive, between steps, and step until the last one has ended.

    Where nothing runs and nothing has arrived it sleeps, outside of any step.

    Raises:
        EngineError: whatever the engine raises. FaultError: requests that never ended, or ended in an error.
    """
    begun = ended = pace.clock_ns()
    sender = Sender(session, requests, pace, begun)
    finished: list[FinishedRequest] = []
    while sender.has_waiting or session.has_unfinished:
        if sender.has_waiting:
            sender.send(len(sender.sent_ns) - len(finished) if session.has_unfinished else 0)
        if session.has_unfinished:
            output = session.step()
            if output.finished:
                finished.extend(output.finished)
                ended = pace.clock_ns()
        elif sender.has_waiting and (wait_ns := sender.wait_ns()) > 0:
            pace.sleep_s(wait_ns / 1e9)
    return Pass(_ends(requests, finished), begun, ended, sender.sent_ns)


def _ends(requests: Sequence[WorkRequest], finished: Sequence[FinishedRequest]) -> list[FinishedRequest]:
    """The ends in the order of the requests.

    Raises:
        FaultError: one is missing, or ended in an error: neither is work that was done.
    """
    by_id = {one.request_id: one for one in finished}
    lost = [request.request_id for request in requests if request.request_id not in by_id]
    if lost:
        raise FaultError(f"{len(lost)} of {len(requests)} requests never ended, the first is {lost[0]}")
    ends = [by_id[request.request_id] for request in requests]
    failed = [one for one in ends if one.finish_reason == "error"]
    if failed:
        raise FaultError(
            f"{len(failed)} of {len(requests)} requests failed: the model's logits were not finite, so there was no "
            f"token to choose; the first is {failed[0].request_id}, after {len(failed[0].output_token_ids)} tokens"
        )
    return ends


def record(done: Pass, report: SessionReport, *, group: int, order: int) -> Repeat:
    """The Repeat of a pass and its session's report.

    Raises:
        FaultError: workers that were sent the same did not do the same.
    """
    if len(set(report.worker_digests)) > 1:
        raise FaultError(f"the workers' tables differ at the end of a repeat: digests {report.worker_digests}")
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
        first_refusal=report.first_refusal,
        peak_rss_bytes=list(report.peak_rss_bytes),
        batch_sizes=_batch_sizes(report.batch_sizes),
        arrivals=_arrivals(done),
        cached_tokens=report.cached_tokens,
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


def _arrivals(done: Pass) -> ArrivalFigures | None:
    """By the requests' own arrival stamps, so whatever gave them those is held to it."""
    if not done.sent_ns:
        return None
    due = np.array([one.times.arrival_ns for one in done.finished], dtype=np.int64)
    sent = np.array(done.sent_ns, dtype=np.int64)
    late = _latency(np.maximum(sent - due, 0) / 1e9)
    assert late is not None, "there are requests"
    at_once = due.max() == due.min()
    return ArrivalFigures(None if at_once else _per_s(due), None if at_once else _per_s(sent), late)


def _per_s(stamps_ns: npt.NDArray[np.int64]) -> float | None:
    """Events a second between the first and the last."""
    span_s = int(stamps_ns.max() - stamps_ns.min()) / 1e9
    return (len(stamps_ns) - 1) / span_s if span_s > 0 else None


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
