"""A table that fits whatever terminal it is shown in, and never loses a figure. It does not know what it holds.

Where there is room it is an ordinary one. Where there is less, words go to further lines, then padding is given up;
where there is not even room for the longest words, each row becomes a block of lines, a line for each column.
"""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from rich.console import Console, ConsoleOptions, Group, RenderableType, RenderResult
from rich.measure import Measurement
from rich.padding import Padding, PaddingDimensions
from rich.table import Column, Table
from rich.text import Text

UNBOUND = 100_000
"""Wider than anything that is measured."""


class FoldingTable(Table):
    """``floors``: by a column's place, the width below which the table becomes blocks; else its longest word's."""

    def __init__(self, *headers: Column | str, floors: Mapping[int, int] | None = None, **options: Any) -> None:
        super().__init__(*headers, **options)
        self._floors = floors or {}

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        unbound = options.update(width=UNBOUND)
        width = options.max_width
        if not self.columns or Measurement.get(console, unbound, self).maximum <= width:
            yield from super().__rich_console__(console, options)
            return
        needs = [_needed(console, unbound, column) for column in self.columns]
        yield self._padded(needs, width) or self._bare(needs, width) or _blocks(self, width)

    def _padded(self, needs: Sequence[Measurement], width: int) -> Table | None:
        """With padding, and what must not be broken in one line."""
        floors = [
            max(need.maximum if column.no_wrap else need.minimum, column.min_width or 0, self._floors.get(i, 0))
            for i, (column, need) in enumerate(zip(self.columns, needs, strict=True))
        ]
        between = len(needs) - 1 + len(needs) * (self.padding[1] + self.padding[3])
        widths = _shrunk([need.maximum for need in needs], floors, width - between)
        return None if widths is None else _with_widths(self, widths, self.padding)

    def _bare(self, needs: Sequence[Measurement], width: int) -> Table | None:
        floors = [self._floors.get(i, need.minimum) for i, need in enumerate(needs)]
        widths = _shrunk([need.maximum for need in needs], floors, width - len(needs) + 1)
        return None if widths is None else _with_widths(self, widths, 0)


def _needed(console: Console, unbound: ConsoleOptions, column: Column) -> Measurement:
    """From its longest word to its longest line."""
    each = [Measurement.get(console, unbound, cell) for cell in (column.header, *column.cells)]
    return Measurement(max(one.minimum for one in each), max(one.maximum for one in each))


def _shrunk(widths: Sequence[int], floors: Sequence[int], room: int) -> list[int] | None:
    """``widths``, none below its floor, that fit into ``room``, the widest made narrower first; None if they can't."""
    shrunk = [max(width, floor) for width, floor in zip(widths, floors, strict=True)]
    for _ in range(sum(shrunk) - room):
        slack = [i for i, floor in enumerate(floors) if shrunk[i] > floor]
        if not slack:
            return None
        shrunk[max(slack, key=shrunk.__getitem__)] -= 1
    return shrunk


def _with_widths(table: Table, widths: Sequence[int], padding: PaddingDimensions) -> Table:
    narrow = Table(
        box=table.box,
        show_edge=False,
        padding=padding,
        leading=table.leading,
        show_header=table.show_header,
        title=table.title,
    )
    narrow.columns = [
        replace(column, width=width, min_width=None, no_wrap=False, overflow="fold")
        for column, width in zip(table.columns, widths, strict=True)
    ]
    narrow.rows = table.rows
    return narrow


def _blocks(table: Table, width: int) -> RenderableType:
    """For each row its first cell, and below it the others behind their headers."""
    first, *labels = (" ".join(str(column.header).split("\n")) for column in table.columns)
    longest = min(max(map(len, labels), default=0), max(width * 2 // 5, 1))
    blocks: list[RenderableType] = []
    for head, *cells in zip(*(list(column.cells) for column in table.columns), strict=True):
        grid = Table.grid(padding=(0, 1))
        grid.add_column(width=longest, overflow="fold", style="dim")
        grid.add_column(overflow="fold")
        for label, cell in zip(labels, cells, strict=True):
            if str(cell):
                grid.add_row(label, _in_one_line(cell))
        blocks += [Padding(_named(head, first), (0, 0, 0, 1)), Padding(grid, (0, 0, 1, 3))]
    return Group(*blocks)


def _named(head: RenderableType, header: str) -> RenderableType:
    """The first cell; a number says nothing without its header."""
    line = _in_one_line(head)
    if not any(map(str.isdigit, str(line))) or any(map(str.isalpha, str(line))):
        return line
    return Text.assemble((f"{header} ", "dim"), line if isinstance(line, Text) else str(line))


def _in_one_line(cell: RenderableType) -> RenderableType:
    """A text of short lines as one, which is broken where the terminal ends."""
    if isinstance(cell, Text):
        return Text("  ").join(line for line in cell.split("\n") if line.plain)
    return " ".join(cell.split("\n")) if isinstance(cell, str) else cell
