"""The table of a replay, one block a codec and transport, for a terminal of 80 columns. It judges nothing itself."""

from statistics import median
from typing import Final

from rich.box import SIMPLE_HEAD
from rich.console import Group, RenderableType
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from serbench.noise import load_warning
from serbench.replay import Replay, ReplayRow
from serbench.report.comparison_table import RATIO_NOTE, STYLES, interval
from serbench.report.figures import counted, figure, times
from serbench.report.folding_table import FoldingTable
from serbench.stats import Finding

STEPS_NOTE: Final = """steps/s: of the replay as a whole, with the checks of every step and of whole rows,
which take no part in the path's µs"""


def replay_report(replay: Replay) -> RenderableType:
    """What was replayed, the table, and what would settle verdicts that are none."""
    advice: dict[str, list[str]] = {}
    for row in replay.rows:
        if row.path is not None and row.path.advice:
            advice.setdefault(row.path.advice, []).append(row.label)
    return Group(
        Padding(_heading(replay), (1, 0, 1, 1)),
        replay_table(replay),
        Padding(Text(f"{RATIO_NOTE}\n{STEPS_NOTE}", style="dim"), (1, 0, 0, 1)),
        *(Padding(Text(f"{', '.join(labels)}: {line}"), (1, 0, 0, 1)) for line, labels in advice.items()),
        *(Padding(Text(f"warning: {line}", "yellow"), (1, 0, 0, 1)) for line in _warnings(replay)),
        "",
    )


def _warnings(replay: Replay) -> list[str]:
    return load_warning(replay.environment.load_average, replay.environment.cores)


def _heading(replay: Replay) -> Text:
    about, spec = replay.about, replay.spec
    warm = f"{spec.warmup} to warm up" if spec.warmup else "no warm-up"
    where = f"transport {', '.join(spec.transports)}"
    digests = counted(replay.digests_a_pass, "digest")
    return Text.assemble(
        (f"{counted(replay.num_steps, 'step')} of {spec.path}", "bold"),
        f"  {about.model}, {counted(about.requests, 'request')}, {where}\n",
        (f"{counted(spec.repeats, 'repeat')}, {warm}, interleaved; ", "dim"),
        (f"tables equal in every step, by {digests} of whole rows a repeat\n", "dim"),
        ("× is the ratio to the first, with its 95 % interval and verdict", "dim"),
    )


def replay_table(replay: Replay) -> Table:
    """Each row's path, its parts, bytes, and how fast the whole replay went."""
    table = FoldingTable(box=SIMPLE_HEAD, show_edge=False, padding=(0, 1), leading=1)
    table.add_column("codec", overflow="fold", min_width=10)
    for name in ("path µs\na step", "path µs\nwithout adapt"):
        table.add_column(name, justify="right", min_width=13)
    table.add_column("of it, µs", justify="right", no_wrap=True)
    table.add_column("bytes\na step", justify="right", overflow="fold")
    for row in replay.rows:
        table.add_row(
            Text(f"{row.label}\n{figure(_steps_per_s(row, replay))} steps/s"),
            _judged(row.path_us, row.path),
            _judged(row.path_us - row.phases_us["adapt"], row.path_without_adapt),
            Text("\n".join(f"{name} {figure(row.phases_us[name])}" for name in ("encode", "decode", "adapt", "apply"))),
            Text(f"{figure(row.plan_bytes)} plan\n{figure(row.result_bytes)} result"),
        )
    return table


def _steps_per_s(row: ReplayRow, replay: Replay) -> float:
    """As replayed: with what isn't part of the path, such as the checks."""
    return replay.num_steps / median(one.wall_s for one in row.passes)


def _judged(us: float, finding: Finding | None) -> Text:
    block = Text(figure(us), style="bold")
    if finding is not None:
        block.append(f" ×{times(finding.ratio)}\n{interval(finding)}\n", style="not bold")
        block.append(finding.verdict, style=f"not bold {STYLES.get(finding.verdict, '')}")
    return block
