"""Makes the passes of a sweep that are not stored yet, and goes on when a point fails. It shows nothing itself."""

import gc
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Protocol

from serbench.errors import ResultsError
from serbench.experiment import Experiment
from serbench.harness import EngineHost, Harness, Part, Turn
from serbench.prepared import Prepared
from serbench.record import Recorder
from serbench.results import Run
from serbench.sweep.folder import SweepFolder, now
from serbench.sweep.manifest import Failure
from serbench.sweep.schedule import PlannedPass, schedule
from serbench.sweep.time_left import TimeLeft


class SweepWatcher(Protocol):
    """Is told between passes what comes next."""

    def at(self, point: str, group: int, *, left: int, left_s: float | None) -> None:
        """The next pass; ``group`` below 0 warms up. ``left`` timed passes are to make, in about ``left_s``."""
        ...

    def failed(self, point: str, reason: str) -> None: ...


class SweepRunner:
    """One sitting of a sweep. ``prepared`` has the points that can be measured, by number."""

    def __init__(
        self,
        folder: SweepFolder,
        prepared: Mapping[int, Prepared],
        runs: Mapping[str, Run],
        *,
        open_engine: Callable[[Prepared], EngineHost],
        watcher: SweepWatcher,
        clock_s: Callable[[], float] = time.monotonic,
        collect: Callable[[], object] = gc.collect,
    ) -> None:
        self._folder = folder
        self._points = folder.manifest.points
        self._prepared = prepared
        self._open_engine = open_engine
        self._watcher = watcher
        self._clock_s = clock_s
        self._collect = collect
        self._recorders = {i: self._recorder(i, thing, runs) for i, thing in prepared.items()}
        failed = {failure.point for failure in folder.manifest.failures}
        self._given_up = {i for i, point in enumerate(self._points) if point.id in failed or i not in prepared}
        visits = schedule([point.experiment for point in self._points], folder.manifest.stay)
        self.already = [one.order for visit in visits for one in visit if self._is_stored(one)]
        self._visits = [rest for visit in visits if (rest := self._to_make(visit))]
        walls = {i: [repeat.wall_s for repeat in one.repeats] for i, one in self._recorders.items()}
        self._time_left = TimeLeft([one.point for visit in self._visits for one in visit], walls)
        self._begun_s = 0.0

    @property
    def passes(self) -> int:
        """How many timed passes are still to make."""
        return self._time_left.passes

    @property
    def kept(self) -> int:
        """How many repeats are stored."""
        return sum(len(recorder.repeats) for recorder in self._recorders.values())

    def run(self) -> None:
        """Make them. Points that fail are noted in the folder, and the others go on.

        Raises:
            ResultsError: something can't be stored. KeyboardInterrupt: what was measured is stored.
        """
        if not self.passes:
            return
        self._folder.begin_sitting(self.already)
        self._begun_s = self._clock_s()
        for visit in self._visits:
            while passes := self._to_make(visit):
                self._visit(passes)

    def _visit(self, passes: Sequence[PlannedPass]) -> None:
        """Have one engine make the passes; a point that fails ends the visit, and the rest makes a new one."""
        members = list(dict.fromkeys(one.point for one in passes))
        turns = [Turn(members.index(one.point), one.group, one.order) for one in passes]
        harness = Harness(
            [self._prepared[i] for i in members],
            open_engine=self._open_engine,
            store=self._folder.store,
            watcher=_Passes(self, members, turns),
            collect=self._collect,
            part=Part(turns, [self._recorders[i] for i in members]),
        )
        try:
            harness.run()
        except ResultsError:
            raise
        except Exception as error:  # a codec from outside may raise anything; the other points must not pay for it
            failing = members if harness.current is None else [members[harness.current]]
            for i in failing:
                self._give_up(i, error)

    def _to_make(self, visit: Sequence[PlannedPass]) -> list[PlannedPass]:
        return [one for one in visit if one.point not in self._given_up and not self._is_stored(one)]

    def _is_stored(self, one: PlannedPass) -> bool:
        recorder = self._recorders.get(one.point)
        return recorder is not None and any(repeat.group == one.group for repeat in recorder.repeats)

    def _give_up(self, i: int, error: Exception) -> None:
        reason = " ".join(f"{type(error).__name__}: {error}".split())
        self._given_up.add(i)
        self._time_left.given_up(i)
        repeats = len(self._recorders[i].repeats)
        self._folder.give_up(Failure(point=self._points[i].id, reason=reason, repeats=repeats, at=now()))
        self._watcher.failed(self._points[i].id, reason)

    def _recorder(self, i: int, thing: Prepared, runs: Mapping[str, Run]) -> Recorder:
        manifest, point = self._folder.manifest, self._points[i]
        return Recorder(
            thing.experiment,
            thing.model,
            manifest.environment,
            manifest.id,
            self._folder.store,
            run_id=point.id,
            begun=runs.get(point.id),
        )

    def announce(self, point: int, group: int) -> None:
        """Tell the watcher which pass comes next."""
        left_s = self._time_left.seconds(self._clock_s() - self._begun_s)
        self._watcher.at(self._points[point].id, group, left=self.passes, left_s=left_s)

    def made(self, point: int) -> None:
        """Count a timed pass that is stored."""
        self._time_left.made(point, self._recorders[point].repeats[-1].wall_s)


class _Passes:
    """The harness's watcher during one visit: says which point each pass is of."""

    def __init__(self, runner: SweepRunner, members: Sequence[int], turns: Sequence[Turn]) -> None:
        self._runner = runner
        self._members = members
        self._timed = iter(turns)
        self._current: int | None = None

    def begin(self, passes: int) -> None: ...

    def turn(self, experiment: Experiment, group: int) -> None:
        """Warm-ups come in any number; timed passes in the order of the turns."""
        self._current = self._members[next(self._timed).thing] if group >= 0 else None
        self._runner.announce(self._members[0] if self._current is None else self._current, group)

    def done(self) -> None:
        """A timed pass has been stored by now."""
        if self._current is not None:
            self._runner.made(self._current)
