"""The table of a sweep, one block a point, for a terminal of 80 columns. It does not know how ratios are judged."""

from collections.abc import Sequence

from rich.box import SIMPLE_HEAD
from rich.console import Group, RenderableType
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from serbench.report.comparison_table import bytes_block, figure_block, table_notes
from serbench.report.figures import counted
from serbench.report.folding_table import FoldingTable
from serbench.sweep.table import SweepRow, SweepTable

STATES = {"done": "", "unfinished": "yellow", "failed": "red"}


def sweep_report(table: SweepTable) -> RenderableType:
    """The table, what failed and why, and what a reader must know."""
    done = sum(row.state == "done" for row in table.rows)
    heading = Text.assemble(
        (f"sweep {table.id}", "bold"),
        f"  {done} of {counted(len(table.rows), 'point')} done\n",
        ("× is the ratio to the first of its kind, with its 95 % interval and verdict", "dim"),
    )
    notes = [
        Text(f"{row.point}: {row.note}", "red" if row.state == "failed" else "yellow") for row in table.rows if row.note
    ]
    warnings = [Text(f"warning: {line}", "yellow") for line in table.warnings]
    return Group(
        Padding(heading, (1, 0, 1, 1)),
        sweep_table(table),
        table_notes(),
        *(Padding(line, (0, 0, 0, 1)) for line in [*notes, *warnings, *_advice(table.rows)]),
    )


def sweep_table(table: SweepTable) -> Table:
    """A row a point: a column for each axis, then the figures."""
    axes = len(table.rows[0].values)
    floors = dict.fromkeys(range(axes, axes + 3), 13)
    grid = FoldingTable(floors=floors, box=SIMPLE_HEAD, show_edge=False, padding=(0, 1), leading=1)
    for name in table.rows[0].values:
        grid.add_column(name.replace("_", "\n"), overflow="fold")
    for name in ("output\ntokens/s", "host µs\na step", "bytes\na step"):
        grid.add_column(name, justify="right", overflow="fold", min_width=13)
    for row in table.rows:
        grid.add_row(*map(Text, row.values.values()), *_figures(row))
    return grid


def _figures(row: SweepRow) -> list[Text]:
    if row.figures is None:
        return [Text("outputs WRONG" if row.outputs_wrong else row.state, "red"), Text("–"), Text("–")]
    one = row.figures
    throughput = figure_block(sum(one.output_tokens_per_s) / len(one.output_tokens_per_s), one.throughput)
    if row.state != "done":
        throughput.append(f"\n{row.state} after {row.repeats}", STATES[row.state])
    if one.outputs == "differ":
        throughput.append("\noutputs DIFFER", "yellow")
    return [
        throughput,
        figure_block(one.host_us_per_step, one.host),
        bytes_block(one),
    ]


def _advice(rows: Sequence[SweepRow]) -> list[Text]:
    """What would settle verdicts that are none, once for all points that it holds for."""
    points: dict[str, list[str]] = {}
    for row in rows:
        finding = row.figures.throughput if row.figures is not None else None
        if finding is not None and finding.advice:
            points.setdefault(finding.advice, []).append(row.point)
    return [Text(f"{_some(names)}: {line}") for line, names in points.items()]


def _some(names: Sequence[str]) -> str:
    return ", ".join(names) if len(names) <= 3 else f"{names[0]} and {len(names) - 1} more points"
