"""The table of a comparison, one block a run, for a terminal of 80 columns. It does not know how ratios are judged."""

from collections.abc import Sequence

from rich.box import SIMPLE_HEAD
from rich.console import Group, RenderableType
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from serbench.comparison import Comparison, Row
from serbench.report.figures import counted, figure, times
from serbench.report.folding_table import FoldingTable
from serbench.report.heading import comparison_heading
from serbench.results import Run
from serbench.stats import Finding

RATIO_NOTE = "×: geometric mean over pairs of repeats, so not the quotient of what is shown"
BYTES_NOTE = """bytes: means over all steps, admissions included; p50: the median step's plan,
a steady decode step's unless most steps carry prompts"""
IDS_NOTE = "a token id takes 4 bytes in msgspec's packed int32, 2, 3 or 5 in pickle"
STYLES = {"faster": "green", "slower": "red", "no difference shown": "", "too noisy to tell": "yellow"}


def comparison_report(comparison: Comparison, runs: Sequence[Run]) -> RenderableType:
    """What was compared, the table, the raw figures behind it, and what a reader must know."""
    return Group(
        Padding(comparison_heading(runs), (1, 0, 1, 1)),
        comparison_table(comparison),
        table_notes([row.label for row in comparison.rows]),
        Text("\n output tokens/s, each repeat", style="dim"),
        Padding(raw_figures(comparison.rows), (0, 0, 1, 1)),
        *(Padding(line, (0, 0, 0, 1)) for line in remarks(comparison)),
    )


def table_notes(labels: Sequence[str] = ()) -> RenderableType:
    """How the ratios and bytes of a table of comparisons, with rows of these labels, are to be read."""
    codecs = {label.split(" ")[0] for label in labels}
    notes = [RATIO_NOTE, BYTES_NOTE, *([IDS_NOTE] if {"pickle", "msgspec"} <= codecs else [])]
    return Padding(Text("\n".join(notes), style="dim"), (1, 0, 0, 1))


def comparison_table(comparison: Comparison) -> Table:
    """Each run's figures with their ratio to the first; below it the 95 % interval, then the verdict."""
    floors = dict.fromkeys(range(1, 5), 13)  # narrower ones would break intervals
    table = FoldingTable(floors=floors, box=SIMPLE_HEAD, show_edge=False, padding=(0, 1), leading=1)
    table.add_column("codec", overflow="fold", min_width=10)
    for name in ("output\ntokens/s", "host µs\na step", "host µs\nwithout adapt", "bytes\na step"):
        table.add_column(name, justify="right", overflow="fold", min_width=13)
    for i, row in enumerate(comparison.rows):
        table.add_row(
            Text.assemble(f"{row.label}\n{_outputs(row, first=i == 0)}", (_refused(row), "red")),
            figure_block(sum(row.output_tokens_per_s) / len(row.output_tokens_per_s), row.throughput),
            figure_block(row.host_us_per_step, row.host),
            figure_block(row.host_us_without_adapt, row.host_without_adapt),
            bytes_block(row),
        )
    return table


def _outputs(row: Row, first: bool) -> str:
    return "" if first else f"outputs {'DIFFER' if row.outputs == 'differ' else row.outputs}"


def _refused(row: Row) -> str:
    return f"\n{counted(row.refused, 'payload')}\nREFUSED" if row.refused else ""


def bytes_block(row: Row) -> Text:
    """Bytes of a step: the plan's mean, that of the median step, and the result's."""
    return Text(f"{figure(row.plan_bytes)} plan\n{figure(row.plan_bytes_p50)} p50\n{figure(row.result_bytes)} result")


def figure_block(value: float | None, finding: Finding | None) -> Text:
    """A figure, its ratio, the interval below it and the verdict below that."""
    if value is None:
        return Text("not measured", style="dim")
    block = Text(figure(value), style="bold")
    if finding is not None:
        block.append(f" ×{times(finding.ratio)}", style="not bold")
        block.append(f"\n{interval(finding)}\n", style="not bold")
        block.append(finding.verdict, style=f"not bold {STYLES.get(finding.verdict, '')}")
    return block


def interval(finding: Finding) -> str:
    """The 95 % interval of a ratio, such as ``[1.35, 1.41]``."""
    if finding.low is None or finding.high is None:
        return "[–]"
    return f"[{times(finding.low)}, {times(finding.high)}]"


def raw_figures(rows: Sequence[Row]) -> Table:
    """Output tokens/s of every repeat."""
    grid = Table.grid(padding=(0, 1))
    grid.add_column(overflow="fold")
    grid.add_column(overflow="fold")
    for row in rows:
        values = "  ".join(figure(value) for value in row.output_tokens_per_s)
        grid.add_row(Text(row.label, style="dim"), Text(values, style="dim"))
    return grid


def remarks(comparison: Comparison) -> list[Text]:
    """Warnings, and what would settle verdicts that are none."""
    lines = [Text(f"warning: {line}", style="yellow") for line in comparison.warnings]
    advice: dict[str, list[str]] = {}
    for row in comparison.rows:
        for finding in (row.throughput, row.host, row.host_without_adapt):
            if finding is not None and finding.advice:
                advice.setdefault(finding.advice, []).append(row.label)
                break  # one advice a run is enough
    return lines + [Text(f"{', '.join(labels)}: {line}") for line, labels in advice.items()]
