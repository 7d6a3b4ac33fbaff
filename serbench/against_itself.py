"""Judges a thing measured against itself: whatever differs is the machine or serbench. It measures nothing."""

import math
from collections.abc import Iterator
from typing import Final

from serbench.comparison import Comparison
from serbench.stats import WIDE, Finding, deviation_of, repeats_needed

FIGURES: Final = ("throughput", "host")
"""The findings of a comparison's row that count, and their names."""

REPEATS: Final = 10
"""Repeats each where none were asked for: a thing against itself is to show how little would be seen."""

MOST_REPEATS: Final = 50


def shown(comparison: Comparison) -> dict[str, str]:
    """By figure the verdict, where a difference was shown."""
    return {name: finding.verdict for name, finding in _findings(comparison) if finding.verdict in ("faster", "slower")}


def repeats_to_settle(comparison: Comparison) -> int | None:
    """How many repeats the scatter seen asks for; None where nothing was too noisy to tell."""
    noisy = [finding for _, finding in _findings(comparison) if finding.verdict == "too noisy to tell"]
    if not noisy:
        return None
    worst = max(deviation_of(finding) for finding in noisy)
    return repeats_needed(worst, math.log1p(0.7 * math.expm1(WIDE))) or MOST_REPEATS


def confirmed(first: Comparison, second: Comparison) -> list[str]:
    """The figures in which both measurements showed a difference in the same direction."""
    again = shown(second)
    return [name for name, verdict in shown(first).items() if again.get(name) == verdict]


def summary(comparison: Comparison) -> list[str]:
    """A line for each figure: the verdict, and how large a difference could have hidden."""
    return [f"{name}: {_told(finding)}" for name, finding in _findings(comparison)]


def _told(finding: Finding) -> str:
    if finding.low is None or finding.high is None:
        return f"{finding.verdict}; {finding.advice}"
    hidden = max(finding.high, 1 / finding.low) - 1
    advice = f"; {finding.advice}" if finding.advice else ""
    return f"{finding.verdict}; a difference of up to {hidden:.1%} could have hidden{advice}"


def _findings(comparison: Comparison) -> Iterator[tuple[str, Finding]]:
    for row in comparison.rows[1:]:
        for name in FIGURES:
            finding: Finding | None = getattr(row, name)
            if finding is not None:
                yield name, finding
