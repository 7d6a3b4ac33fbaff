"""The tables of the host path: times, bytes, growth and phases, over batch, context and codec. They measure nothing."""

from collections.abc import Callable, Mapping, Sequence
from typing import Final

from rich.box import SIMPLE_HEAD
from rich.console import Group, RenderableType
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from serbench.hostpath import Growth, HostCell, Hostpath
from serbench.noise import load_warning
from serbench.report.comparison_table import interval
from serbench.report.figures import counted, figure, times
from serbench.report.folding_table import FoldingTable

COLUMNS: Final[Mapping[str, tuple[str, ...]]] = {
    "sched": ("schedule",),
    "adapt": ("adapt",),
    "enc": ("encode",),
    "trans": ("send", "transit_out", "reply", "transit_back"),
    "dec": ("decode", "collect"),
    "apply": ("apply",),
    "prep": ("prepare",),
    "upd": ("update",),
    "other": ("other",),
}
"""Phases by column: all but the model's own, forward and sample."""

PHASES_TITLE: Final = (
    "µs by phase, medians; trans: both ways, send and reply; dec: plan and result; ahead: done beside the step, not in "
    "host: add it for all work"
)
INTERVAL: Final = "means of the repeats' own ratios, which the table above need not give; 95 % interval"


_VERDICTS: Final = {"slower": "grows", "faster": "shrinks"}
"""What a ratio of times says of growth; other verdicts are said as they are."""


def hostpath_report(hostpath: Hostpath) -> RenderableType:
    """All that a person wants to see of a host path."""
    cells = hostpath.cells
    blocks: list[tuple[str, Table | None]] = [
        ("host µs a step, median", _grid(cells, lambda cell: figure(cell.host_us.p50))),
        ("plan bytes a step", _grid(cells, lambda cell: figure(cell.plan_bytes))),
        (f"result bytes a step{_at_which(cells)}", _grid(_one_context(cells), lambda cell: figure(cell.result_bytes))),
        (f"growth of the host time with the batch, {INTERVAL}", _growth_table(hostpath.growth_per_request)),
        (f"growth of the host time with the context, {INTERVAL}", _growth_table(hostpath.growth_with_context)),
        (PHASES_TITLE, _phases_table(cells)),
    ]
    remarks = _remarks(hostpath)
    return Group(
        Padding(_heading(hostpath), (1, 0, 0, 1)),
        *(Group(Padding(Text(title, "dim"), (1, 0, 0, 1)), block) for title, block in blocks if block is not None),
        Padding(Text(remarks, "yellow"), (1, 0, 1, 1)) if remarks else Text(),
    )


def _heading(hostpath: Hostpath) -> Text:
    base = hostpath.spec.base
    path = f"executor {base.executor}, transport {base.transport or ('shm' if base.executor == 'mp' else 'inproc')}"
    path += f", wait {base.wait}" if base.wait != "auto" else ""
    path += f", {base.workers} workers" if base.workers > 1 else ""
    model = "a model that takes no time" if base.model == "sim" else base.model
    warm = f"{base.warmup} to warm up" if base.warmup else "no warm-up"
    return Text.assemble(
        ("host path of a steady decode step", "bold"),
        f"  {path}, {model}\n",
        (f"{counted(base.repeats, 'repeat')} of {hostpath.spec.steps} steps, {warm}, interleaved; ", "dim"),
        ("forward and sample excluded", "dim"),
    )


def _table() -> Table:
    return FoldingTable(box=SIMPLE_HEAD, show_edge=False, padding=(0, 1))


def _grid(cells: Sequence[HostCell], shown: Callable[[HostCell], str]) -> Table:
    """A row for each batch and context, a column for each codec."""
    codecs = list(dict.fromkeys(cell.codec for cell in cells))
    by_place = {(cell.batch, cell.context, cell.codec): cell for cell in cells}
    table = _table()
    for name in ("batch", "context", *codecs):
        table.add_column(name, justify="right", overflow="fold")
    for batch, context in dict.fromkeys((cell.batch, cell.context) for cell in cells):
        row = [by_place[batch, context, codec] for codec in codecs]
        table.add_row(f"{batch:,}", f"{context:,}", *("skipped" if cell.skipped else shown(cell) for cell in row))
    return table


def _one_context(cells: Sequence[HostCell]) -> list[HostCell]:
    """The cells of each batch's first context: results don't depend on it."""
    first = {cell.batch: cell.context for cell in reversed(cells)}
    return [cell for cell in cells if cell.context == first[cell.batch]]


def _at_which(cells: Sequence[HostCell]) -> str:
    """What the heading of a table of such cells adds where there are others."""
    return "" if len(_one_context(cells)) == len(cells) else "; the context has no part in them, so one of each batch"


def _growth_table(growth: Sequence[Growth]) -> Table | None:
    """Growth of one kind: with the batch, or with the context."""
    if not growth:
        return None
    by_batch = growth[0].us_per_request is not None
    table = _table()
    table.add_column("codec", no_wrap=True)
    for name in ("context", "batches") if by_batch else ("batch", "contexts"):
        table.add_column(name, justify="right")
    table.add_column("ratio", justify="right", no_wrap=True)
    if by_batch:
        table.add_column("µs for each\nrequest added", justify="right")
    table.add_column("host time", overflow="fold", style="dim")
    for one in growth:
        added = [] if one.us_per_request is None else [figure(one.us_per_request)]
        ratio = f"×{times(one.ratio.ratio)} {interval(one.ratio)}"
        verdict = _VERDICTS.get(one.ratio.verdict, one.ratio.verdict)
        table.add_row(one.codec, f"{one.at:,}", f"{one.first:,} … {one.last:,}", ratio, *added, verdict)
    return table


def _phases_table(cells: Sequence[HostCell]) -> Table:
    """A block for each batch and context, a line for each codec."""
    table = FoldingTable(box=SIMPLE_HEAD, show_edge=False, padding=0)
    table.add_column("codec", overflow="fold", min_width=10)
    for name in ("host", "p99", *COLUMNS, "ahead"):
        table.add_column(name, justify="right", no_wrap=True)
    for batch, context in dict.fromkeys((cell.batch, cell.context) for cell in cells):
        table.add_section()
        table.add_row(Text(f"{batch}×{context}", "dim"))
        for cell in cells:
            if (cell.batch, cell.context) == (batch, context) and not cell.skipped:
                sums = (sum(cell.phases_us[phase] for phase in phases) for phases in COLUMNS.values())
                columns = (cell.host_us.p50, cell.host_us.p99, *sums, cell.ahead_us)
                table.add_row(cell.codec, *map(_short, columns))
    return table


def _short(us: float) -> str:
    """At most five characters, so that twelve columns fit."""
    if us >= 99_950:
        return f"{us / 1000:,.0f}k"
    if us >= 9_995:
        return f"{us / 1000:.1f}k"
    return f"{us:.0f}" if us >= 9.95 else f"{us:.1f}"


def _remarks(hostpath: Hostpath) -> str:
    """What was left out, and what may have disturbed the rest."""
    environment = hostpath.environment
    warnings = [f"warning: {line}" for line in load_warning(environment.load_average, environment.cores)]
    return "\n".join((*_skipped(hostpath.cells), *warnings))


def _skipped(cells: Sequence[HostCell]) -> list[str]:
    reasons: dict[str, list[str]] = {}
    for cell in cells:
        if cell.skipped:
            reasons.setdefault(f"{cell.batch:,} × {cell.context:,} ({cell.skipped})", []).append(cell.codec)
    return [f"skipped: {', '.join(codecs)} at {where}" for where, codecs in reasons.items()]
