"""Shows what a file of requests holds, with small histograms. It does not know how that was found out."""

from collections.abc import Sequence

from rich.box import SIMPLE_HEAD
from rich.console import Group, RenderableType
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from serbench.report.figures import counted, figure, share
from serbench.report.folding_table import FoldingTable
from serbench.workload.describe import Bin, Description, LengthSummary, Rate
from serbench.workload.formats import FORMATS
from serbench.workload.rows import line_numbers
from serbench.workload.spec import DEFAULT_OUTPUT_LEN

BAR = 24


def workload_report(found: Description) -> RenderableType:
    """All of it, for a terminal of 60 columns or more."""
    parts: list[RenderableType] = [Padding(_heading(found), (1, 0, 0, 1))]
    for name, lengths in (("input", found.input), ("output", found.output)):
        if lengths is not None:
            parts.append(Padding(_histogram(f"{name} {_unit(found)}", lengths), (1, 0, 0, 0)))
    if found.rate is not None:
        parts.append(Padding(_over_time(found.rate), (1, 0, 0, 0)))
    footing = _footing(found)
    return Group(*parts, *([Padding(footing, (1, 0, 1, 1))] if footing else []))


def _heading(found: Description) -> Text:
    return Text.assemble(
        (found.path, "bold"),
        f"\n{FORMATS[found.format].what}: {counted(found.usable, 'request')}\n",
        (f"lengths in {found.tokens}", "dim"),
    )


def _unit(found: Description) -> str:
    return "bytes" if found.tokens.startswith("bytes") else "tokens"


def _histogram(name: str, lengths: LengthSummary) -> RenderableType:
    summary = (
        f" {figure(lengths.min)} to {figure(lengths.max)}, median {figure(lengths.p50)}, mean {figure(lengths.mean)}, "
        f"p99 {figure(lengths.p99)}, {figure(lengths.total)} in all"
    )
    labels = [f"{figure(one.low)} – {figure(one.high)}" for one in lengths.histogram]
    counts = [figure(one.rows) for one in lengths.histogram]
    return Group(_bars(name, "requests", labels, counts, lengths.histogram), Text(summary, "dim"))


def _over_time(rate: Rate) -> RenderableType:
    width_s = rate.span_s / len(rate.slices)
    labels = [f"{figure(one.low)} – {figure(one.high)}" for one in rate.slices]
    rates = [figure(one.rows / width_s) for one in rate.slices]
    mean, peak = figure(rate.mean_per_s), figure(rate.peak_per_s)
    summary = f" {figure(rate.span_s)} s, {mean} requests/s, {peak}/s in the fullest slice"
    return Group(_bars("time, s", "requests/s", labels, rates, rate.slices), Text(summary, "dim"))


def _bars(name: str, unit: str, labels: Sequence[str], figures: Sequence[str], bins: Sequence[Bin]) -> Table:
    table = FoldingTable(box=SIMPLE_HEAD, show_edge=False)
    table.add_column(name, no_wrap=True)
    table.add_column(unit, justify="right", no_wrap=True)
    table.add_column("", no_wrap=True)
    most = max(one.rows for one in bins)
    for label, number, one in zip(labels, figures, bins, strict=True):
        length = max(round(BAR * one.rows / most), 1 if one.rows else 0)
        table.add_row(label, number, Text("█" * length, "cyan"))
    return table


def _footing(found: Description) -> Text:
    lines = []
    without = found.usable - (found.output.rows if found.output else 0)
    if without:
        lines.append(
            f"{counted(without, 'request')} without an output length: {DEFAULT_OUTPUT_LEN} tokens, or --output-len"
        )
    if found.rate is None:
        lines.append("no times: requests arrive together, or at a --request-rate")
    if found.shared_prefix is not None:
        prefix = found.shared_prefix
        known = f"{share(prefix.share, 1)} of the prompt {_unit(found)}"
        lines.append(f"{known} are beginnings seen before, in blocks of {prefix.block_tokens}")
    told = [Text(line) for line in lines]
    if found.left_out:
        rows = sum(one.rows for one in found.left_out)
        reasons = "; ".join(
            f"{one.rows:,} {one.reason} ({line_numbers(one.lines, one.rows)})" for one in found.left_out
        )
        told.append(Text(f"{counted(rows, 'row')} left out: {reasons}", "yellow"))
    return Text("\n").join(told)
