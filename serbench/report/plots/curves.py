"""Draws series as curves over one axis, a panel each place in the grid, or as dots where that axis has one value.

It does not know which figures they are.
"""

from collections.abc import Callable, Sequence
from typing import Final

import msgspec
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from serbench.report.plots.panels import (
    Grid,
    Room,
    fixed_ticks,
    label_ends,
    light_grid,
    log_axis,
    names_in,
    no_tick_labels,
    panel_grid,
    short,
    title,
)
from serbench.report.plots.style import INK, SMALL_PT, Look, looks

_MARGIN: Final = 1.25
"""By what factor axes reach beyond what they show."""

_DODGE: Final = 0.012
"""By what share of the axis series stand beside one another, so that their intervals can be seen."""


class Mark(msgspec.Struct, frozen=True):
    """One figure at ``x``, with its interval where there is one, and the repeats behind it."""

    x: float
    y: float
    low: float | None = None
    high: float | None = None
    raw: tuple[float, ...] = ()


class Panel(msgspec.Struct, frozen=True):
    """One place in the grid: marks by series, in the order of x."""

    title: str
    curves: dict[str, list[Mark]]


class Row(msgspec.Struct, frozen=True):
    """Panels beside one another, under a heading that may be empty."""

    heading: str
    panels: list[Panel]


class Axis(msgspec.Struct, frozen=True):
    """What an axis says and how it writes its numbers; ``values`` are ticks where there are only a few."""

    label: str
    write: Callable[[float], str]
    values: tuple[float, ...] = ()


def draw_curves(
    rows: Sequence[Row], series: Sequence[str], x: Axis, y: Axis, *, side: str = "right", base_line: float | None = None
) -> Figure:
    """Panels with common axes; ``side``: at which ends of the curves their names stand. Numbers stand at the other."""
    headings = any(row.heading for row in rows)
    room = _room(side, headings, names_in(series))
    grid = panel_grid(len(rows), max(len(row.panels) for row in rows), 1.4, room)
    marks = [mark for row in rows for panel in row.panels for curve in panel.curves.values() for mark in curve]
    ranges = _range([mark.x for mark in marks]), _range(_heights(marks))
    for i, row in enumerate(rows):
        grid.figure.text(room.left / grid.figure.get_figwidth(), grid.tops[i], row.heading, va="top", fontweight="bold")
        numbered = 0 if side == "right" else len(row.panels) - 1
        for j, axes in enumerate(grid.panels[i]):
            if j >= len(row.panels) or not row.panels[j].curves:
                axes.set_axis_off()
                continue
            title(axes, row.panels[j].title)
            _axes(axes, x, y, ranges, side=side, outer=(i == len(rows) - 1, j == numbered))
            if base_line is not None:
                axes.axhline(base_line, color=INK, linewidth=0.8, zorder=1)
            _panel(axes, row.panels[j], series, side)
    _axis_names(grid, x.label, y.label, room)
    return grid.figure


def _room(side: str, headings: bool, names: float) -> Room:
    """Room for names on one side of each panel, and for numbers on the other."""
    if side == "right":
        return Room(left=0.75, right=names, between=names + 0.12, headings=headings)
    return Room(left=names + 0.25, right=0.45, between=names + 0.12, headings=headings)


def _range(values: Sequence[float]) -> tuple[float, float]:
    return min(values) / _MARGIN, max(values) * _MARGIN


def _heights(marks: Sequence[Mark]) -> list[float]:
    """All that is to be seen, but for intervals so wide that they would flatten the rest."""
    seen = [value for mark in marks for value in (mark.y, *mark.raw)]
    low, high = min(seen) / 1.5, max(seen) * 1.5
    ends = [end for mark in marks for end in (mark.low, mark.high) if end is not None]
    return seen + [min(max(end, low), high) for end in ends]


def _axes(
    axes: Axes,
    x: Axis,
    y: Axis,
    ranges: tuple[tuple[float, float], tuple[float, float]],
    side: str,
    outer: tuple[bool, bool],
) -> None:
    log_axis(axes, "x", *ranges[0], x.write)
    if x.values and len(x.values) <= 6:
        fixed_ticks(axes, "x", x.values, [x.write(value) for value in x.values])
    log_axis(axes, "y", *ranges[1], y.write)
    light_grid(axes, "y")
    if side == "left":
        axes.yaxis.tick_right()
        axes.spines["left"].set_visible(False)
        axes.spines["right"].set_visible(True)
    axes.tick_params(axis="y", labelright=outer[1] and side == "left", labelleft=outer[1] and side == "right")
    if not outer[0]:
        no_tick_labels(axes, "x")


def _panel(axes: Axes, panel: Panel, series: Sequence[str], side: str) -> None:
    styles = looks(series)
    low, high = axes.get_xlim()
    last = -1 if side == "right" else 0
    ends = []
    for place, name in enumerate(panel.curves):
        beside = (high / low) ** (_DODGE * (place - (len(panel.curves) - 1) / 2))
        curve = [msgspec.structs.replace(mark, x=mark.x * beside) for mark in panel.curves[name]]
        _curve(axes, curve, styles[name])
        ends.append((short(name), curve[last].x, curve[last].y, styles[name].colour))
    label_ends(axes, ends, side)


def _curve(axes: Axes, curve: Sequence[Mark], look: Look) -> None:
    xs, ys = [mark.x for mark in curve], [mark.y for mark in curve]
    axes.plot(xs, ys, color=look.colour, marker=look.marker, linestyle=look.line, markeredgewidth=0, zorder=3)
    for mark in curve:
        if mark.low is not None and mark.high is not None:
            axes.plot([mark.x, mark.x], [mark.low, mark.high], color=look.colour, linewidth=1.0, zorder=2)
        axes.plot([mark.x] * len(mark.raw), mark.raw, ".", color=look.colour, markersize=2.2, alpha=0.55, zorder=2)


def _axis_names(grid: Grid, x: str, y: str, room: Room) -> None:
    width_in, height_in = grid.figure.get_size_inches()
    middle_in = room.left + (width_in - room.left - room.right) / 2
    grid.figure.text(middle_in / width_in, 0.03 / height_in, x, ha="center", va="bottom")
    low, high = grid.panels[-1][0].get_position().y0, grid.panels[0][0].get_position().y1
    grid.figure.text(0.02 / width_in, (low + high) / 2, y, ha="left", va="center", rotation=90)


def draw_dots(panel: Panel, series: Sequence[str], value: Axis) -> Figure:
    """One mark a series, named on the left; for figures along an axis of one value."""
    grid = panel_grid(1, 1, 0.32 * len(panel.curves) + 0.15, Room(left=names_in(list(panel.curves))))
    [[axes]] = grid.panels
    styles = looks(series)
    marks = {name: curve[0] for name, curve in panel.curves.items()}
    title(axes, panel.title)
    log_axis(axes, "x", *_range(_heights(list(marks.values()))), value.write)
    axes.set_ylim(len(marks) - 0.5, -0.7)
    fixed_ticks(axes, "y", range(len(marks)), [short(name) for name in marks])
    light_grid(axes, "x")
    axes.set_xlabel(value.label)
    for place, (name, mark) in enumerate(marks.items()):
        look = styles[name]
        if mark.low is not None and mark.high is not None:
            axes.plot([mark.low, mark.high], [place, place], color=look.colour, linewidth=1.2)
        axes.plot(mark.raw, [place + 0.22] * len(mark.raw), ".", color=look.colour, markersize=2.5, alpha=0.7)
        axes.plot([mark.y], [place], look.marker, color=look.colour, markersize=5, markeredgewidth=0)
        axes.text(mark.y, place - 0.22, value.write(mark.y), fontsize=SMALL_PT, ha="center", va="bottom")
    return grid.figure
