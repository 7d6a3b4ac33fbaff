"""Tests that recordings go through codecs and transports, and that a wrong codec is noticed. They assert no times."""

from pathlib import Path

import pytest

from serbench.errors import ExperimentError, FaultError
from serbench.plans.checking import load_steps
from serbench.plans.reading import Recording
from serbench.plans.replay_runner import ReplayRunner
from serbench.plans.replaying import PATH
from serbench.replay import Replay, ReplaySpec, replay_plans
from serbench.report.progress import SilentProgress
from serbench_codecs.registry import CODECS
from serbench_codecs.table import RequestTable
from serbench_engine.errors import WorkerError
from tests.serbench.plans.recorded import FORGETFUL, record


@pytest.fixture(scope="module")
def file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("plans") / "a.plans"
    record(path)
    return path


def replayed(file: Path, **changes: object) -> Replay:
    values: dict[str, object] = {"codecs": ("delta",), "transports": ("inproc",), "repeats": 1, "warmup": 0}
    return replay_plans(ReplaySpec(path=str(file), **(values | changes)), SilentProgress())  # type: ignore[arg-type]


def test_every_codec_replays_a_run_in_this_process(file: Path) -> None:
    replay = replayed(file, codecs=tuple(CODECS), check_every=1)
    assert [row.codec for row in replay.rows] == list(CODECS)
    assert replay.digests_a_pass == replay.num_steps == len(Recording(file))
    for row in replay.rows:
        assert tuple(row.phases_us) == PATH
        assert row.path_us == pytest.approx(sum(row.phases_us.values()))
        assert (row.plan_bytes > 0) == (row.codec != "none")


def test_every_transport_leads_to_the_other_process(file: Path) -> None:
    replay = replayed(file, codecs=("pickle", "columnar"), transports=("pipe", "shm", "zmq"))
    assert [row.label for row in replay.rows] == [
        f"{codec} {transport}" for transport in ("pipe", "shm", "zmq") for codec in ("pickle", "columnar")
    ]
    assert len({row.plan_bytes for row in replay.rows}) == 2, "bytes depend on the codec, not on the transport"


def test_passes_are_interleaved_and_judged_against_the_first(file: Path) -> None:
    replay = replayed(file, codecs=("pickle", "columnar"), repeats=4, warmup=1)
    first, second = replay.rows
    assert first.path is None
    assert second.path is not None
    assert second.path.pairs == 4
    assert sorted(one.order for row in replay.rows for one in row.passes) == list(range(8))


def test_what_is_measured_when_an_interrupt_comes_is_kept(file: Path) -> None:
    class Interrupting(SilentProgress):
        passes = 0

        def done(self) -> None:
            self.passes += 1
            if self.passes == 5:
                raise KeyboardInterrupt

    kept: list[Replay] = []
    spec = ReplaySpec(path=str(file), codecs=("pickle", "columnar"), transports=("inproc",), warmup=1)
    with pytest.raises(KeyboardInterrupt):
        replay_plans(spec, Interrupting(), keep=kept.append)
    [replay] = kept
    assert [len(row.passes) for row in replay.rows] == [1, 1]


def test_the_first_steps_only(file: Path) -> None:
    assert replayed(file, steps=7, check_every=3).digests_a_pass == 3


@pytest.mark.parametrize("transport", ["inproc", "pipe"])
def test_a_codec_that_loses_blocks_is_noticed(file: Path, transport: str) -> None:
    with pytest.raises((WorkerError, FaultError), match=r"row|PlanError"):
        replayed(file, codecs=(FORGETFUL,), transports=(transport,))


def test_a_codec_by_reference_stays_in_its_process(file: Path) -> None:
    with pytest.raises(ExperimentError, match="codec none hands things over by reference"):
        replayed(file, codecs=("none",), transports=("shm",))
    with pytest.raises(ExperimentError, match="result format none"):
        replayed(file, result_format="none", transports=("shm",))


# --- the checks of the worker's table -------------------------------------------------------------------------------


class Watched:
    """A runner and a worker's table that follows the recording."""

    def __init__(self, file: Path, check_every: int) -> None:
        recording = Recording(file)
        self.steps = load_steps(recording)
        self.table = RequestTable(recording.limits)
        self.runner = ReplayRunner(self.steps, check_every)
        self.runner.open(recording.limits)

    def step(self, index: int) -> None:
        plan = self.steps[index].plan
        self.table.apply(plan)
        batch = self.runner.prepare(plan, self.table)
        self.table.advance(plan)
        self.table.append_sampled(batch.sample_rows, batch.result.token_ids)


@pytest.mark.parametrize("column", ["serial", "num_tokens", "num_computed_tokens", "num_blocks"])
def test_a_wrong_count_is_noticed_in_its_step(file: Path, column: str) -> None:
    watched = Watched(file, check_every=1000)
    watched.step(0)
    row = watched.steps[1].plan.batch_rows[0]
    getattr(watched.table, column)[row] += 1
    with pytest.raises(FaultError, match=f"step 1: {column} of row {row}"):
        watched.step(1)


def test_a_wrong_block_is_noticed_by_the_next_digest(file: Path) -> None:
    watched = Watched(file, check_every=4)
    watched.step(0)
    watched.table.block_table[watched.steps[0].plan.batch_rows[0], 0] += 1
    watched.step(1)
    watched.step(2)
    with pytest.raises(FaultError, match="step 3: the digests"):
        watched.step(3)


def test_another_batch_is_noticed(file: Path) -> None:
    watched = Watched(file, check_every=1)
    watched.step(0)
    plan = watched.steps[1].plan
    watched.table.apply(plan)
    with pytest.raises(FaultError, match="another batch"):
        watched.runner.prepare(watched.steps[0].plan, watched.table)
