"""Turns repeated measurements into percentiles, ratios with intervals, and verdicts.

It does not know what was measured, in which order it was taken, nor how it is shown.
"""

import math
from collections.abc import Callable, Sequence
from typing import Final, Literal, NamedTuple, TypeAlias

import msgspec
import numpy as np
import numpy.typing as npt
from scipy.special import stdtrit

FloatArray: TypeAlias = npt.NDArray[np.float64]
Verdict: TypeAlias = Literal["faster", "slower", "no difference shown", "too noisy to tell", "too few repeats"]

CONFIDENCE: Final = 0.95
MIN_PAIRS: Final = 4
"""With fewer pairs the interval says more about luck than about the things compared."""

WIDE: Final = math.log(1.10)
"""An interval that includes "equal" and reaches further than 10 % shows nothing: the verdict is "too noisy to tell"."""

SETTLED: Final = math.log(1.05)
"""What the advice for a noisy comparison aims at: an interval of ±5 %."""

DRIFT: Final = 1.06
"""What intervals are widened by. In A B B A order the slow drift of a machine gives neighbouring pairs errors that
agree a little, and Student's interval, which takes them for independent, would be too narrow; docs/statistics.md has
the figures."""

_MAX_ADVISED_REPEATS: Final = 50


class Interval(NamedTuple):
    """``center`` ± ``half``, float64 of the shape of the values without their last axis."""

    center: FloatArray
    half: FloatArray


IntervalOf: TypeAlias = Callable[[FloatArray], Interval]
"""How an interval is made from log-ratios float64[..., pairs]; ``judge`` takes any."""


class Finding(msgspec.Struct, frozen=True):
    """One thing against another: ``ratio`` (other / first) with its interval, and the verdict in words.

    ``low`` and ``high`` are None where there are fewer than MIN_PAIRS pairs. ``advice``: what would settle it, empty
    where nothing needs settling.
    """

    ratio: float
    low: float | None
    high: float | None
    pairs: int
    verdict: Verdict
    advice: str = ""


def paired_t(log_ratios: FloatArray, confidence: float = CONFIDENCE) -> Interval:
    """Student's interval, widened by DRIFT, for the mean of log-ratios float64[..., pairs], pairs ≥ 2, over the last
    axis.

    Pairing takes out what both sides of a pair share: the machine's slow drift, and how heavy the repeat's prompts are.
    """
    pairs = log_ratios.shape[-1]
    error = log_ratios.std(axis=-1, ddof=1) / math.sqrt(pairs)
    return Interval(log_ratios.mean(axis=-1), float(_quantile(pairs, confidence)) * error)


def _quantile(pairs: int | npt.NDArray[np.int64], confidence: float) -> FloatArray:
    """How many standard errors an interval reaches to either side."""
    quantile: FloatArray = DRIFT * stdtrit(np.asarray(pairs) - 1, 0.5 + confidence / 2)
    return quantile


def judge(
    first: Sequence[float],
    other: Sequence[float],
    *,
    higher_is_better: bool,
    interval_of: IntervalOf = paired_t,
    longer_with: str = "more --num-prompts",
) -> Finding:
    """Compare two series of positive figures that were taken in pairs; ``longer_with`` would make each repeat longer.

    Raises:
        ValueError: the series differ in length, are empty, or hold a figure that isn't positive.
    """
    if len(first) != len(other) or not first:
        raise ValueError(f"{len(first)} and {len(other)} figures can't be paired")
    if min(*first, *other) <= 0:
        raise ValueError(f"a ratio needs figures above 0, not {min(*first, *other)}")
    log_ratios = np.log(np.asarray(other, dtype=np.float64)) - np.log(np.asarray(first, dtype=np.float64))
    pairs = len(log_ratios)
    if pairs < MIN_PAIRS:
        ratio = math.exp(float(log_ratios.mean()))
        advice = f"an interval needs at least {MIN_PAIRS} repeats of each"
        return Finding(ratio, None, None, pairs, "too few repeats", advice)
    interval = interval_of(log_ratios)
    center, half = float(interval.center), float(interval.half)
    verdict = _verdict(center, half, higher_is_better)
    advice = _advice(log_ratios, longer_with) if verdict == "too noisy to tell" else ""
    return Finding(math.exp(center), math.exp(center - half), math.exp(center + half), pairs, verdict, advice)


def _verdict(center: float, half: float, higher_is_better: bool) -> Verdict:
    if center - half > 0 or center + half < 0:
        return "faster" if (center > 0) == higher_is_better else "slower"
    return "too noisy to tell" if abs(center) + half > WIDE else "no difference shown"


def repeats_needed(deviation: float, half: float, confidence: float = CONFIDENCE) -> int | None:
    """How many pairs give an interval of ± ``half`` when log-ratios scatter by ``deviation``; None: more than 50."""
    pairs = np.arange(MIN_PAIRS, _MAX_ADVISED_REPEATS + 1)
    halves = _quantile(pairs, confidence) * deviation / np.sqrt(pairs)
    enough = np.flatnonzero(halves <= half)
    return int(pairs[enough[0]]) if len(enough) else None


def deviation_of(finding: Finding) -> float:
    """The scatter of the log-ratios that a finding's paired interval was made of; 0 where it has none."""
    if finding.low is None or finding.high is None:
        return 0.0
    half = (math.log(finding.high) - math.log(finding.low)) / 2
    return half * math.sqrt(finding.pairs) / float(_quantile(finding.pairs, CONFIDENCE))


def _advice(log_ratios: FloatArray, longer_with: str) -> str:
    needed = repeats_needed(float(log_ratios.std(ddof=1)), SETTLED)
    if needed is None:
        return (
            f"even {_MAX_ADVISED_REPEATS} repeats won't settle it: end other programs, or make each repeat longer "
            f"with {longer_with}"
        )
    return f"--repeats {needed} would narrow the interval to about ±5 %, if the machine stays as it is"


def percentile(values: FloatArray, percent: float) -> float:
    """The ``percent``-th percentile of float64[n], n ≥ 1, interpolated linearly."""
    return float(np.percentile(values, percent))


def variation(values: Sequence[float]) -> float:
    """The standard deviation of positive figures as a share of their mean; 0 for a single one."""
    if len(values) < 2:
        return 0.0
    array = np.asarray(values, dtype=np.float64)
    return float(array.std(ddof=1) / array.mean())
