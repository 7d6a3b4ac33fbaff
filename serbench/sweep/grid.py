"""Spans a grid: a point for each combination of values, and which point each is compared with. It measures nothing."""

import itertools
import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

import msgspec

from serbench.errors import ExperimentError
from serbench.experiment import Experiment

COMPARED: Final = ("codec", "result_format", "transport", "wait", "executor")
"""Axes that a ratio can be about, in the order in which one is chosen."""


class Axis(msgspec.Struct, frozen=True):
    """One option of `serbench run` with the values it takes, in order."""

    name: str
    values: tuple[Any, ...]


class Point(msgspec.Struct, frozen=True, kw_only=True):
    """One experiment of a grid. ``id`` names its file; ``values`` are those of the axes, as text."""

    id: str
    values: dict[str, str]
    experiment: Experiment


def span(axes: Sequence[Axis], make: Callable[[Mapping[str, Any]], Experiment]) -> list[Point]:
    """All points; the last axis varies fastest. ``make`` turns one value of each axis into an experiment.

    Raises:
        ExperimentError: a value given twice, or what ``make`` raises.
    """
    for axis in axes:
        given = [str(value) for value in axis.values]
        twice = next((value for value in given if given.count(value) > 1), None)
        if twice is not None:
            raise ExperimentError(f"--{axis.name.replace('_', '-')} has {twice} twice; each point is measured once")
    points = []
    for i, values in enumerate(itertools.product(*(axis.values for axis in axes))):
        chosen = {axis.name: value for axis, value in zip(axes, values, strict=True)}
        texts = {name: str(value) for name, value in chosen.items()}
        points.append(Point(id=_id(i, axes, texts), values=texts, experiment=make(chosen)))
    return points


def _id(i: int, axes: Sequence[Axis], values: Mapping[str, str]) -> str:
    words = "-".join(values[axis.name] for axis in axes if len(axis.values) > 1)
    slug = re.sub(r"[^A-Za-z0-9.]+", "-", words).strip("-.")[:80]
    return f"{i:03d}-{slug}".rstrip("-")


def references(points: Sequence[Point]) -> list[int | None]:
    """For each point the one its ratio is to: all values the same, but the first codec (or whatever path varies).

    None for the first ones themselves, and where no such axis varies.
    """
    axis = next((name for name in COMPARED if len({point.values.get(name) for point in points}) > 1), None)
    if axis is None:
        return [None] * len(points)
    first = points[0].values[axis]
    index = {tuple(point.values.items()): i for i, point in enumerate(points)}
    found = [index[tuple({**point.values, axis: first}.items())] for point in points]
    return [None if reference == i else reference for i, reference in enumerate(found)]
