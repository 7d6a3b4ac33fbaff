"""Tests the structure of traces: slices nest, times rise, arrows meet slices. They do not know how stamps are kept."""

from collections import defaultdict
from typing import Any

import numpy as np
import pytest

from serbench.errors import ExperimentError, ResultsError
from serbench.spans import RepeatSpans
from serbench.trace_events import StepRange, trace_events
from serbench_engine.phases import PHASES, SCHEDULER_FIELDS, SessionReport, phases_of
from tests.engine.serving import random_workload, serve_sim

Event = dict[str, Any]
STEP_TRACKS = {(1, 1): "scheduler", (10, 1): "worker 0"}


@pytest.fixture(scope="module")
def report() -> SessionReport:
    return serve_sim(
        random_workload(1, 6, (10, 60), (5, 20)),
        codec="delta",
        num_blocks=24,
        max_model_len=100,
    ).report


@pytest.fixture(scope="module")
def spans(report: SessionReport) -> RepeatSpans:
    return RepeatSpans(report.scheduler_spans, report.worker_spans)


@pytest.fixture(scope="module")
def events(spans: RepeatSpans) -> list[Event]:
    return trace_events(spans, StepRange())


def begin_ns(event: Event) -> int:
    return round(float(event["ts"]) * 1000)


def end_ns(event: Event) -> int:
    return begin_ns(event) + round(float(event["dur"]) * 1000)


def by_track(events: list[Event]) -> dict[tuple[int, int], list[Event]]:
    tracks: dict[tuple[int, int], list[Event]] = defaultdict(list)
    for event in events:
        if event["ph"] == "X":
            tracks[event["pid"], event["tid"]].append(event)
    return tracks


def test_every_event_has_what_the_format_asks_for(events: list[Event]) -> None:
    for event in events:
        assert set(event) >= {"name", "ph", "pid"}
        assert event["ph"] in "XCMsf"
        assert event["ph"] == "M" or event["ts"] >= 0
        assert event["ph"] == "C" or isinstance(event["tid"], int)
        assert event["ph"] not in "sf" or event["id"]
        assert event["ph"] not in "MC" or event["args"]


def test_no_slice_lasts_less_than_nothing_and_times_rise(events: list[Event]) -> None:
    for track in by_track(events).values():
        assert all(event["dur"] >= 0 for event in track)
        begins = [event["ts"] for event in track]
        assert begins == sorted(begins)


def test_slices_of_a_track_nest_or_follow_one_another(events: list[Event]) -> None:
    for track in by_track(events).values():
        open_until: list[int] = []
        for event in track:
            while open_until and open_until[-1] <= begin_ns(event):
                open_until.pop()
            assert not open_until or end_ns(event) <= open_until[-1], event
            open_until.append(end_ns(event))


@pytest.mark.parametrize("track", STEP_TRACKS)
def test_every_phase_lies_within_a_step_and_fills_it(events: list[Event], track: tuple[int, int]) -> None:
    steps = [event for event in by_track(events)[track] if event["name"].startswith("step ")]
    phases = [event for event in by_track(events)[track] if not event["name"].startswith("step ")]
    assert len(steps) > 20
    for step in steps:
        within = [one for one in phases if begin_ns(step) <= begin_ns(one) and end_ns(one) <= end_ns(step)]
        assert sum(end_ns(one) - begin_ns(one) for one in within) == end_ns(step) - begin_ns(step)
    assert all(any(begin_ns(s) <= begin_ns(p) and end_ns(p) <= end_ns(s) for s in steps) for p in phases)


def test_slices_add_up_to_the_phases_of_the_run(events: list[Event], report: SessionReport) -> None:
    lasted: dict[str, float] = defaultdict(float)
    for event in events:
        if event["ph"] == "X":
            lasted[event["name"]] += event["dur"]
    for name in set(PHASES) - {"send", "reply"}:  # of which transit takes its part where the receiver was awake first
        assert lasted[name] == pytest.approx(report.phases_us[name].sum()), name


def test_arrows_go_forward_from_a_slice_to_a_slice(events: list[Event], report: SessionReport) -> None:
    starts = {event["id"]: event for event in events if event["ph"] == "s"}
    ends = {event["id"]: event for event in events if event["ph"] == "f"}
    assert set(starts) == set(ends)
    assert len(starts) == 2 * len(report.step_us)  # a plan out and a result back, every step
    slices = by_track(events)
    for identity, start in starts.items():
        end = ends[identity]
        assert start["ts"] <= end["ts"]
        assert {start["pid"], end["pid"]} == {1, 10}
        names = []
        for arrow in (start, end):
            around = [s for s in slices[arrow["pid"], arrow["tid"]] if begin_ns(s) <= begin_ns(arrow) < end_ns(s)]
            names.append(around[-1]["name"])
        assert names in (["send", "decode"], ["reply", "collect"])


def test_counters_hold_what_each_step_had(events: list[Event], report: SessionReport) -> None:
    counted = [event["args"]["requests"] for event in events if event["name"] == "requests in the batch"]
    assert counted == [*report.batch_sizes.tolist(), 0]
    sent = [event["args"]["plan"] for event in events if event["name"] == "payload bytes"]
    assert sent == [*report.plan_bytes.tolist(), 0]


def test_tracks_are_named(events: list[Event]) -> None:
    names = {event["pid"]: event["args"]["name"] for event in events if event["name"] == "process_name"}
    assert names == {1: "scheduler", 2: "transport", 10: "worker 0"}
    threads = {(e["pid"], e["tid"]): e["args"]["name"] for e in events if e["name"] == "thread_name"}
    assert threads[10, 2] == "simulated device"
    assert set(by_track(events)) <= set(threads)


def test_a_range_of_steps(spans: RepeatSpans) -> None:
    names = [e["name"] for e in trace_events(spans, StepRange(3, 5)) if e["ph"] == "X" and e["pid"] == 1]
    assert [name for name in names if name.startswith("step ")] == ["step 3", "step 4", "step 5"]
    with pytest.raises(ResultsError, match="no step of 0 to"):
        trace_events(spans, StepRange(9999, None))


def test_a_step_that_a_recovery_cut_short_has_no_arrow(spans: RepeatSpans) -> None:
    worker = spans.workers[0]
    events = trace_events(RepeatSpans(spans.scheduler, [worker[1:]]), StepRange())
    assert sum(event["ph"] == "s" for event in events) == 2 * (len(worker) - 1)
    assert sum(e["ph"] == "X" and e["name"].startswith("step") and e["pid"] == 1 for e in events) == len(worker)


def test_a_repeat_without_steps_is_told() -> None:
    with pytest.raises(ResultsError, match="has none"):
        trace_events(RepeatSpans(np.empty((0, len(SCHEDULER_FIELDS)), dtype=np.int64), []), StepRange())


def test_phases_are_those_that_the_engine_reports(spans: RepeatSpans, report: SessionReport) -> None:
    phases, _, _ = phases_of(spans.scheduler, spans.workers[0])
    assert all((phases[name] == report.phases_us[name]).all() for name in PHASES)


@pytest.mark.parametrize(
    ("text", "steps"),
    [("5", (5, 5)), ("5:20", (5, 20)), ("5:", (5, None)), (":20", (None, 20)), (" 0:0 ", (0, 0))],
)
def test_ranges_are_read(text: str, steps: tuple[int | None, int | None]) -> None:
    assert StepRange.parse(text) == StepRange(*steps)


@pytest.mark.parametrize("text", ["", ":", "a", "3:2", "-1", "1:2:3", "1.5", "²"])
def test_what_is_no_range_is_refused(text: str) -> None:
    with pytest.raises(ExperimentError, match="steps"):
        StepRange.parse(text)
