"""The plot of latencies: how each is distributed over requests, by codec. It does not know how they are measured."""

from collections.abc import Sequence
from statistics import median

from matplotlib.axes import Axes
from matplotlib.figure import Figure

from serbench.report.plots.panels import (
    Room,
    fixed_ticks,
    light_grid,
    log_axis,
    names_in,
    no_tick_labels,
    panel_grid,
    short,
    title,
)
from serbench.report.plots.style import INK, Look, looks
from serbench.report.survey import Survey
from serbench.results import LATENCY_PERCENTS, Run

KINDS = (
    ("ttft", "first token (TTFT)"),
    ("tpot", "each token after (TPOT)"),
    ("e2e", "whole request (E2E)"),
)


def draw_latency(survey: Survey) -> Figure | str:
    """For each codec 1 to 99 % of requests as a thin line, 25 to 75 % as a thick one, the median as a mark; at the
    hardest point. Quantiles are medians over the repeats.
    """
    runs = survey.hardest.runs
    kinds = [(kind, what) for kind, what in KINDS if any(quantiles(run, kind) for run in runs.values())]
    if not kinds:
        return "these runs were stored without the distribution of latencies"
    grid = panel_grid(1, len(kinds), 0.24 * len(runs) + 0.15, Room(left=names_in(list(runs))))
    styles = looks(survey.series)
    for i, (axes, (kind, what)) in enumerate(zip(grid.panels[0], kinds, strict=True)):
        _panel(axes, {name: quantiles(run, kind) for name, run in runs.items()}, styles)
        title(axes, what)
        fixed_ticks(axes, "y", range(len(runs)), [short(name) for name in runs])
        if i:
            no_tick_labels(axes, "y")
    return grid.figure


def quantiles(run: Run, kind: str) -> list[float]:
    """Seconds at each of LATENCY_PERCENTS: medians over the repeats that have them; empty if none has."""
    known = [found for repeat in run.repeats if (found := repeat.latency_quantiles_s.get(kind))]
    return [median(values) for values in zip(*known, strict=True)]


def _panel(axes: Axes, found: dict[str, list[float]], styles: dict[str, Look]) -> None:
    known = [values for values in found.values() if values]
    low, high = min(values[1] for values in known), max(values[-2] for values in known)
    scale, unit = (1e3, "ms") if high < 10 else (1.0, "s")
    log_axis(axes, "x", max(low, high / 1e4) * scale / 1.15, high * scale * 1.15, lambda value: f"{value:,g}", 5)
    for place, (name, values) in enumerate(found.items()):
        if values:
            _distribution(axes, place, [value * scale for value in values], styles[name])
    axes.set_ylim(len(found) - 0.5, -0.5)
    axes.tick_params(axis="y", length=0)
    axes.set_xlabel(unit)
    light_grid(axes, "x")


def _distribution(axes: Axes, place: int, values: Sequence[float], look: Look) -> None:
    at = dict(zip(LATENCY_PERCENTS, values, strict=True))
    axes.plot([at[1], at[99]], [place, place], color=look.colour, linewidth=1.0)
    axes.plot([at[99], at[99]], [place - 0.2, place + 0.2], color=look.colour, linewidth=1.0)
    axes.plot([at[25], at[75]], [place, place], color=look.colour, linewidth=4.5, solid_capstyle="butt")
    axes.plot([at[50]], [place], look.marker, color=INK, markersize=5, markeredgewidth=0)
