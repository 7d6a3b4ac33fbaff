"""`serbench sweep`: measure a grid. It does not know in which order that is done or how it survives interruptions."""

import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from serbench.cli import ranges
from serbench.cli.axes import axes_of, axis_options, chosen, experiment_maker
from serbench.cli.options import SectionCommand, SectionOption

if TYPE_CHECKING:
    from rich.console import Console

    from serbench.sweep.folder import SweepFolder
    from serbench.sweep.grid import Point
    from serbench.sweep.readiness import Readiness
    from serbench.sweep.runner import SweepRunner
    from serbench.sweep.table import SweepTable

EXAMPLES = """
\b
Examples:
  serbench sweep --model sim:step=1ms --codec pickle,delta --max-num-seqs 16,64 --input-len 128,512
  serbench sweep --grid grid.toml --repeats 8
\b
grid.toml, for instance:
  model = "sim:step=1ms"
  codec = ["pickle", "msgspec", "delta"]
  num-prompts = [16, 64]
"""


@click.command("sweep", cls=SectionCommand, short_help="Measure a grid; resumes where it was.", epilog=EXAMPLES)
@click.option(
    "--grid",
    cls=SectionOption,
    section="Sweep",
    metavar="FILE",
    help="Options from a TOML file, an axis as a list; those on the command line come first.",
)
@click.option(
    "--name",
    cls=SectionOption,
    section="Sweep",
    metavar="NAME",
    help="Of the sweep's folder, sweep-NAME below --output.  [default: made from the grid]",
)
@click.option(
    "--retry-failed", cls=SectionOption, section="Sweep", is_flag=True, help="Try points again that failed earlier."
)
@click.option(
    "--stay",
    cls=SectionOption,
    section="Sweep",
    type=ranges.PASSES,
    default=1,
    metavar="N",
    help="Repeats each time an engine is opened; more saves starts and warm-ups, fewer spread a point over the time.",
)
@axis_options
@click.pass_context
def command(
    ctx: click.Context, /, grid: str | None, name: str | None, retry_failed: bool, stay: int, **options: Any
) -> None:
    """Measure a grid: any option of `serbench run` may have several values, with commas in between.

    Repeats are interleaved over all points. Every repeat is on disk at once; the same command again goes on where it
    was, however it ended. A point that fails is noted and the others go on. Exits with 1 where a point failed, outputs
    are wrong or payloads were refused.
    """
    from serbench.environment import describe_environment
    from serbench.refusals import check_refusals
    from serbench.sweep.folder import opened
    from serbench.sweep.grid import span
    from serbench.sweep.manifest import digest_of

    values = chosen(ctx, options, grid)
    _check_names(values, name)
    points = span(axes_of(values), experiment_maker(values))
    path = Path(values["output"]) / f"sweep-{name or digest_of(points, stay)[:8]}"
    ready = _ready(points, path)
    with opened(path, points, stay, describe_environment()) as folder:
        if retry_failed:
            folder.forget_failures()
        table = _measure(folder, ready, quiet=values["quiet"])
        runs = list(folder.runs().values())
    _show(table, path, as_json=values["json"])
    check_refusals(runs)
    ctx.exit(0 if table.is_sound else 1)


def _check_names(values: Mapping[str, Any], name: str | None) -> None:
    """A codec or format that there isn't is a slip, not a point that fails; and a name must do for a folder."""
    from serbench.errors import ExperimentError
    from serbench_codecs.errors import UnknownCodecError
    from serbench_codecs.registry import get_codec, get_result_format

    if name is not None and not re.fullmatch(r"[A-Za-z0-9][A-Za-z0-9._-]*", name):
        raise ExperimentError(f"--name {name!r} can't name a folder: write letters, digits, '.', '_' and '-'")
    try:
        for codec in values["codec"]:
            get_codec(codec)
        for form in values["result_format"]:
            if form is not None:
                get_result_format(form)
    except UnknownCodecError as error:
        raise ExperimentError(str(error)) from error


def _ready(points: "Sequence[Point]", path: Path) -> "Readiness":
    """All points prepared; refuses a sweep none of whose points can be, before a folder is made for it."""
    from serbench.paths import kind_of
    from serbench.prepare import prepare
    from serbench.sweep.folder import MANIFEST, stored_runs
    from serbench.sweep.readiness import make_ready

    ready = make_ready(points, stored_runs(path, points), prepare)
    if not ready.prepared and kind_of(path / MANIFEST) is None:
        raise next(iter(ready.impossible.values()))
    return ready


def _measure(folder: "SweepFolder", ready: "Readiness", *, quiet: bool) -> "SweepTable":
    from serbench.errors import ResultsError
    from serbench.live import LiveEngine
    from serbench.report.console import error_console, tell
    from serbench.report.figures import counted
    from serbench.report.sweep_progress import SweepProgress
    from serbench.sweep.runner import SweepRunner
    from serbench.sweep.table import tabulate

    console, points = error_console(), folder.manifest.points
    total = sum(point.experiment.repeats for point in points)
    with SweepProgress(console, total, quiet=quiet) as progress:
        runner = SweepRunner(folder, ready.prepared, folder.runs(), open_engine=LiveEngine, watcher=progress)
        for i, error in ready.impossible.items():
            progress.failed(points[i].id, str(error))
        if not quiet:
            _tell_where_it_is(console, folder, runner, total)
        try:
            runner.run()
        except (KeyboardInterrupt, ResultsError):
            kept = "is kept" if runner.kept == 1 else "are kept"
            where = f"{kept} in {folder.path}; the same command goes on"
            tell(console, f"{runner.kept} of {counted(total, 'repeat')} {where}")
            raise
    return tabulate(folder.manifest, folder.runs(), ready.impossible)


def _tell_where_it_is(console: "Console", folder: "SweepFolder", runner: "SweepRunner", total: int) -> None:
    from serbench.report.console import tell
    from serbench.report.figures import counted

    points, failed = len(folder.manifest.points), len(folder.manifest.failures)
    repeats = folder.manifest.points[0].experiment.repeats
    there = f", {len(runner.already)} of {total} are there already" if runner.already else ""
    tell(console, f"{counted(points, 'point')} × {counted(repeats, 'repeat')} in {folder.path}{there}")
    if failed:
        tell(console, f"{counted(failed, 'point')} failed earlier; --retry-failed tries them again")


def _show(table: "SweepTable", path: Path, *, as_json: bool) -> None:
    from serbench.report.console import output_console
    from serbench.report.sweep_table import sweep_report
    from serbench.sweep.table import encode_table

    if as_json:
        click.echo(encode_table(table), nl=False)
        return
    console = output_console()
    console.print(sweep_report(table))
    console.print(f" Stored in {path}", style="dim", markup=False, soft_wrap=True)
