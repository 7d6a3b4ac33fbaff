"""Turns the stamps of a repeat into a trace that Perfetto and chrome://tracing show: the trace-event format, JSON.

It does not know where stamps are stored. Source of the format: "Trace Event Format", Google, 2016. Scheduler, transport
and each worker are processes there, steps and phases slices, all on CLOCK_MONOTONIC, which is one clock for all
processes of a host; 0 is where the first step shown began.
"""

from collections.abc import Iterator, Sequence
from typing import Any, Final, TypeAlias

import msgspec
import numpy as np

from serbench.errors import ExperimentError, ResultsError
from serbench.results import Run
from serbench.spans import Int64Matrix, RepeatSpans
from serbench_engine.phases import SCHEDULER_FIELDS, WORKER_FIELDS

Event: TypeAlias = dict[str, Any]
Step: TypeAlias = dict[str, int]
"""One row of a log, by field."""

SCHEDULER_PHASES: Final = (
    ("schedule", "begun", "scheduled"),
    ("adapt", "scheduled", "adapted"),
    ("encode", "adapted", "encoded"),
    ("send", "encoded", "sent"),
    ("wait", "sent", "received"),
    ("collect", "received", "decoded"),
    ("adapt", "decoded", "result_adapted"),
    ("update", "result_adapted", "updated"),
    ("other", "updated", "ended"),
)
"""Slices within a step of the scheduler. ``wait``: the workers and both transits."""

WORKER_PHASES: Final = (
    ("decode", "received", "decoded"),
    ("adapt", "decoded", "adapted"),
    ("apply", "adapted", "applied"),
    ("prepare", "applied", "prepared"),
    ("forward", "prepared", "forwarded"),
    ("sample", "forwarded", "sampled"),
    ("adapt", "sampled", "result_adapted"),
    ("reply", "result_adapted", "replied"),
)

SCHEDULER_PID, TRANSPORT_PID, FIRST_WORKER_PID = 1, 2, 10
STEPS_TID, DEVICE_TID = 1, 2
RESULTS_TID: Final = 1
FIRST_PLANS_TID: Final = 2


class StepRange(msgspec.Struct, frozen=True):
    """The steps to show, ``first`` … ``last``, both included; None is open."""

    first: int | None = None
    last: int | None = None

    @staticmethod
    def parse(text: str) -> "StepRange":
        """Read ``5``, ``5:20``, ``5:`` or ``:20``.

        Raises:
            ExperimentError: none of these.
        """
        low, colon, high = text.strip().partition(":")
        if not all(part == "" or (part.isascii() and part.isdigit()) for part in (low, high)) or not low + high:
            raise ExperimentError(f"steps {text!r} are none: give one such as 5, or a range such as 5:20, 5: or :20")
        first = int(low) if low else None
        last = (int(high) if high else None) if colon else first
        if first is not None and last is not None and first > last:
            raise ExperimentError(f"steps {text} are none: {first} comes after {last}")
        return StepRange(first, last)

    def holds(self, step: int) -> bool:
        """Whether ``step`` is to be shown."""
        return (self.first is None or step >= self.first) and (self.last is None or step <= self.last)


def trace_document(run: Run, group: int, spans: RepeatSpans, steps: StepRange | None = None) -> bytes:
    """The trace of one repeat as JSON.

    Raises:
        ResultsError: none of the steps is in it.
    """
    events = trace_events(spans, steps or StepRange())
    told = {"run": run.id, "repeat": group, "model": run.spec.model, "codec": run.spec.codec}
    return msgspec.json.encode({"traceEvents": events, "displayTimeUnit": "ms", "otherData": told})


def trace_events(spans: RepeatSpans, steps: StepRange) -> list[Event]:
    """All events: names first, then by time.

    Raises:
        ResultsError: none of the steps is in it.
    """
    scheduler = [step for step in _ended(spans.scheduler) if steps.holds(step["step"])]
    workers = [[step for step in _steps(log, WORKER_FIELDS) if steps.holds(step["step"])] for log in spans.workers]
    if not scheduler:
        raise ResultsError(f"no step of {_range(spans.scheduler)} is asked for; there is nothing to show")
    origin_ns = min(step["begun"] for step in scheduler)
    events = [
        *_scheduler_events(scheduler),
        *(event for rank, log in enumerate(workers) for event in _worker_events(rank, log)),
        *(event for rank, log in enumerate(workers) for event in _plan_events(rank, scheduler, log)),
        *(_result_events(scheduler, workers[0]) if workers else ()),
    ]
    events.sort(key=lambda event: (event["ts"], -event.get("dur", 0)))
    return [*_names(workers), *(_in_us(event, origin_ns) for event in events)]


def _range(scheduler: Int64Matrix) -> str:
    numbers = scheduler[:, SCHEDULER_FIELDS.index("step")]
    return f"{numbers.min()} to {numbers.max()}" if len(numbers) else "this repeat, which has none"


def _steps(log: Int64Matrix, fields: Sequence[str]) -> list[Step]:
    return [dict(zip(fields, row, strict=True)) for row in log.tolist()]


def _ended(log: Int64Matrix) -> list[Step]:
    """The scheduler's steps with ``ended``: where the next one begins if requests were left, as the phases have it."""
    s = {name: log[:, i] for i, name in enumerate(SCHEDULER_FIELDS)}
    following = np.append(s["begun"][1:], s["updated"][-1:])
    ended = np.where(s["continues"] == 1, np.maximum(following, s["updated"]), s["updated"])
    return [{**step, "ended": int(end)} for step, end in zip(_steps(log, SCHEDULER_FIELDS), ended, strict=True)]


# --- events; times are CLOCK_MONOTONIC in ns until the end -----------------------------------------------------------


def _scheduler_events(steps: Sequence[Step]) -> Iterator[Event]:
    for step in steps:
        told = {name: step[name] for name in ("epoch", "batch_size", "num_tokens", "plan_bytes", "result_bytes")}
        yield _slice(f"step {step['step']}", SCHEDULER_PID, STEPS_TID, step["begun"], step["ended"], **told)
        yield from _phases(SCHEDULER_PID, SCHEDULER_PHASES, step)
        yield _counter("requests in the batch", step["begun"], requests=step["batch_size"])
        yield _counter("tokens of the step", step["begun"], tokens=step["num_tokens"])
        yield _counter("payload bytes", step["begun"], plan=step["plan_bytes"], result=step["result_bytes"])
    end = steps[-1]["ended"]
    yield _counter("requests in the batch", end, requests=0)
    yield _counter("tokens of the step", end, tokens=0)
    yield _counter("payload bytes", end, plan=0, result=0)


def _worker_events(rank: int, steps: Sequence[Step]) -> Iterator[Event]:
    pid = FIRST_WORKER_PID + rank
    for step in steps:
        yield _slice(f"step {step['step']}", pid, STEPS_TID, step["received"], step["replied"], epoch=step["epoch"])
        yield from _phases(pid, WORKER_PHASES, step)
        if step["device_ns"]:
            yield _slice("device", pid, DEVICE_TID, step["sampled"] - step["device_ns"], step["sampled"])


def _plan_events(rank: int, scheduler: Sequence[Step], worker: Sequence[Step]) -> Iterator[Event]:
    """A plan on its way to one worker, and the arrow from ``send`` to ``decode``."""
    tid = FIRST_PLANS_TID + rank
    for number, (sent, got) in enumerate(_answered(scheduler, worker)):
        yield from _transit("transit_out", tid, min(sent["sent"], got["received"]), got["received"])
        source = (SCHEDULER_PID, sent["encoded"])
        yield from _arrow(f"plan-{rank}-{number}", source, (FIRST_WORKER_PID + rank, got["received"]))


def _result_events(scheduler: Sequence[Step], worker: Sequence[Step]) -> Iterator[Event]:
    """Rank 0's answer on its way back, and the arrow from ``reply`` to ``collect``."""
    for number, (got, sent) in enumerate(_answered(scheduler, worker)):
        yield from _transit("transit_back", RESULTS_TID, min(sent["replied"], got["received"]), got["received"])
        source = (FIRST_WORKER_PID, sent["result_adapted"])
        yield from _arrow(f"result-{number}", source, (SCHEDULER_PID, got["received"]))


def _answered(scheduler: Sequence[Step], worker: Sequence[Step]) -> list[tuple[Step, Step]]:
    """The steps that both have; one cut short by a recovery is in one log only."""
    by_key = {(step["epoch"], step["step"]): step for step in worker}
    keys = [(step, (step["epoch"], step["step"])) for step in scheduler]
    return [(step, by_key[key]) for step, key in keys if key in by_key]


def _phases(pid: int, phases: Sequence[tuple[str, str, str]], step: Step) -> Iterator[Event]:
    """Slices that took time; those that took none can't be seen and would only be in the way."""
    for name, begin, end in phases:
        if step[end] > step[begin]:
            yield _slice(name, pid, STEPS_TID, step[begin], step[end])


def _transit(name: str, tid: int, begin: int, end: int) -> Iterator[Event]:
    if end > begin:
        yield _slice(name, TRANSPORT_PID, tid, begin, end)


def _slice(name: str, pid: int, tid: int, begin: int, end: int, **args: int) -> Event:
    event = {"name": name, "cat": "phase", "ph": "X", "ts": begin, "dur": end - begin, "pid": pid, "tid": tid}
    return {**event, "args": args} if args else event


def _counter(name: str, at: int, **values: int) -> Event:
    return {"name": name, "ph": "C", "ts": at, "pid": SCHEDULER_PID, "args": values}


def _arrow(identity: str, source: tuple[int, int], target: tuple[int, int]) -> Iterator[Event]:
    same = {"name": "payload", "cat": "payload", "id": identity, "tid": STEPS_TID}
    yield {**same, "ph": "s", "pid": source[0], "ts": source[1]}
    yield {**same, "ph": "f", "bp": "e", "pid": target[0], "ts": target[1]}


def _names(workers: Sequence[Sequence[Step]]) -> list[Event]:
    """Metadata: what processes and threads are called, and the order in which they stand."""
    threads = {(SCHEDULER_PID, STEPS_TID): "steps", (TRANSPORT_PID, RESULTS_TID): "results"}
    processes = {SCHEDULER_PID: "scheduler", TRANSPORT_PID: "transport"}
    for rank, steps in enumerate(workers):
        processes[FIRST_WORKER_PID + rank] = f"worker {rank}"
        threads[TRANSPORT_PID, FIRST_PLANS_TID + rank] = f"plans to worker {rank}"
        threads[FIRST_WORKER_PID + rank, STEPS_TID] = "steps"
        if any(step["device_ns"] for step in steps):
            threads[FIRST_WORKER_PID + rank, DEVICE_TID] = "simulated device"
    return [
        *(_meta("process_name", pid, 0, {"name": name}) for pid, name in processes.items()),
        *(_meta("process_sort_index", pid, 0, {"sort_index": pid}) for pid in processes),
        *(_meta("thread_name", pid, tid, {"name": name}) for (pid, tid), name in threads.items()),
        *(_meta("thread_sort_index", pid, tid, {"sort_index": tid}) for pid, tid in threads),
    ]


def _meta(name: str, pid: int, tid: int, args: dict[str, str | int]) -> Event:
    return {"name": name, "ph": "M", "pid": pid, "tid": tid, "args": args}


def _in_us(event: Event, origin_ns: int) -> Event:
    """The format's times are in µs."""
    event["ts"] = (event["ts"] - origin_ns) / 1e3
    if "dur" in event:
        event["dur"] = event["dur"] / 1e3
    return event
