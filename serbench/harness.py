"""Measures prepared experiments interleaved: warm-ups, repeats in balanced order, every repeat stored at once.

It does not know how a figure is taken (passes.py), judged (stats.py) or shown.

Garbage collection stays on while a pass is timed, as in an engine in service: a codec that litters pays for it. Before
each pass everything is collected and frozen, so that no pass pays for what the harness or an earlier pass left.
"""

import gc
import os
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from itertools import groupby
from pathlib import Path
from typing import Protocol

import msgspec

from serbench.environment import Environment, describe_environment
from serbench.errors import ResultsError
from serbench.experiment import Experiment, engine_key
from serbench.garbage import swept
from serbench.interleave import balanced_order
from serbench.passes import Pace, Pass, Session, drive, record, short_of_due
from serbench.prepared import Prepared
from serbench.record import Recorder
from serbench.refusals import WARNING
from serbench.report.figures import counted
from serbench.results import Run
from serbench.workload.base import WorkRequest
from serbench_engine.phases import SessionReport
from serbench_engine.request import FinishedRequest


class EngineHost(Protocol):
    """A living engine, on which sessions are opened one after another."""

    def session(self, experiment: Experiment) -> Session: ...

    def close(self) -> None:
        """End it and wait for it. Idempotent."""
        ...


class Watcher(Protocol):
    """Is told between passes, never during one, what comes next."""

    def begin(self, passes: int) -> None: ...

    def turn(self, experiment: Experiment, group: int) -> None:
        """The next pass; ``group`` below 0 warms up."""
        ...

    def done(self) -> None:
        """The pass is over."""
        ...


class Turn(msgspec.Struct, frozen=True):
    """One pass to make: which thing, which group's prompts, and its place among all (0 for warm-ups)."""

    thing: int
    group: int
    order: int


class Part(msgspec.Struct, frozen=True, eq=False):
    """A stretch of a longer measurement: the passes to make now, and its things' recorders, which the caller keeps."""

    turns: Sequence[Turn]
    recorders: Sequence[Recorder]


class Harness:
    """One measuring session. ``recorders`` (one a thing, in the order given) hold what was measured, also after a
    failure. ``current``: the thing whose pass is being made, None while an engine is opened.

    ``part``: only these passes, by default all that the experiments ask for.
    ``keep_spans``: is given every repeat's run file, group and report, for whoever wants each step's stamps.
    ``last_finished``: by thing the ends of its last pass's requests, for whoever wants to show what was generated.
    """

    def __init__(
        self,
        things: Sequence[Prepared],
        *,
        open_engine: Callable[[Prepared], EngineHost],
        store: Callable[[Run], Path],
        watcher: Watcher,
        clock_ns: Callable[[], int] = time.monotonic_ns,
        sleep_s: Callable[[float], object] = time.sleep,
        collect: Callable[[], object] = gc.collect,
        environment: Environment | None = None,
        keep_spans: Callable[[Path, int, SessionReport], object] | None = None,
        part: Part | None = None,
    ) -> None:
        self.recorders = list(part.recorders) if part else _new_recorders(things, environment, store)
        self.current: int | None = None
        self._part = part
        self.last_finished: dict[int, list[FinishedRequest]] = {}
        self._things = things
        self._open_engine = open_engine
        self._watcher = watcher
        self._clock_ns = clock_ns
        self._sleep_s = sleep_s
        self._collect = collect
        self._keep_spans = keep_spans
        self._host: EngineHost | None = None
        self._host_key: Experiment | None = None
        self._requests: tuple[object, int, list[WorkRequest]] | None = None

    def run(self) -> None:
        """Make all passes. Whatever ends it, what was measured is stored and the engine is closed.

        Raises:
            EngineError: what the engine raised. FaultError: it broke a promise. ResultsError: a run can't be stored.
        """
        turns = self._part.turns if self._part else self._turns()
        for thing, recorder in zip(self._things, self.recorders, strict=True):
            recorder.warn(thing.notes)
        try:
            self._watcher.begin(self._num_passes(turns))
            for turn in turns:
                self._host_for(turn.thing)
                self._repeat(turn)
        except BaseException as error:
            if self._part is None:
                self._note_end(error)
            raise
        finally:
            self._close_host()

    # --- order --------------------------------------------------------------------------------------------------------

    def _turns(self) -> list[Turn]:
        """Every timed pass in order; things with fewer repeats sit out the later groups."""
        groups = max(one.experiment.repeats for one in self._things)
        order = balanced_order(len(self._things), groups, self._things[0].experiment.seed)
        pairs = [
            (thing, group)
            for group, things in enumerate(order)
            for thing in things
            if group < self._things[thing].experiment.repeats
        ]
        return [Turn(thing, group, i) for i, (thing, group) in enumerate(pairs)]

    def _num_passes(self, turns: Sequence[Turn]) -> int:
        """Timed passes, and the warm-ups each time an engine is opened."""
        keys = [engine_key(one.experiment) for one in self._things]
        opened = [key for key, _ in groupby(keys[turn.thing] for turn in turns)]
        warmups = sum(self._things[i].experiment.warmup for key in opened for i in range(len(keys)) if keys[i] == key)
        return len(turns) + warmups

    # --- one pass -----------------------------------------------------------------------------------------------------

    def _repeat(self, turn: Turn) -> None:
        thing, recorder = self._things[turn.thing], self.recorders[turn.thing]
        self.current = turn.thing
        requests = self._requests_of(thing, turn.group)
        self._watcher.turn(thing.experiment, turn.group)
        session, done = self._pass(thing, requests)
        report = session.close()
        repeat = record(done, report, group=turn.group, order=turn.order)
        self.last_finished[turn.thing] = done.finished
        recorder.note_workload(thing.workload.notes())
        recorder.warn(_short(requests, done.finished))
        if repeat.recoveries:
            recorder.warn([WARNING])
        recorder.add(repeat)
        if self._keep_spans is not None and recorder.path is not None:
            self._keep_spans(recorder.path, turn.group, report)
        self._watcher.done()

    def _warm_up(self, thing: Prepared) -> None:
        for i in range(thing.experiment.warmup):
            self._watcher.turn(thing.experiment, -1 - i)
            session, _ = self._pass(thing, self._requests_of(thing, -1 - i))
            session.close()
            self._watcher.done()

    def _pass(self, thing: Prepared, requests: Sequence[WorkRequest]) -> tuple[Session, Pass]:
        assert self._host is not None, "opened by _host_for"
        session = self._host.session(thing.experiment)
        with swept(self._collect):
            done = drive(session, requests, self._pace(thing))
        return session, done

    def _pace(self, thing: Prepared) -> Pace:
        return Pace(self._clock_ns, self._sleep_s, thing.experiment.arrivals.max_concurrency)

    def _requests_of(self, thing: Prepared, group: int) -> list[WorkRequest]:
        """A group's requests, made once for all things that share the workload."""
        if self._requests is None or self._requests[0] is not thing.workload or self._requests[1] != group:
            self._requests = (thing.workload, group, thing.workload.requests(group))
        return self._requests[2]

    # --- the living engine --------------------------------------------------------------------------------------------

    def _host_for(self, index: int) -> None:
        """Have the engine alive that the thing needs; a new one first warms up with everything that it will serve."""
        key = engine_key(self._things[index].experiment)
        if self._host is not None and key == self._host_key:
            return
        self._close_host()
        self.current = None
        self._host = self._open_engine(self._things[index])
        self._host_key = key
        for i, thing in enumerate(self._things):
            if engine_key(thing.experiment) == key:
                self.current = i
                self._warm_up(thing)

    def _close_host(self) -> None:
        host, self._host, self._host_key = self._host, None, None
        if host is not None:
            host.close()

    def _note_end(self, error: BaseException) -> None:
        """Say in what is stored why there are fewer repeats than asked for."""
        how = "interrupted" if isinstance(error, KeyboardInterrupt) else f"ended by {type(error).__name__}"
        for recorder in self.recorders:
            if 0 < len(recorder.repeats) < recorder.experiment.repeats:
                recorder.warn([f"{how} after {len(recorder.repeats)} of {recorder.experiment.repeats} repeats"])
                with suppress(ResultsError):  # what ended it is told
                    recorder.save()


def _new_recorders(
    things: Sequence[Prepared], environment: Environment | None, store: Callable[[Run], Path]
) -> list[Recorder]:
    environment = environment or describe_environment()
    session = os.urandom(6).hex()
    return [Recorder(one.experiment, one.model, environment, session, store) for one in things]


def _short(requests: Sequence[WorkRequest], finished: Sequence[FinishedRequest]) -> list[str]:
    short = short_of_due(requests, finished)
    if not short:
        return []
    reasons = sorted({one.finish_reason for one in short})
    return [
        f"{len(short)} of {counted(len(requests), 'request')} did not produce the tokens they were to produce "
        f"(they ended by: {', '.join(reasons)}); rates count those really produced"
    ]
