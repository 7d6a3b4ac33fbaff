"""What is known of the host path, ``serbench/hostpath/1``: cells of codec, batch and context, and how they grow.

It does not know how cells are measured (hostpath_cells.py), nor how they are shown. docs/hostpath.md tells what the
figures mean.
"""

from collections.abc import Callable, Sequence
from statistics import median
from typing import Final

import msgspec

from serbench.environment import Environment
from serbench.errors import ExperimentError
from serbench.experiment import Experiment
from serbench.stats import Finding, judge

SCHEMA: Final = "serbench/hostpath/1"

FEWEST_STEPS: Final = 8

ANCHORS: Final = (16, 1024)
"""Growth per request is told between these batches where they were measured, else between the smallest and largest."""


class Shape(msgspec.Struct, frozen=True):
    """``batch`` requests that decode at ``context`` tokens."""

    batch: int
    context: int


class HostpathSpec(msgspec.Struct, frozen=True, kw_only=True):
    """What is measured: every codec at every shape, ``steps`` steps a pass. ``base`` is a simulated model's, and says
    how payloads travel, how often everything is repeated, and the seed; its codec, workload and limits mean nothing.

    Raises:
        ExperimentError: nothing to measure, or a number out of range.
    """

    codecs: tuple[str, ...]
    shapes: tuple[Shape, ...]
    base: Experiment = Experiment(model="sim")
    steps: int = 128

    def __post_init__(self) -> None:
        if not self.codecs or not self.shapes:
            raise ExperimentError("the host path needs at least one codec, and one batch at one context")
        for shape in self.shapes:
            if shape.batch < 1 or shape.context < 2:
                raise ExperimentError(
                    f"batch {shape.batch} at context {shape.context}: it takes 1 request of 2 tokens at least"
                )
        if self.steps < FEWEST_STEPS:
            raise ExperimentError(f"{self.steps} steps are too few for a median; at least {FEWEST_STEPS}")


class Times(msgspec.Struct, frozen=True):
    """One time over the steps of a pass, in µs."""

    p50: float
    p99: float
    mean: float


class HostPass(msgspec.Struct, frozen=True, kw_only=True):
    """One pass of a cell: ``order`` is its turn among all. ``phases_us``, ``ahead_us`` and bytes are medians over its
    steps.
    """

    group: int
    order: int
    steps: int
    host_us: Times
    ahead_us: float
    phases_us: dict[str, float]
    plan_bytes: float
    result_bytes: float


class HostCell(msgspec.Struct, frozen=True, kw_only=True):
    """A codec at a shape. ``skipped`` says why it was not measured, and is empty where it was.

    ``host_us`` (its p50, p99, mean), ``phases_us`` and bytes a step: medians over the passes of each pass's own; so is
    ``ahead_us``, what both sides did beside a step that did not wait for it, and which is in none of the others.
    """

    codec: str
    batch: int
    context: int
    skipped: str = ""
    host_us: Times = Times(0.0, 0.0, 0.0)
    ahead_us: float = 0.0
    phases_us: dict[str, float] = {}
    plan_bytes: float = 0.0
    result_bytes: float = 0.0
    passes: list[HostPass] = []


class Growth(msgspec.Struct, frozen=True, kw_only=True):
    """How a codec's host time grows: with the batch at one context, or with the context at one batch (``at``).

    ``first`` and ``last``: the batches or contexts between which. ``us_per_request``: what each request added to a
    step, the median over the passes. ``ratio``: the step at ``last`` over that at ``first``, with its interval.
    """

    codec: str
    at: int
    first: int
    last: int
    us_per_request: float | None = None
    ratio: Finding


class Hostpath(msgspec.Struct, frozen=True, kw_only=True):
    """All cells and how they grow. ``dropped_steps`` after the prefill were not looked at."""

    schema: str = SCHEMA
    spec: HostpathSpec
    environment: Environment
    dropped_steps: int
    cells: list[HostCell]
    growth_per_request: list[Growth]
    growth_with_context: list[Growth]


def encode_hostpath(hostpath: Hostpath) -> bytes:
    """The document as indented JSON with a final newline."""
    return msgspec.json.format(msgspec.json.encode(hostpath), indent=2) + b"\n"


def summed(cell: HostCell, passes: Sequence[HostPass]) -> HostCell:
    """``cell`` with what its passes say together."""
    return msgspec.structs.replace(
        cell,
        host_us=Times(
            *(float(median(getattr(one.host_us, name) for one in passes)) for name in ("p50", "p99", "mean"))
        ),
        ahead_us=float(median(one.ahead_us for one in passes)),
        phases_us={name: float(median(one.phases_us[name] for one in passes)) for name in passes[0].phases_us},
        plan_bytes=float(median(one.plan_bytes for one in passes)),
        result_bytes=float(median(one.result_bytes for one in passes)),
        passes=list(passes),
    )


def growth_per_request(cells: Sequence[HostCell]) -> list[Growth]:
    """For each codec and context with two batches or more."""
    found = []
    for (codec, context), row in _rows(cells, lambda cell: (cell.codec, cell.context)).items():
        by_batch = {cell.batch: cell for cell in row}
        first, last = ANCHORS if by_batch.keys() >= set(ANCHORS) else (min(by_batch), max(by_batch))
        if first < last:
            low, high = _paired(by_batch[first], by_batch[last])
            added = median((b - a) / (last - first) for a, b in zip(low, high, strict=True))
            ratio = judge(low, high, higher_is_better=False)
            found.append(Growth(codec=codec, at=context, first=first, last=last, us_per_request=added, ratio=ratio))
    return found


def growth_with_context(cells: Sequence[HostCell]) -> list[Growth]:
    """For each codec and batch with two contexts or more."""
    found = []
    for (codec, batch), row in _rows(cells, lambda cell: (cell.codec, cell.batch)).items():
        by_context = {cell.context: cell for cell in row}
        first, last = min(by_context), max(by_context)
        if first < last:
            ratio = judge(*_paired(by_context[first], by_context[last]), higher_is_better=False)
            found.append(Growth(codec=codec, at=batch, first=first, last=last, ratio=ratio))
    return found


def _rows(
    cells: Sequence[HostCell], key: Callable[[HostCell], tuple[str, int]]
) -> dict[tuple[str, int], list[HostCell]]:
    rows: dict[tuple[str, int], list[HostCell]] = {}
    for cell in cells:
        if not cell.skipped:
            rows.setdefault(key(cell), []).append(cell)
    return rows


def _paired(first: HostCell, other: HostCell) -> tuple[list[float], list[float]]:
    """Median host times of two cells' passes, group by group."""
    return [one.host_us.p50 for one in first.passes], [one.host_us.p50 for one in other.passes]
