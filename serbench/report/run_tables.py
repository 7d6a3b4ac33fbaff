"""The tables of one run, for a terminal of 80 columns. It does not know how figures were taken."""

from collections.abc import Callable, Sequence
from statistics import median
from typing import Final

from rich.box import SIMPLE_HEAD
from rich.console import Group, RenderableType
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from serbench.report.figures import counted, figure, seconds, share
from serbench.report.folding_table import FoldingTable
from serbench.report.heading import run_heading, steps_words
from serbench.results import Bytes, Latency, Repeat, Run
from serbench.workload.spec import Arrivals

PHASES_NOTE: Final = (
    "mean, share: over all steps of all repeats. p50, p99: over each repeat's steps, then the median over the repeats. "
    "A few long steps can lift a mean above its p99."
)
BYTES_NOTE: Final = (
    "Over each repeat's steps, then the median over the repeats. The mean holds admissions with their whole prompts; "
    "the p50 is the median step, a steady decode step unless most steps carry prompts."
)


def run_report(run: Run) -> RenderableType:
    """All that a person wants to see of a run with at least one repeat."""
    tables = (
        (rates_table(run), ""),
        (latency_table(run.repeats), "Over each repeat's requests, then the median over the repeats."),
        (phases_table(run.repeats), PHASES_NOTE),
        (bytes_table(run.repeats), BYTES_NOTE),
    )
    return Group(
        Padding(run_heading(run), (1, 0, 0, 1)),
        *(_noted(table, note) for table, note in tables),
        Padding(footing(run), (1, 0, 1, 1)),
    )


def _noted(table: Table, note: str) -> RenderableType:
    below = [Padding(Text(note, style="dim"), (0, 0, 0, 1))] if note else []
    return Padding(Group(table, *below), (1, 0, 0, 0))


def rates_table(run: Run) -> Table:
    """Throughput: the median of the repeats, and every repeat's own figure."""
    table = _table("throughput", "median", "each repeat")
    table.columns[2].justify = "left"
    for name in ("output_tokens_per_s", "total_tokens_per_s", "requests_per_s"):
        values = [getattr(repeat, name) for repeat in run.repeats]
        label = name.removesuffix("_per_s").replace("_", " ")
        table.add_row(f"{label}/s", figure(median(values)), Text("  ".join(map(figure, values)), "dim"))
    return table


def latency_table(repeats: Sequence[Repeat]) -> Table:
    """Medians over the repeats of each repeat's own percentiles."""
    table = _table("latency", "p50", "p99", "mean")
    kinds: tuple[tuple[str, Callable[[Repeat], Latency | None]], ...] = (
        ("first token (ttft)", lambda repeat: repeat.latency_s.ttft),
        ("each token after (tpot)", lambda repeat: repeat.latency_s.tpot),
        ("whole request (e2e)", lambda repeat: repeat.latency_s.e2e),
    )
    for label, of in kinds:
        known = [latency for repeat in repeats if (latency := of(repeat)) is not None]
        if known:
            table.add_row(
                label, *(seconds(median(getattr(one, name) for one in known)) for name in ("p50", "p99", "mean"))
            )
    return table


def phases_table(repeats: Sequence[Repeat]) -> Table:
    """Where a step's time goes, as PHASES_NOTE says."""
    table = _table("phase of a step", "mean µs", "p50 µs", "p99 µs", "share")
    whole = sum(phase.total for repeat in repeats for phase in repeat.phases_us.values())
    host = sum(repeat.host_us_per_step * repeat.steps for repeat in repeats)
    steps = max(1, sum(repeat.steps for repeat in repeats))
    for name in repeats[0].phases_us:
        phases = [repeat.phases_us[name] for repeat in repeats]
        total = sum(phase.total for phase in phases)
        percentiles = (figure(median(getattr(phase, which) for phase in phases)) for which in ("p50", "p99"))
        table.add_row(name, figure(total / steps), *percentiles, share(total, whole))
    table.add_section()
    table.add_row("the whole step", figure(whole / steps), "", "", share(whole, whole))
    table.add_row("host: without forward, sample", figure(host / steps), "", "", share(host, whole))
    return table


def bytes_table(repeats: Sequence[Repeat]) -> Table:
    """Payload bytes, as BYTES_NOTE says."""
    table = _table("bytes of a step", "p50", "mean", "max", "all steps")
    for label, sizes in (
        ("plan", [repeat.payload_bytes.plan for repeat in repeats]),
        ("result", [repeat.payload_bytes.result for repeat in repeats]),
    ):
        table.add_row(label, *(figure(_median(sizes, name)) for name in ("p50", "mean", "max", "total")))
    return table


def _median(sizes: Sequence[Bytes], name: str) -> float:
    return float(median(getattr(one, name) for one in sizes))


def footing(run: Run) -> Text:
    """CPU time beside wall time, and what happened on the way; medians over the repeats."""
    repeats = run.repeats
    scheduler, workers, wall, preemptions = (
        median(values)
        for values in zip(
            *((one.cpu_s.scheduler, one.cpu_s.workers, one.wall_s, one.preemptions) for one in repeats),
            strict=True,
        )
    )
    return Text(
        f"CPU seconds a repeat: {figure(scheduler)} scheduler, {figure(workers)} workers, in {figure(wall)} s of wall "
        f"time\n{steps_words([run])} and {counted(preemptions, 'preemption')} a repeat{_arrivals(run)}"
    )


def _arrivals(run: Run) -> str:
    """How many requests came a second, and how late they were handed over; nothing where all came at once."""
    figures = [repeat.arrivals for repeat in run.repeats if repeat.arrivals is not None]
    if not figures or run.spec.arrivals == Arrivals():
        return ""
    rates = [(one.offered_per_s, one.achieved_per_s) for one in figures if one.offered_per_s and one.achieved_per_s]
    offered, achieved = (figure(median(values)) for values in zip(*rates, strict=True)) if rates else ("", "")
    came = (
        f"{offered} requests/s were to arrive, {achieved} were handed over, " if rates else "requests were handed over "
    )
    late = (seconds(median(getattr(one.late_s, name) for one in figures)) for name in ("p50", "p99"))
    return f"\n{came}{' (p50) and '.join(late)} (p99) after they arrived; latencies count that"


def _table(first: str, *others: str) -> Table:
    table = FoldingTable(box=SIMPLE_HEAD, pad_edge=True, padding=(0, 1), show_edge=False, title=None)
    table.add_column(first, min_width=25, no_wrap=True)
    for name in others:
        table.add_column(name, justify="right", min_width=9)
    return table
