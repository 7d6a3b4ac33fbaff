"""Tests storing, failing and going on of a sweep, on mock engines. They assert no times."""

import time
from collections.abc import Callable, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import msgspec
import pytest

from serbench.errors import ExperimentError, ResultsError
from serbench.experiment import Experiment
from serbench.files import write_atomically
from serbench.mock import MockClock, MockEngine, MockSession
from serbench.prepare import prepare
from serbench.prepared import Prepared
from serbench.results import Repeat
from serbench.sweep.folder import MANIFEST, SweepFolder, opened
from serbench.sweep.grid import Axis, Point, span
from serbench.sweep.manifest import decode_manifest
from serbench.sweep.readiness import make_ready
from serbench.sweep.runner import SweepRunner
from serbench.sweep.table import SweepRow, tabulate
from serbench_engine.errors import EngineError
from tests.serbench.mocks import ENVIRONMENT, SPEC

REPEATS = 4


def make(values: Mapping[str, Any]) -> Experiment:
    return Experiment(**{"model": "sim", "workload": SPEC, "repeats": REPEATS, "warmup": 1, **values})


POINTS = span([Axis("max_num_seqs", (8, 16)), Axis("codec", ("pickle", "delta", "cached"))], make)


class Watcher:
    """Remembers what it is told."""

    def __init__(self) -> None:
        self.passes: list[tuple[str, int]] = []
        self.left: list[int] = []
        self.failures: list[str] = []

    def at(self, point: str, group: int, *, left: int, left_s: float | None) -> None:
        self.passes.append((point, group))
        self.left.append(left)

    def failed(self, point: str, reason: str) -> None:
        self.failures.append(point)


class Engines:
    """Opens mock engines; ``trouble`` is called with the experiment of each session and with how many were opened."""

    def __init__(self, trouble: Callable[[Experiment, int], None] = lambda *_: None) -> None:
        self.clock = MockClock()
        self.clock.sleep_s(
            time.monotonic() + 1e6
        )  # the sweep's own clock is the real one: no request ends before it came
        self.opened: list[MockEngine] = []
        self.sessions = 0
        self.trouble = trouble

    def open(self, prepared: Prepared) -> MockEngine:
        assert all(engine.closed for engine in self.opened), "only one is alive at a time"
        engines = self

        class Engine(MockEngine):
            def session(self, experiment: Experiment) -> MockSession:
                engines.sessions += 1
                engines.trouble(experiment, engines.sessions)
                return super().session(experiment)

        self.opened.append(Engine(self.clock, lambda _: 1000.0))
        return self.opened[-1]


class Sitting:
    """One start of the sweep of ``points`` in ``path``."""

    def __init__(self, path: Path, points: list[Point] = POINTS, engines: Engines | None = None) -> None:
        self.path = path
        self.points = points
        self.engines = engines or Engines()
        self.watcher = Watcher()

    @contextmanager
    def folder(self) -> Any:
        with opened(self.path, self.points, 1, ENVIRONMENT) as folder:
            yield folder

    def run(self, before: Callable[[SweepFolder], None] = lambda _: None) -> list[SweepRow]:
        with self.folder() as folder:
            before(folder)
            ready = make_ready(self.points, folder.runs(), prepare)
            SweepRunner(
                folder,
                ready.prepared,
                folder.runs(),
                open_engine=self.engines.open,
                watcher=self.watcher,
                collect=lambda: None,  # it would take most of a mock pass's time
            ).run()
            return tabulate(folder.manifest, folder.runs(), ready.impossible).rows

    def timed(self) -> list[tuple[str, int]]:
        return [one for one in self.watcher.passes if one[1] >= 0]


def stored(path: Path) -> dict[tuple[str, int], Repeat]:
    with opened(path, POINTS, 1, ENVIRONMENT) as folder:
        return {(name, repeat.group): repeat for name, run in folder.runs().items() for repeat in run.repeats}


def sums(rows: list[SweepRow]) -> list[SweepRow]:
    """The rows without what times say."""
    return [msgspec.structs.replace(row, figures=None) for row in rows]


def test_all_is_measured_once_and_stored(tmp_path: Path) -> None:
    sitting = Sitting(tmp_path)
    rows = sitting.run()
    assert [row.state for row in rows] == ["done"] * 6
    assert sorted(sitting.timed()) == sorted((point.id, group) for point in POINTS for group in range(REPEATS))
    assert [row.reference for row in rows] == [None, rows[0].point, rows[0].point, None, rows[3].point, rows[3].point]
    assert sitting.watcher.left[0] == 24
    again = Sitting(tmp_path)
    assert again.run() == rows
    assert (again.watcher.passes, again.engines.opened) == ([], [])


def test_things_compared_have_the_same_prompts(tmp_path: Path) -> None:
    rows = Sitting(tmp_path).run()
    assert len({row.outputs_digest for row in rows}) == 1
    assert {row.input_tokens for row in rows} == {rows[0].input_tokens}


@pytest.mark.parametrize("ends_at", [1, 5, 6, 11, 17, 30])
def test_interrupted_anywhere_and_resumed_the_table_is_the_same(ends_at: int, tmp_path: Path) -> None:
    undisturbed = Sitting(tmp_path / "a").run()

    def interrupt(_: Experiment, session: int) -> None:
        if session == ends_at:
            raise KeyboardInterrupt

    first = Sitting(tmp_path / "b", engines=Engines(interrupt))
    with pytest.raises(KeyboardInterrupt):
        first.run()
    kept = stored(tmp_path / "b")
    second = Sitting(tmp_path / "b")
    assert sums(second.run()) == sums(undisturbed)
    assert not set(second.timed()) & set(kept)
    now = stored(tmp_path / "b")
    assert {key: now[key] for key in kept} == kept
    assert {key: one.order for key, one in now.items()} == {
        key: one.order for key, one in stored(tmp_path / "a").items()
    }


def test_pairs_that_an_interruption_divides_are_told(tmp_path: Path) -> None:
    def interrupt(_: Experiment, session: int) -> None:
        if session == 5:  # after three warm-ups and the first timed pass
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        Sitting(tmp_path, engines=Engines(interrupt)).run()
    sitting = Sitting(tmp_path)
    sitting.run()
    with sitting.folder() as folder:
        warnings = tabulate(folder.manifest, folder.runs()).warnings
    [line] = [line for line in warnings if "measured apart" in line]
    assert line.startswith(("1 of 16 pairs was measured apart", "2 of 16 pairs were measured apart"))


def failing(codec: str, after: int = 0) -> Engines:
    """The codec's sessions fail after so many of them."""
    seen: list[int] = []

    def trouble(experiment: Experiment, _: int) -> None:
        if experiment.codec == codec and experiment.max_num_seqs == 16:
            seen.append(1)
            if len(seen) > after:
                raise EngineError("the codec is out of order")

    return Engines(trouble)


@pytest.mark.parametrize("after", [0, 1, 2])
def test_a_point_that_fails_is_recorded_and_the_rest_goes_on(after: int, tmp_path: Path) -> None:
    sitting = Sitting(tmp_path, engines=failing("delta", after))
    rows = sitting.run()
    assert [row.state for row in rows] == ["done"] * 4 + ["failed", "done"]
    assert rows[4].note == "EngineError: the codec is out of order"
    assert rows[4].repeats == max(0, after - 1)  # the first session only warms up
    assert sitting.watcher.failures == [POINTS[4].id]
    manifest = decode_manifest((tmp_path / MANIFEST).read_bytes(), "it")
    assert [failure.repeats for failure in manifest.failures] == [rows[4].repeats]


def test_failed_points_stay_failed_until_they_are_to_be_tried_again(tmp_path: Path) -> None:
    undisturbed = Sitting(tmp_path / "a").run()
    Sitting(tmp_path / "b", engines=failing("delta", after=2)).run()
    resumed = Sitting(tmp_path / "b")
    assert resumed.run()[4].state == "failed"
    assert resumed.timed() == []
    retried = Sitting(tmp_path / "b")
    assert sums(retried.run(SweepFolder.forget_failures)) == sums(undisturbed)
    assert len(retried.timed()) == REPEATS - 1  # the one repeat that it had stays


def test_an_engine_that_does_not_start_fails_its_points_only(tmp_path: Path) -> None:
    class Unstartable(Engines):
        def open(self, prepared: Prepared) -> MockEngine:
            if prepared.experiment.max_num_seqs == 8:
                raise OSError("no room")
            return super().open(prepared)

    rows = Sitting(tmp_path, engines=Unstartable()).run()
    assert [row.state for row in rows] == ["failed"] * 3 + ["done"] * 3
    assert rows[0].note == "OSError: no room"


def test_points_that_can_t_be_are_known_before_the_first_is_measured() -> None:
    points = span([Axis("executor", ("mp", "inproc")), Axis("codec", ("delta", "none"))], make)
    ready = make_ready(points, {}, prepare)
    assert list(ready.prepared) == [0, 2, 3]
    assert "by reference" in str(ready.impossible[1])
    with pytest.raises(ExperimentError):
        raise ready.impossible[1]


def test_another_sweep_or_machine_is_refused(tmp_path: Path) -> None:
    Sitting(tmp_path).run()
    with pytest.raises(ResultsError, match="holds another sweep, begun 20"), Sitting(tmp_path, POINTS[:3]).folder():
        pass
    there = msgspec.structs.replace(ENVIRONMENT, cores=64, versions={**ENVIRONMENT.versions, "numpy": "9.9"})
    with (
        pytest.raises(ResultsError, match=r"begun elsewhere: cores \(2 then, 64 now\); numpy \(2.4.6 then, 9.9 now\)"),
        opened(tmp_path, POINTS, 1, there),
    ):
        pass


def test_points_that_were_changed_are_another_sweep(tmp_path: Path) -> None:
    Sitting(tmp_path).run()
    text = (tmp_path / MANIFEST).read_text()
    (tmp_path / MANIFEST).write_text(text.replace('"codec": "pickle"', '"codec": "os:abort"'))
    with pytest.raises(ResultsError, match="holds another sweep"), Sitting(tmp_path).folder():
        pass


def test_only_what_serbench_was_writing_is_removed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "runs").mkdir()
    theirs = [".notes.json.bak", ".notes.json.original", "runs/.x.json.d", "deep/.y.json.serbench-abcdefgh"]
    for name in theirs:
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text("")
    (tmp_path / ".z.json.d").mkdir()
    (tmp_path / ".z.json.serbench-abcdefgh").mkdir()
    with monkeypatch.context() as killed:  # what a process that is killed does not come to
        killed.setattr(Path, "chmod", _interrupt)
        killed.setattr(Path, "unlink", lambda *_, **__: None)
        for folder in (tmp_path, tmp_path / "runs"):
            with pytest.raises(KeyboardInterrupt):
                write_atomically(folder / "it.json", b"")
    before = {path.name for path in tmp_path.rglob("*")}
    with Sitting(tmp_path).folder():
        after = {path.name for path in tmp_path.rglob("*")}
    assert len([name for name in before if name.startswith(".it.json.")]) == 2
    assert before - after == {name for name in before if name.startswith(".it.json.")}


def _interrupt(*_: object) -> None:
    raise KeyboardInterrupt


def test_a_manifest_that_is_a_folder_is_told(tmp_path: Path) -> None:
    (tmp_path / MANIFEST).mkdir()
    with pytest.raises(ResultsError, match=f"{MANIFEST} can't be read: Is a directory"), Sitting(tmp_path).folder():
        pass


def test_two_processes_don_t_work_on_one_sweep(tmp_path: Path) -> None:
    with (
        Sitting(tmp_path).folder(),
        pytest.raises(ResultsError, match="another process is at work"),
        Sitting(tmp_path).folder(),
    ):
        pass
