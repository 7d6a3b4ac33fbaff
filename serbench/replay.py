"""Replays a recording through codecs and transports in turn, ``serbench/replay/1``, and judges each against the first.

It does not know how one pass is made (plans/replaying.py), nor how a replay is shown.
"""

from collections.abc import Callable, Sequence
from pathlib import Path
from statistics import mean
from typing import Final, Literal

import msgspec

from serbench.environment import Environment, describe_environment
from serbench.errors import ExperimentError, FaultError
from serbench.experiment import Experiment, settled
from serbench.harness import Watcher
from serbench.interleave import turns_of, whole_groups
from serbench.plans.checking import load_steps
from serbench.plans.layout import About
from serbench.plans.reading import Recording, Step
from serbench.plans.replaying import Replayed, ReplaySession, ReplayWorkers
from serbench.stats import Finding, judge
from serbench_codecs.errors import CodecError
from serbench_codecs.registry import get_codec
from serbench_engine.errors import PayloadRefused

SCHEMA: Final = "serbench/replay/1"


class ReplaySpec(msgspec.Struct, frozen=True, kw_only=True):
    """What is replayed: the first ``steps`` (None: all) of ``path`` through each codec by each transport.

    ``check_every``: after so many steps the worker's table is compared by digest; counts and newest ids always are.
    """

    path: str
    codecs: tuple[str, ...]
    transports: tuple[str, ...]
    result_format: str | None = None
    steps: int | None = None
    check_every: int = 64
    repeats: int = 5
    warmup: int = 1
    seed: int = 0
    step_timeout_s: float = 120.0
    wait: Literal["auto", "spin", "block"] = "auto"


class ReplayPass(msgspec.Struct, frozen=True, kw_only=True):
    """One pass; means over its steps. ``path_us`` is the sum of the phases. ``wall_s`` includes what isn't clocked."""

    group: int
    order: int
    path_us: float
    phases_us: dict[str, float]
    plan_bytes: float
    result_bytes: float
    wall_s: float


class ReplayRow(msgspec.Struct, frozen=True, kw_only=True):
    """A codec by a transport: means over its passes, and findings against the first row (None in it)."""

    label: str
    codec: str
    transport: str
    result_format: str
    path_us: float
    phases_us: dict[str, float]
    plan_bytes: float
    result_bytes: float
    path: Finding | None
    path_without_adapt: Finding | None
    passes: list[ReplayPass]


class Replay(msgspec.Struct, frozen=True, kw_only=True):
    """All rows. ``num_steps`` were replayed in every pass, with ``digests_a_pass`` comparisons of whole rows."""

    schema: str = SCHEMA
    spec: ReplaySpec
    about: About
    num_steps: int
    digests_a_pass: int
    environment: Environment
    rows: list[ReplayRow]


def replay_plans(spec: ReplaySpec, watcher: Watcher, keep: Callable[[Replay], object] | None = None) -> Replay:
    """Replay interleaved, in balanced order, after a warm-up of each.

    Whatever ends it early, ``keep`` is given what is measured by then, if that is a repeat of each at least.

    Raises:
        RecordingError: no recording. ExperimentError: what can't be replayed. FaultError: a codec that is wrong.
        EngineError: a worker died.
    """
    things = [_settled(spec, codec, transport) for transport in spec.transports for codec in spec.codecs]
    recording = Recording(Path(spec.path))
    steps = load_steps(recording, spec.steps)
    environment = describe_environment()
    passes: list[list[ReplayPass]] = [[] for _ in things]

    def document(passes: Sequence[Sequence[ReplayPass]]) -> Replay:
        return Replay(
            spec=spec,
            about=recording.about,
            num_steps=len(steps),
            digests_a_pass=-(-len(steps) // spec.check_every),
            environment=environment,
            rows=_rows(things, passes),
        )

    workers = ReplayWorkers(Path(spec.path).absolute(), steps, recording.limits, spec.check_every)
    try:
        _replay(things, workers, steps, recording, watcher, passes)
    except BaseException:
        whole = whole_groups(passes)
        if whole[0] and keep is not None:
            keep(document(whole))
        raise
    finally:
        workers.close()
    return document(passes)


def encode_replay(replay: Replay) -> bytes:
    """The document as indented JSON with a final newline."""
    return msgspec.json.format(msgspec.json.encode(replay), indent=2) + b"\n"


def _settled(spec: ReplaySpec, codec: str, transport: str) -> Experiment:
    here = transport == "inproc"
    thing = settled(
        Experiment(
            model="sim",
            codec=codec,
            executor="inproc",
            result_format=spec.result_format,
            repeats=spec.repeats,
            warmup=spec.warmup,
            seed=spec.seed,
            step_timeout_s=spec.step_timeout_s,
            wait=spec.wait,
        )
    )
    if not here and (get_codec(thing.codec).traits.sends == "reference" or thing.result_format == "none"):
        what = "result format none" if spec.result_format == "none" else f"codec {codec}"
        raise ExperimentError(f"{what} hands things over by reference, so it goes with --transport inproc only")
    return settled(msgspec.structs.replace(thing, executor="inproc" if here else "mp", transport=transport))


def _replay(
    things: Sequence[Experiment],
    workers: ReplayWorkers,
    steps: Sequence[Step],
    recording: Recording,
    watcher: Watcher,
    passes: Sequence[list[ReplayPass]],
) -> None:
    """Add to each thing's passes, in order of group."""
    first = things[0]
    order = turns_of(len(things), warmup=first.warmup, repeats=first.repeats, seed=first.seed)
    watcher.begin(len(things) * len(order))
    for group, turns in order:
        for turn, index in enumerate(turns, start=group * len(things)):
            thing = things[index]
            watcher.turn(thing, group)
            session = ReplaySession(workers.open(thing), thing, recording.limits)
            try:
                done = session.run(steps)
            except (PayloadRefused, CodecError) as error:
                raise FaultError(f"{thing.codec} by {thing.transport}: {error}") from error
            if group >= 0:
                passes[index].append(_pass(done, group, turn))
            watcher.done()


def _pass(done: Replayed, group: int, order: int) -> ReplayPass:
    phases = {name: float(us.mean()) for name, us in done.phases_us.items()}
    return ReplayPass(
        group=group,
        order=order,
        path_us=sum(phases.values()),
        phases_us=phases,
        plan_bytes=float(done.plan_bytes.mean()),
        result_bytes=float(done.result_bytes.mean()),
        wall_s=done.wall_s,
    )


def _rows(things: Sequence[Experiment], passes: Sequence[Sequence[ReplayPass]]) -> list[ReplayRow]:
    several = len({thing.transport for thing in things}) > 1
    rows = []
    for thing, own in zip(things, passes, strict=True):
        first = passes[0] if own is not passes[0] else None
        rows.append(
            ReplayRow(
                label=f"{thing.codec} {thing.transport}" if several else thing.codec,
                codec=thing.codec,
                transport=thing.transport or "",
                result_format=thing.result_format or "",
                path_us=mean(one.path_us for one in own),
                phases_us={name: mean(one.phases_us[name] for one in own) for name in own[0].phases_us},
                plan_bytes=mean(one.plan_bytes for one in own),
                result_bytes=mean(one.result_bytes for one in own),
                path=_finding(first, own, without=()),
                path_without_adapt=_finding(first, own, without=("adapt",)),
                passes=list(own),
            )
        )
    return rows


def _finding(first: Sequence[ReplayPass] | None, own: Sequence[ReplayPass], without: Sequence[str]) -> Finding | None:
    """Path times against the first row's, group by group, ``without`` some phases."""
    if first is None:
        return None

    def us(passes: Sequence[ReplayPass]) -> list[float]:
        return [one.path_us - sum(one.phases_us[name] for name in without) for one in passes]

    return judge(us(first), us(own), higher_is_better=False, longer_with="a longer recording")
