"""What is gated, and how each figure is taken from runs. It does not know any baseline or tolerance.

Bytes, counts and outputs of a codec are the same on every machine, so they are gated as they are. Times are not: they
are gated as ratios to the reference, the first codec, measured in the same session, repeat by repeat.
"""

from collections.abc import Callable, Sequence
from typing import Final, Literal, TypeAlias

import msgspec

from serbench.results import Repeat, Run

Kind: TypeAlias = Literal["at most", "equal", "ratio"]
Value: TypeAlias = int | float | str


class Metric(msgspec.Struct, frozen=True, eq=False):
    """One gated figure of a codec.

    ``kind``: ``at most`` and ``ratio`` may not grow beyond the tolerance, ``equal`` may not change at all.
    ``tolerance``: of a new baseline, as a share. ``of`` takes the figure of a repeat; for a ratio it is in µs.
    """

    name: str
    kind: Kind
    unit: str
    tolerance: float
    of: Callable[[Repeat], Value]


NOT_WORK: Final = ("forward", "sample", "transit_out", "transit_back", "other")
"""The model's phases, and those that wait: how long a process takes to wake says what else the machine does."""


def _host_us(repeat: Repeat) -> float:
    """Medians of the phases in which the host works: unlike a mean, they bear a step that another program delayed."""
    return sum(phase.p50 for name, phase in repeat.phases_us.items() if name not in NOT_WORK)


METRICS: Final = (
    Metric("plan_bytes", "at most", "bytes", 0.0, lambda repeat: repeat.payload_bytes.plan.total),
    Metric("result_bytes", "at most", "bytes", 0.0, lambda repeat: repeat.payload_bytes.result.total),
    Metric("steps", "at most", "steps", 0.0, lambda repeat: repeat.steps),
    Metric("preemptions", "at most", "preemptions", 0.0, lambda repeat: repeat.preemptions),
    Metric("input_tokens", "equal", "tokens", 0.0, lambda repeat: repeat.input_tokens),
    Metric("output_tokens", "equal", "tokens", 0.0, lambda repeat: repeat.output_tokens),
    Metric("outputs", "equal", "", 0.0, lambda repeat: repeat.outputs_digest),
    Metric("host_time", "ratio", "× reference", 0.3, _host_us),
    Metric("encode_time", "ratio", "× reference", 0.5, lambda repeat: repeat.phases_us["encode"].p50),
    Metric("decode_time", "ratio", "× reference", 0.5, lambda repeat: repeat.phases_us["decode"].p50),
)
"""Every gate that there is, for every codec; a baseline must have each."""

NAMES: Final = tuple(metric.name for metric in METRICS)
RATIOS: Final = tuple(metric.name for metric in METRICS if metric.kind == "ratio")


class Taken(msgspec.Struct, frozen=True):
    """A figure over the repeats; ``low`` and ``high``: the repeats' own ratios, None for what is no ratio."""

    value: Value
    low: float | None = None
    high: float | None = None


def take(metric: Metric, run: Run, reference: Run) -> Taken | None:
    """A metric of ``run``: the sum over the repeats, the digest of all, or the ratio of the quietest repeats.

    Other programs only ever add to a time, so the least of each is nearest to what the code takes; code that got slower
    is slower in its quietest repeat too.

    None where there is nothing to make a ratio of: the reference itself, or a phase that takes no time.
    """
    if metric.name == "outputs":
        return Taken(run.outputs_digest)
    if metric.kind != "ratio":
        return Taken(sum(int(metric.of(repeat)) for repeat in run.repeats))
    if run is reference:
        return None
    mine, base = _times(metric, run.repeats), _times(metric, reference.repeats)
    if not mine or not base or min(*mine, *base) <= 0:
        return None
    ratios = [a / b for a, b in zip(mine, base, strict=True)]
    return Taken(min(mine) / min(base), min(ratios), max(ratios))


def _times(metric: Metric, repeats: Sequence[Repeat]) -> list[float]:
    return [float(metric.of(repeat)) for repeat in repeats]
