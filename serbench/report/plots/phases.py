"""The plot of where a step's time goes on the host, phase upon phase, by batch and codec.

It does not know how phases are measured.
"""

from collections.abc import Sequence
from itertools import zip_longest

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patches import Patch

from serbench.report.figures import figure
from serbench.report.plots.panels import (
    Room,
    fixed_ticks,
    light_grid,
    names_in,
    no_tick_labels,
    panel_grid,
    short,
    title,
)
from serbench.report.plots.places import batch_words, few
from serbench.report.plots.style import EDGE, GROUPS, SMALL_PT
from serbench.report.survey import Point, Survey
from serbench.results import Run


def draw_phases(survey: Survey) -> Figure | str:
    """Bars a codec, a panel a batch, at the hardest context and model step; the model's own time is told beside."""
    hardest = survey.hardest
    found = [survey.at(model=hardest.model, batch=batch, context=hardest.context) for batch in few(survey.batches)]
    points = [points[0] for points in found if points]
    lost = sorted({phase for point in points for run in point.runs.values() for phase in _not_measured(run)})
    if lost:
        return f"not measured in all runs: {', '.join(lost)}"
    names = [name for name in survey.series if any(name in point.runs for point in points)]
    height_in = 0.27 * len(names) + 0.1
    grid = panel_grid(1, len(points), height_in, Room(names_in(names), right=0.42, between=0.42, top=0.36, bottom=0.7))
    longest_us = max(sum(group_us(run).values()) for point in points for run in point.runs.values())
    for i, (axes, point) in enumerate(zip(grid.panels[0], points, strict=True)):
        _bars(axes, point, names, longest_us)
        title(axes, batch_words(survey, point.batch))
        fixed_ticks(axes, "y", range(len(names)), [short(name) for name in names])
        if i:
            no_tick_labels(axes, "y")
    _legend(grid.figure)
    return grid.figure


def _bars(axes: Axes, point: Point, names: Sequence[str], longest_us: float) -> None:
    """One panel, in the unit and on the scale that all panels have."""
    totals = {name: sum(group_us(run).values()) for name, run in point.runs.items()}
    scale, unit = (1e-3, "ms") if longest_us >= 2000 else (1.0, "µs")
    for place, name in enumerate(names):
        if name not in point.runs:
            continue
        left = 0.0
        for group, us in group_us(point.runs[name]).items():
            fill = GROUPS[group][1]
            axes.barh(
                place, us * scale, 0.72, left, color=fill.colour, hatch=fill.hatch, edgecolor=EDGE, linewidth=0.35
            )
            left += us * scale
        axes.annotate(
            figure(totals[name] * scale),
            (left, place),
            (3, 0),
            textcoords="offset points",
            va="center",
            fontsize=SMALL_PT,
        )
    axes.set_xlim(0, longest_us * scale * 1.18)
    axes.set_ylim(len(names) - 0.5, -0.5)
    axes.locator_params(axis="x", nbins=4)
    axes.xaxis.set_major_formatter(lambda value, _: figure(value))
    axes.tick_params(axis="y", length=0)
    light_grid(axes, "x")
    axes.set_xlabel(f"host {unit} a step\n(model: {figure(point.model_step_us * scale)} {unit},\nmedian of codecs)")


def _not_measured(run: Run) -> set[str]:
    phases = {phase for group, _ in GROUPS.values() for phase in group}
    return {phase for repeat in run.repeats for phase in phases - repeat.phases_us.keys()}


def group_us(run: Run) -> dict[str, float]:
    """Mean µs a step of each group of phases, over all steps of all repeats."""
    steps = max(1, sum(repeat.steps for repeat in run.repeats))
    return {
        group: sum(repeat.phases_us[phase].total for repeat in run.repeats for phase in phases) / steps
        for group, (phases, _) in GROUPS.items()
    }


def _legend(drawn: Figure) -> None:
    patches = [
        Patch(facecolor=fill.colour, hatch=fill.hatch, edgecolor=EDGE, linewidth=0.35, label=group)
        for group, (_, fill) in GROUPS.items()
    ]
    half = (len(patches) + 1) // 2
    in_rows = [patch for pair in zip_longest(patches[:half], patches[half:]) for patch in pair if patch is not None]
    drawn.legend(
        handles=in_rows,  # filled column by column, to be read row by row
        loc="upper left",
        bbox_to_anchor=(0.0, 1.0),
        ncols=half,
        fontsize=SMALL_PT,
        frameon=False,
        handlelength=1.6,
        handleheight=0.9,
        columnspacing=1.2,
        borderaxespad=0,
    )
