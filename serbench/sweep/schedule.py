"""Decides in which order a sweep's passes are made, before the first and for good. It does not know what has been made.

Points that share an engine (they differ in codec, result format or transport only) are measured in one visit to it, in
balanced order, each repeat's passes one right after the other: those are the pairs that ratios are made of. Only one
engine is alive at a time, so the engines take turns: every round visits each once, for ``stay`` repeats, and the
rounds go forth and back like the repeats of a comparison (A B C  C B A  C B A  A B C). A drift of the machine over the
sweep then hits all points alike. Each visit opens its engine anew and warms up everything that it will serve.
"""

import math
from collections.abc import Sequence

import msgspec

from serbench.experiment import Experiment, engine_key
from serbench.interleave import balanced_order


class PlannedPass(msgspec.Struct, frozen=True):
    """One timed pass: of which point, with which group's prompts, and its place among all passes of the sweep."""

    point: int
    group: int
    order: int


def engines_of(experiments: Sequence[Experiment]) -> list[list[int]]:
    """The points by the engine they share, in the order of their first."""
    shared: dict[Experiment, list[int]] = {}
    for i, experiment in enumerate(experiments):
        shared.setdefault(engine_key(experiment), []).append(i)
    return list(shared.values())


def schedule(experiments: Sequence[Experiment], stay: int) -> list[list[PlannedPass]]:
    """The visits in order, each with its passes; all experiments have the same number of repeats and the same seed."""
    engines = engines_of(experiments)
    repeats, seed = experiments[0].repeats, experiments[0].seed
    rounds = balanced_order(len(engines), math.ceil(repeats / stay), seed)
    within = [balanced_order(len(points), repeats, seed + 1 + i) for i, points in enumerate(engines)]
    visits: list[list[PlannedPass]] = []
    order, before = 0, -1
    for turn, engine_order in enumerate(rounds):
        for engine in engine_order:
            if engine != before:
                visits.append([])
            before = engine
            for group in range(turn * stay, min((turn + 1) * stay, repeats)):
                for place in within[engine][group]:
                    visits[-1].append(PlannedPass(engines[engine][place], group, order))
                    order += 1
    return visits
