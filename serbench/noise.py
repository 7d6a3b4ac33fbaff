"""Finds what disturbed a series of repeats, and says what to do about it. It does not know what was measured.

Every line names a figure, so that a reader can judge how bad it is, and something to do. The figure is the limit that
was passed, so that runs with the same trouble have the same line.
"""

from collections.abc import Sequence
from typing import Final

import numpy as np
from scipy.special import stdtr

from serbench.report.figures import counted
from serbench.stats import variation

NOISY: Final = 0.05
"""Figures that scatter more between repeats than this share of their mean deserve a warning."""

COLD: Final = 0.10
"""A first repeat that is slower than the others' slowest by this share was not warm."""

DRIFTING: Final = 0.02
"""A trend of more than this share a repeat is worth telling."""

_SURE: Final = 0.01
"""How unlikely a trend must be by chance before it is told."""


def noise_warnings(rates: Sequence[float]) -> list[str]:
    """Lines on figures that are the higher the better, one a repeat, in the order of time; none for a quiet series.

    One cause is told, not all its symptoms: a cold first repeat and a trend scatter as well.
    """
    if len(rates) < 2 or min(rates) <= 0:
        return []
    if variation(rates) <= NOISY:
        return []
    if _cold(rates):
        return [
            f"the first repeat was over {COLD:.0%} slower than any other, so it was not warm: give --warmup one more"
        ]
    trend = _trend(rates)
    if abs(trend) > DRIFTING:
        way = "fall" if trend < 0 else "rise"
        return [
            f"output tokens/s {way} by over {DRIFTING:.0%} a repeat: let the machine come to rest (heat, programs that "
            "end or begin) and measure again; ratios of interleaved repeats bear this, single figures don't"
        ]
    return [
        f"output tokens/s scatter by more than {NOISY:.0%} between repeats: end other programs, or make each repeat "
        "longer with more --num-prompts"
    ]


def _cold(rates: Sequence[float]) -> bool:
    """Whether the first is far below all others, and these agree."""
    others = rates[1:]
    return len(others) >= 2 and rates[0] < min(others) * (1 - COLD) and variation(others) < NOISY


def _trend(rates: Sequence[float]) -> float:
    """The slope of the logarithms, a share a repeat; 0 where chance would do as much in one case of a hundred."""
    repeats = len(rates)
    if repeats < 4:
        return 0.0
    values, times = np.log(rates), np.arange(repeats) - (repeats - 1) / 2
    slope = float(times @ values / (times @ times))
    left = values - values.mean() - slope * times
    error = float(np.sqrt(left @ left / (repeats - 2) / (times @ times)))
    by_chance = 2 * float(stdtr(repeats - 2, -abs(slope) / error)) if error > 0 else 0.0
    return slope if by_chance < _SURE else 0.0


def kernels_warning(without_kernels: str) -> list[str]:
    """A line if the engine's C++ kernels were not used, for the reason given."""
    return [f"without the C++ kernels, so slower: {without_kernels}"] if without_kernels else []


def load_warning(load_average: float, cores: int) -> list[str]:
    """A line if other programs were at work before the first repeat."""
    if load_average <= cores / 2:
        return []
    return [
        f"the load average was {load_average:.1f} on {counted(cores, 'core')} before the first repeat: end other "
        "programs for quieter figures"
    ]
