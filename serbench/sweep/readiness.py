"""Settles all points of a sweep before the first is measured, and says which can't be. It measures nothing."""

from collections.abc import Callable, Mapping, Sequence

import msgspec

from serbench.errors import ExperimentError, SerbenchError
from serbench.experiment import Experiment, settled
from serbench.prepared import Prepared
from serbench.results import Run
from serbench.sweep.grid import Point
from serbench.sweep.schedule import engines_of
from serbench_engine.errors import EngineError


class Readiness(msgspec.Struct, frozen=True, eq=False):
    """By number of the point: what was prepared, and the error of those that can't be."""

    prepared: dict[int, Prepared]
    impossible: dict[int, Exception]


def make_ready(
    points: Sequence[Point],
    runs: Mapping[str, Run],
    prepare: Callable[[Sequence[Experiment]], list[Prepared]],
) -> Readiness:
    """Prepare every point; those with stored ``runs`` as they were when these were made."""
    ready = Readiness({}, {})
    for members in engines_of([point.experiment for point in points]):
        possible = {i: one for i in members if (one := _settled(points[i].experiment, i, ready)) is not None}
        stored = [runs[points[i].id] for i in members if points[i].id in runs]
        experiments = [_as_before(one, stored) for one in possible.values()]
        try:
            prepared = prepare(experiments) if experiments else []
        except (SerbenchError, EngineError) as error:
            # All but codec, result format and transport is shared, so whatever it is, it holds for all of them.
            ready.impossible.update(dict.fromkeys(possible, error))
            continue
        for i, thing in zip(possible, prepared, strict=True):
            _take(ready, i, thing, runs.get(points[i].id))
    return ready


def _settled(experiment: Experiment, i: int, ready: Readiness) -> Experiment | None:
    try:
        settled(experiment)
    except ExperimentError as error:
        ready.impossible[i] = error
        return None
    return experiment


def _as_before(experiment: Experiment, stored: Sequence[Run]) -> Experiment:
    """With the limits that free memory set when the first repeats were made."""
    if not stored:
        return experiment
    spec = stored[0].spec
    return msgspec.structs.replace(experiment, max_model_len=spec.max_model_len, num_blocks=spec.num_blocks)


def _take(ready: Readiness, i: int, thing: Prepared, stored: Run | None) -> None:
    if stored is not None:
        differ = [
            f"{name} ({getattr(stored.spec, name)} then, {getattr(thing.experiment, name)} now)"
            for name in thing.experiment.__struct_fields__
            if getattr(stored.spec, name) != getattr(thing.experiment, name)
        ]
        if stored.weights.fingerprint != thing.model.fingerprint:
            differ.append(f"weights ({stored.weights.fingerprint} then, {thing.model.fingerprint} now)")
        if differ:
            ready.impossible[i] = ExperimentError(f"its stored repeats were made with other {', '.join(differ)}")
            return
    ready.prepared[i] = thing
