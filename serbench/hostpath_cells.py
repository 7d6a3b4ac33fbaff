"""Measures the cells of the host path on one set of workers, interleaved over the whole grid.

It does not know how an engine is made to decode steadily (steady_decode.py), nor what cells say together. All cells are
measured in turn, in balanced order, so that a ratio of any two is one of figures taken close together.
"""

from collections.abc import Callable, Sequence
from typing import Final

import msgspec

from serbench.environment import Environment, describe_environment
from serbench.errors import ExperimentError
from serbench.experiment import settled
from serbench.harness import Watcher
from serbench.hostpath import (
    HostCell,
    HostPass,
    Hostpath,
    HostpathSpec,
    Times,
    growth_per_request,
    growth_with_context,
    summed,
)
from serbench.interleave import turns_of, whole_groups
from serbench.live import LiveEngine
from serbench.prepared import Prepared
from serbench.stats import percentile
from serbench.steady_decode import DROPPED_STEPS, SteadyBatch, SteadySteps, decode_steadily, prepare_steady, simulated
from serbench_codecs.registry import get_codec
from serbench_engine.models.memory import available_bytes

MOST_FULL_STATE_IDS: Final = 1 << 22
"""A codec that sends the whole state takes most of a second a step beyond this; such cells are left out."""

FULL_STATE_IDS_A_PASS: Final = 1 << 22
"""Where the whole state is large, fewer steps are looked at: the steps of a steady decode are all alike."""

FEWEST_FULL_STATE_STEPS: Final = 4

BYTES_A_SLOT: Final = 16
"""Both tables (4 each) and the simulated KV (8)."""

BYTES_A_PROMPT_ID: Final = 8
"""The prompts of engine and workload (4 each)."""


class Thing(msgspec.Struct, frozen=True, eq=False):
    """A cell that is measured, and with what."""

    cell: HostCell
    prepared: Prepared
    steps: int


def measure_hostpath(
    spec: HostpathSpec, watcher: Watcher, keep: Callable[[Hostpath], object] | None = None
) -> Hostpath:
    """Measure every cell that isn't too large, ``repeats`` times after a warm-up.

    Whatever ends it early, ``keep`` is given what is measured by then, if that is a repeat of each at least.

    Raises:
        ExperimentError: every cell is too large, a codec there isn't, or options that can't go together.
        ModelError: a model there isn't.
        EngineError: what the engine raises.
    """
    cells = cells_of(spec)
    if all(cell.skipped for cell in cells):
        reasons = dict.fromkeys(f"batch {one.batch:,} at context {one.context:,}: {one.skipped}" for one in cells)
        raise ExperimentError(f"there is nothing small enough to measure: {'; '.join(reasons)}")
    things = [thing_of(spec, cell) for cell in cells if not cell.skipped]
    environment = describe_environment()
    passes: list[list[HostPass]] = [[] for _ in things]
    try:
        _measure(things, watcher, passes)
    except BaseException:
        whole = whole_groups(passes)
        if whole[0] and keep is not None:
            keep(_document(spec, environment, cells, whole))
        raise
    return _document(spec, environment, cells, passes)


def _document(
    spec: HostpathSpec, environment: Environment, cells: Sequence[HostCell], passes: Sequence[Sequence[HostPass]]
) -> Hostpath:
    """``passes`` are those of each cell that isn't skipped."""
    own = iter(passes)
    measured = [cell if cell.skipped else summed(cell, next(own)) for cell in cells]
    return Hostpath(
        spec=msgspec.structs.replace(spec, codecs=tuple(dict.fromkeys(cell.codec for cell in cells))),
        environment=environment,
        dropped_steps=DROPPED_STEPS,
        cells=measured,
        growth_per_request=growth_per_request(measured),
        growth_with_context=growth_with_context(measured),
    )


def cells_of(spec: HostpathSpec) -> list[HostCell]:
    """Every codec at every shape; those that are too large are marked.

    Raises:
        ExperimentError: a codec there isn't, or options that can't go together.
    """
    codecs = [settled(msgspec.structs.replace(spec.base, codec=codec)).codec for codec in dict.fromkeys(spec.codecs)]
    cells = [HostCell(codec=one, batch=at.batch, context=at.context) for at in spec.shapes for one in codecs]
    return [msgspec.structs.replace(cell, skipped=reason_to_skip(cell, spec)) for cell in cells]


def reason_to_skip(cell: HostCell, spec: HostpathSpec) -> str:
    """Why a cell is too large to be measured, or nothing."""
    ids = cell.batch * cell.context
    if _sends_all(cell) and ids > MOST_FULL_STATE_IDS:
        return f"full state of {ids / 1e6:.1f} M ids"
    steady = _steady(cell, spec)
    needed = ids * BYTES_A_PROMPT_ID + steady.num_blocks * steady.block_size * BYTES_A_SLOT
    if needed > available_bytes() / 2:
        return f"needs {needed / 2**30:.1f} GiB"
    return ""


def _steady(cell: HostCell, spec: HostpathSpec) -> SteadyBatch:
    steps = spec.steps
    if _sends_all(cell):
        steps = min(steps, max(FEWEST_FULL_STATE_STEPS, FULL_STATE_IDS_A_PASS // (cell.batch * cell.context)))
    return SteadyBatch(batch=cell.batch, context=cell.context, steps=steps, block_size=spec.base.block_size)


def _sends_all(cell: HostCell) -> bool:
    return get_codec(cell.codec).traits.sends == "full"


def thing_of(spec: HostpathSpec, cell: HostCell) -> Thing:
    """The cell with what measures it, and how many steps of it a pass has.

    Raises:
        ModelError: a model there isn't.
    """
    steady = _steady(cell, spec)
    model = simulated(spec.base.model, steady.max_model_len)
    prepared = prepare_steady(msgspec.structs.replace(spec.base, codec=cell.codec), steady, model)
    return Thing(cell, prepared, steady.steps)


def _measure(things: Sequence[Thing], watcher: Watcher, passes: Sequence[list[HostPass]]) -> None:
    """Add to each thing's passes, in order of group."""
    first = things[0].prepared.experiment
    order = turns_of(len(things), warmup=first.warmup, repeats=first.repeats, seed=first.seed)
    watcher.begin(len(things) * len(order))
    engine = LiveEngine(_largest(things))
    try:
        for group, turns in order:
            for turn, index in enumerate(turns, start=group * len(things)):
                watcher.turn(things[index].prepared.experiment, group)
                done = _pass(engine, things[index], group, turn)
                if group >= 0:
                    passes[index].append(done)
                watcher.done()
    finally:
        engine.close()


def _largest(things: Sequence[Thing]) -> Prepared:
    """The thing that needs the most KV cache: workers that can serve it can serve all."""
    return max((thing.prepared for thing in things), key=lambda one: one.experiment.num_blocks or 0)


def _pass(engine: LiveEngine, thing: Thing, group: int, order: int) -> HostPass:
    prepared = thing.prepared
    requests = prepared.workload.requests(group)
    steps = decode_steadily(engine.session(prepared.experiment), requests, thing.steps)
    return HostPass(
        group=group,
        order=order,
        steps=thing.steps,
        host_us=host_times(steps),
        ahead_us=percentile(steps.ahead_us, 50),
        phases_us={name: percentile(us, 50) for name, us in steps.phases_us.items()},
        plan_bytes=percentile(steps.plan_bytes.astype(float), 50),
        result_bytes=percentile(steps.result_bytes.astype(float), 50),
    )


def host_times(steps: SteadySteps) -> Times:
    """Host time of the steps: all but forward and sample."""
    us = steps.host_us
    return Times(percentile(us, 50), percentile(us, 99), float(us.mean()))
