"""Tests the driver where requests arrive over time: order, latency, lateness, idle time. They assert no times."""

import time
from collections.abc import Sequence

import msgspec
import numpy as np
import pytest

from serbench.experiment import Experiment
from serbench.live import LiveEngine
from serbench.mock import MockClock, MockSession
from serbench.passes import Pace, Pass, drive, latencies, record
from serbench.prepare import prepare
from serbench.workload.base import WorkRequest, forced
from serbench.workload.spec import Arrivals, LengthRange, Synthetic
from serbench_codecs.plan import Int32Array
from serbench_engine.request import FinishedRequest, RequestTimes, SamplingParams

MS = 1_000_000


class Queue(MockSession):
    """Each request takes ``max_tokens`` steps of a millisecond from when it is added; remembers what it was given."""

    def __init__(self, clock: MockClock) -> None:
        super().__init__(clock, step_us=1000)
        self.added_ns: list[int] = []
        self.most = 0

    def add_request(
        self,
        request_id: str,
        prompt_token_ids: Sequence[int] | Int32Array,
        params: SamplingParams,
        arrival_ns: int | None = None,
    ) -> None:
        self.added_ns.append(self._clock.now_ns)
        due = self._steps + (params.max_tokens or 1)
        self._waiting.append((request_id, np.asarray(prompt_token_ids, dtype=np.int32), due, arrival_ns or 0))
        self.most = max(self.most, len(self._waiting))

    def _finished(self, request_id: str, prompt: Int32Array, tokens: int, arrived: int) -> FinishedRequest:
        finished = super()._finished(request_id, prompt, 1, arrived)
        return msgspec.structs.replace(finished, times=RequestTimes(arrived, self._clock.now_ns, self._clock.now_ns))


class Sleeper:
    """A mock clock's sleep that is remembered."""

    def __init__(self, clock: MockClock) -> None:
        self.slept_s: list[float] = []
        self._clock = clock

    def __call__(self, seconds: float) -> None:
        self.slept_s.append(seconds)
        self._clock.sleep_s(seconds)


def serve(*arrivals_ms: float, steps: int = 2, at_once: int | None = None) -> tuple[Queue, Sleeper, Pass]:
    clock = MockClock()
    session, sleeper = Queue(clock), Sleeper(clock)
    requests = [
        WorkRequest(f"{i}", np.arange(3, dtype=np.int32), forced(steps), None, None, round(ms * MS))
        for i, ms in enumerate(arrivals_ms)
    ]
    return session, sleeper, drive(session, requests, Pace(clock, sleeper, at_once))


def test_latency_counts_from_the_arrival_however_late_it_is_sent() -> None:
    session, _, done = serve(0, 0.25, 1.5)
    assert [one.times.arrival_ns - done.begun_ns for one in done.finished] == [0, MS // 4, 3 * MS // 2]
    assert [ns - done.begun_ns for ns in session.added_ns] == [0, MS, 2 * MS]  # after the step that was under way
    assert [ns - done.begun_ns for ns in done.sent_ns] == [0, MS, 2 * MS]
    found = latencies(done.finished)
    assert found.ttft is not None
    assert found.ttft.mean == pytest.approx((2.0 + 2.75 + 2.5) / 3 / 1e3)
    figures = record(done, session.close(), group=0, order=0).arrivals
    assert figures is not None
    assert figures.late_s.mean == pytest.approx((0 + 0.75 + 0.5) / 3 / 1e3)


def test_it_sleeps_until_the_next_arrival_where_nothing_runs() -> None:
    session, sleeper, done = serve(0, 10, 10, 30)
    assert sleeper.slept_s == pytest.approx([0.008, 0.018])
    assert [ns - done.begun_ns for ns in session.added_ns] == [0, 10 * MS, 10 * MS, 30 * MS]
    assert session._steps == 6
    assert done.ended_ns - done.begun_ns == 32 * MS


def test_it_never_sleeps_while_something_runs() -> None:
    assert serve(0, 1, 2, 3, steps=4)[1].slept_s == []


def test_a_limit_of_concurrency_holds_requests_back_and_their_latency_counts_it() -> None:
    session, sleeper, done = serve(0, 0, 0, 0, 0, at_once=2)
    assert session.most == 2
    assert sleeper.slept_s == []
    assert [one.times.first_token_ns - one.times.arrival_ns for one in done.finished] == [
        2 * MS,
        2 * MS,
        4 * MS,
        4 * MS,
        6 * MS,
    ]
    assert [ns - done.begun_ns for ns in done.sent_ns] == [0, 0, 2 * MS, 2 * MS, 4 * MS]
    figures = record(done, session.close(), group=0, order=0).arrivals
    assert figures is not None
    assert (figures.offered_per_s, figures.achieved_per_s) == (None, None)
    assert figures.late_s.p99 == pytest.approx(0.00392)


def test_offered_and_achieved_rates_are_told_apart() -> None:
    session, _, done = serve(0, 1, 2, 3, 4, steps=10, at_once=1)
    figures = record(done, session.close(), group=0, order=0).arrivals
    assert figures is not None
    assert (figures.offered_per_s, figures.achieved_per_s) == (1000.0, 100.0)


def test_idle_time_is_part_of_no_step() -> None:
    experiment = Experiment(
        model="sim",
        executor="inproc",
        workload=Synthetic(num_prompts=3, input_len=LengthRange(8, 8), output_len=LengthRange(3, 3)),
        arrivals=Arrivals(kind="poisson", request_rate=1.0),
    )
    [thing] = prepare([experiment])
    requests = [
        msgspec.structs.replace(one, arrives_ns=i * 200 * MS) for i, one in enumerate(thing.workload.requests(0))
    ]
    idle_s: list[float] = []

    def sleep_s(seconds: float) -> None:
        begun = time.monotonic()
        time.sleep(seconds)
        idle_s.append(time.monotonic() - begun)

    host = LiveEngine(thing)
    try:
        session = host.session(thing.experiment)
        done = drive(session, requests, Pace(sleep_s=sleep_s))
        report = session.close()
    finally:
        host.close()
    repeat = record(done, report, group=0, order=0)
    assert sum(idle_s) > 0
    assert report.step_us.sum() / 1e6 + sum(idle_s) <= repeat.wall_s
    assert repeat.output_tokens == 9
