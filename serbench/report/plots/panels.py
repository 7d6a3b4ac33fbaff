"""Lays panels out in inches, ticks logarithmic axes plainly, and writes labels beside curves, none over another.

It does not know what the panels show.
"""

import math
from collections.abc import Callable, Sequence
from typing import Final

import msgspec
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import FixedFormatter, FixedLocator, MaxNLocator, NullLocator

from serbench.report.harmless import harmless
from serbench.report.plots.style import GRID, INK, SMALL_PT, WIDTH_IN

_TITLE_IN: Final = 0.19
_HEADING_IN: Final = 0.17
_NARROWEST_IN: Final = 1.25
_LETTER_IN: Final = 0.067  # of a title, on average


class Room(msgspec.Struct, frozen=True):
    """Inches around panels: left of the first, right of the last, between two; above all, and below a row with ticks.

    ``headings``: whether each row has a line above it.
    """

    left: float = 0.95
    right: float = 0.3
    between: float = 0.3
    top: float = 0.02
    bottom: float = 0.42
    headings: bool = False


class Grid(msgspec.Struct, frozen=True, eq=False):
    """A figure with ``panels[row][column]``; ``tops``: each row's upper end, a share of the figure's height."""

    figure: Figure
    panels: list[list[Axes]]
    tops: list[float]


def panel_grid(rows: int, columns: int, height_in: float, room: Room) -> Grid:
    """Panels of ``height_in`` that fill WIDTH_IN, or more where that would make them too narrow; only the last row has
    room for tick labels below.
    """
    around_in = room.left + room.right + (columns - 1) * room.between
    width_in = max(_NARROWEST_IN, (WIDTH_IN - around_in) / columns)
    page_in = around_in + columns * width_in
    above_in = _TITLE_IN + (_HEADING_IN if room.headings else 0.0)
    total_in = room.top + rows * (above_in + height_in) + (rows - 1) * 0.16 + room.bottom
    figure = Figure(figsize=(page_in, total_in))
    panels, tops, top_in = [], [], total_in - room.top
    for _ in range(rows):
        bottom_in = top_in - above_in - height_in
        lefts_in = [room.left + i * (width_in + room.between) for i in range(columns)]
        boxes = [(left / page_in, bottom_in / total_in, width_in / page_in, height_in / total_in) for left in lefts_in]
        panels.append([figure.add_axes(box) for box in boxes])
        tops.append(top_in / total_in)
        top_in = bottom_in - 0.16
    return Grid(figure, panels, tops)


LONGEST: Final = 20
"""Letters of a name that there is room for."""


def short(name: str) -> str:
    """A name with as many letters as there is room for."""
    name = harmless(name)
    return name if len(name) <= LONGEST else f"{name[: LONGEST - 1]}…"


def title(axes: Axes, text: str) -> None:
    """A title above the panel, as much of it as there is room for."""
    figure = axes.get_figure()
    assert isinstance(figure, Figure)
    text = harmless(text)
    room = int(axes.get_position().width * figure.get_figwidth() / _LETTER_IN)
    axes.set_title(text if len(text) <= room else f"{text[: room - 1]}…", pad=3, fontweight="normal")


def names_in(names: Sequence[str]) -> float:
    """Inches that the longest of the names takes beside a panel."""
    return 0.2 + max(len(short(name)) for name in names) * 0.062


def plain_ticks(low: float, high: float, most: int = 6) -> list[float]:
    """Ticks at plain numbers within ``low`` … ``high``: as many a power of ten as make no more than ``most``."""
    powers = range(math.floor(math.log10(low)), math.ceil(math.log10(high)) + 1)
    for steps in ((1, 1.5, 2, 3, 5, 7), (1, 2, 5), (1, 3), (1,)):
        ticks = [step * 10.0**power for power in powers for step in steps if low <= step * 10.0**power <= high]
        if len(ticks) <= most:
            break
    else:
        ticks = ticks[:: math.ceil(len(ticks) / most)]
    return ticks


def log_axis(axes: Axes, which: str, low: float, high: float, write: Callable[[float], str], most: int = 6) -> None:
    """Make the x or y axis logarithmic from ``low`` to ``high``, with plain ticks; evenly spaced if it is short."""
    ticks = plain_ticks(low, high, most)
    if len(ticks) < 2:
        evenly = MaxNLocator(min(4, most), steps=[1, 2, 5, 10]).tick_values(low, high)
        ticks = [float(tick) for tick in evenly if low <= tick <= high]
    getattr(axes, f"set_{which}scale")("log")
    getattr(axes, f"set_{which}lim")(low, high)
    fixed_ticks(axes, which, ticks, [write(tick) for tick in ticks])


def fixed_ticks(axes: Axes, which: str, at: Sequence[float], labels: Sequence[str]) -> None:
    """Exactly these ticks."""
    axis = getattr(axes, f"{which}axis")
    axis.set_major_locator(FixedLocator(list(at)))
    axis.set_major_formatter(FixedFormatter(list(labels)))
    axis.set_minor_locator(NullLocator())


def spread(wanted: Sequence[float], gap: float, low: float, high: float) -> list[float]:
    """Places as near to ``wanted`` as can be, ``gap`` or more apart, in the same order; within ``low`` … ``high`` where
    there is room.
    """
    order = sorted(range(len(wanted)), key=lambda i: (wanted[i], -i))  # of equals the first stands highest
    blocks: list[list[float]] = []  # sum of wanted places less their offsets, number
    for rank, i in enumerate(order):
        blocks.append([wanted[i] - rank * gap, 1])
        while len(blocks) > 1 and blocks[-2][0] / blocks[-2][1] >= blocks[-1][0] / blocks[-1][1]:
            total, number = blocks.pop()
            blocks[-1] = [blocks[-1][0] + total, blocks[-1][1] + number]
    bases = [total / number for total, number in blocks for _ in range(int(number))]
    last = max(0, len(order) - 1)
    ceiling = max(low, high - last * gap)
    placed = {
        i: min(max(base, low), ceiling) + rank * gap for rank, (i, base) in enumerate(zip(order, bases, strict=True))
    }
    return [placed[i] for i in range(len(wanted))]


def label_ends(axes: Axes, ends: Sequence[tuple[str, float, float, str]], side: str) -> None:
    """Write each (name, x, y, colour) beside the panel, right or left of it, at about the height of its point, with a
    thin line to the point. The axes must have their limits and place.
    """
    figure = axes.get_figure()
    assert isinstance(figure, Figure)
    pt = 72 / figure.dpi  # points a pixel
    box = axes.get_window_extent()
    pixels = [axes.transData.transform((x, y)) for _, x, y, _ in ends]
    gap = 1.15 * SMALL_PT / pt
    heights = spread([float(pixel[1]) for pixel in pixels], gap, box.y0 + gap / 4, box.y1)
    edge = box.x1 + 7 / pt if side == "right" else box.x0 - 7 / pt
    begin = (0.0 if side == "right" else 1.0, 0.5)  # of the line: the label's near end
    line = {"arrowstyle": "-", "linewidth": 0.6, "shrinkA": 1, "shrinkB": 3, "relpos": begin}
    for (name, x, y, colour), pixel, height in zip(ends, pixels, heights, strict=True):
        axes.annotate(
            name,
            xy=(x, y),
            xytext=((edge - float(pixel[0])) * pt, (height - float(pixel[1])) * pt),
            textcoords="offset points",  # of a place that no resolution changes
            fontsize=SMALL_PT,
            va="center",
            ha="left" if side == "right" else "right",
            color=INK,
            arrowprops=line | {"color": colour},
            annotation_clip=False,
        )


def no_tick_labels(axes: Axes, which: str) -> None:
    """Another panel has them."""
    axes.tick_params(axis=which, **{"labelbottom" if which == "x" else "labelleft": False})  # type: ignore[arg-type]


def light_grid(axes: Axes, which: str) -> None:
    """Grid lines across one axis only."""
    axes.grid(False)
    axes.grid(True, axis=which, color=GRID)  # type: ignore[arg-type]
