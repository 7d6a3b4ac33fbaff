"""Tests how one pass becomes figures: latencies, digests, counts. They do not know who made the pass."""

import msgspec
import numpy as np
import pytest

from serbench.errors import FaultError
from serbench.mock import MockClock, MockSession
from serbench.passes import Pace, Pass, drive, latencies, outputs_digest, record, short_of_due
from serbench.results import LATENCY_PERCENTS, BatchSizes
from serbench.workload.base import WorkRequest, forced
from serbench_engine.request import FinishedRequest, RequestTimes


def finished(
    request_id: str = "a", output: tuple[int, ...] = (1, 2, 3), times: tuple[int, int, int] = (0, 1, 2)
) -> FinishedRequest:
    return FinishedRequest(
        request_id=request_id,
        prompt_token_ids=np.arange(5, dtype=np.int32),
        output_token_ids=np.array(output, dtype=np.int32),
        finish_reason="length",
        stop_reason=None,
        times=RequestTimes(*times),
        num_preemptions=0,
        num_cached_tokens=0,
    )


def test_time_per_token_leaves_the_first_token_out() -> None:
    found = latencies([finished(output=(1, 2, 3, 4, 5), times=(0, 9_000_000_000, 11_000_000_000))])
    assert found.ttft is not None
    assert found.ttft.p50 == 9.0
    assert found.tpot is not None
    assert found.tpot.p50 == 0.5  # 2 s over the 4 tokens after the first, whatever the first one took
    assert found.e2e is not None
    assert found.e2e.p50 == 11.0


def test_requests_with_one_token_have_no_time_per_token_and_those_with_none_no_latency() -> None:
    assert latencies([finished(output=(1,))]).tpot is None
    both = latencies([finished(output=(1,)), finished(output=(1, 2), times=(0, 1, 3_000_000_001))]).tpot
    assert both is not None
    assert both.mean == 3.0
    assert latencies([finished(output=(), times=(5, 0, 0))]).ttft is None
    assert latencies([]).e2e is None


def test_percentiles_are_over_requests() -> None:
    found = latencies([finished(times=(0, i * 1_000_000_000, i * 1_000_000_000)) for i in range(1, 102)]).ttft
    assert found is not None
    assert (found.p50, found.p99, found.mean) == (51.0, 100.0, 51.0)


def test_all_arrive_when_the_pass_begins_so_that_queueing_counts() -> None:
    clock = MockClock()
    requests = [WorkRequest(f"{i}", np.arange(3, dtype=np.int32), forced(2)) for i in range(2)]

    class Slow(MockSession):
        """Takes a second for every request that is added."""

        def add_request(self, *args: object) -> None:
            clock.now_ns += 1_000_000_000
            super().add_request(*args)  # type: ignore[arg-type]

    done = drive(Slow(clock, step_us=1000), requests, Pace(clock))
    assert {one.times.arrival_ns for one in done.finished} == {done.begun_ns} == {1}
    assert done.ended_ns - done.begun_ns == 2_000_000_000 + 2 * 1_000_000


def test_the_digest_is_over_ids_and_tokens_in_order() -> None:
    a, b = finished("a", (1, 2)), finished("b", (3,))
    digests = {
        outputs_digest(ends)
        for ends in (
            [a, b],
            [b, a],
            [finished("a", (1, 2, 3)), finished("b", ())],
            [finished("a", (1,)), finished("b", (2, 3))],
            [finished("c", (1, 2)), b],
        )
    }
    assert len(digests) == 5
    assert outputs_digest([a, b]) == outputs_digest([finished("a", (1, 2), (7, 8, 9)), b])


def test_tokens_due_are_compared_with_those_produced() -> None:
    prompt = np.arange(3, dtype=np.int32)
    requests = [
        WorkRequest("a", prompt, forced(3), None, 3),
        WorkRequest("b", prompt, forced(3), None, 3),
        WorkRequest("c", prompt, forced(3), None, None),
    ]
    ends = [finished("a"), finished("b", (1, 2)), finished("c", ())]
    assert [one.request_id for one in short_of_due(requests, ends)] == ["b"]


def test_a_pass_without_steps_has_figures() -> None:
    repeat = record(Pass([], 5, 5), MockSession(MockClock(), 1.0).close(), group=2, order=7)
    assert (repeat.group, repeat.order, repeat.steps, repeat.output_tokens) == (2, 7, 0, 0)
    assert repeat.wall_s > 0
    assert repeat.host_us_per_step == 0
    assert repeat.payload_bytes.plan.max == 0


def test_workers_that_did_not_do_the_same_are_a_fault() -> None:
    report = MockSession(MockClock(), 1.0).close()
    record(Pass([], 0, 1), msgspec.structs.replace(report, worker_digests=["ab", "ab"]), group=0, order=0)
    with pytest.raises(FaultError, match="tables differ"):
        record(Pass([], 0, 1), msgspec.structs.replace(report, worker_digests=["ab", "ab", "cd"]), group=0, order=0)


@pytest.mark.parametrize("preemptions", [0, 3])
def test_preemptions_are_counted(preemptions: int) -> None:
    session = MockSession(MockClock(), 1.0, preemptions)
    assert record(Pass([], 0, 1), session.close(), group=0, order=0).preemptions == preemptions


def test_tokens_found_in_the_prefix_cache_are_kept() -> None:
    report = msgspec.structs.replace(MockSession(MockClock(), 1.0).close(), cached_tokens=48)
    assert record(Pass([], 0, 1), report, group=0, order=0).cached_tokens == 48


def test_the_distribution_of_latencies_is_kept() -> None:
    ends = [finished(times=(0, i * 1_000_000_000, i * 2_000_000_000)) for i in range(1, 102)]
    repeat = record(Pass(ends, 0, 1), MockSession(MockClock(), 1.0).close(), group=0, order=0)
    assert set(repeat.latency_quantiles_s) == {"ttft", "tpot", "e2e"}
    assert all(len(times) == len(LATENCY_PERCENTS) for times in repeat.latency_quantiles_s.values())
    assert repeat.latency_s.ttft is not None
    assert repeat.latency_quantiles_s["ttft"][LATENCY_PERCENTS.index(99)] == repeat.latency_s.ttft.p99 == 100.0
    assert repeat.latency_quantiles_s["e2e"][-1] == 202.0


def test_the_sizes_of_batches_are_those_that_ran() -> None:
    clock = MockClock()
    session = MockSession(clock, step_us=1000)
    done = drive(session, [WorkRequest("a", np.arange(3, dtype=np.int32), forced(2))], Pace(clock))
    repeat = record(done, session.close(), group=0, order=0)
    assert repeat.batch_sizes == BatchSizes(1.0, 1, 1.0)
