"""`serbench compare`: measure codecs interleaved, or compare stored runs. It does not know how ratios are judged."""

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import click
from click.core import ParameterSource

from serbench.cli import completing
from serbench.cli.against_itself import against_itself
from serbench.cli.options import (
    Choices,
    SectionCommand,
    SectionOption,
    engine_options,
    experiments_of,
    measuring_options,
    model_options,
    output_options,
    path_options,
)
from serbench.cli.workload_options import workload_options

if TYPE_CHECKING:
    from serbench.comparison import Comparison
    from serbench.results import Run

CODECS: Final = "pickle,cloudpickle,msgspec,delta,cached,columnar"

EXAMPLES = """
\b
Examples:
  serbench compare --model sim:step=2ms --num-prompts 256 --input-len 512 --output-len 64
  serbench compare --codec pickle,pickle:ids=packed --model sim
  serbench compare results/A.json results/B.json
  serbench compare --aa --codec delta --model sim:step=2ms
"""

_FOR_STORED_RUNS: Final = frozenset({"runs", "output", "json", "quiet"})


@click.command("compare", cls=SectionCommand, short_help="Tell codecs apart.", epilog=EXAMPLES)
@click.argument("runs", nargs=-1, metavar="[RUN]...", shell_complete=completing.files)
@model_options
@click.option(
    "--codec",
    "codecs",
    cls=SectionOption,
    section="Between scheduler and workers",
    default=CODECS,
    metavar="NAME,NAME,...",
    help="Two or more; the first is what the others are compared with.",
)
@path_options
@workload_options
@engine_options
@measuring_options
@click.option(
    "--aa",
    cls=SectionOption,
    section="Measuring",
    is_flag=True,
    help="Measure one codec (default: delta) against itself, 10 repeats each: what differs is noise.",
)
@output_options
@click.pass_context
def command(ctx: click.Context, /, runs: tuple[str, ...], codecs: str, aa: bool, **options: Any) -> None:
    """Compare codecs: each is measured in turn with the others, on the same prompts, and its ratio to the first is
    judged.

    With RUNs, which are files or ids of stored runs or folders of them, compares those and measures nothing. Refuses
    what can't be compared. Exits with 1 where outputs differ that must not or payloads were refused, and with --aa
    where two measurements in a row show a difference.
    """
    choices = Choices(**options)
    if aa and not runs:
        ctx.exit(against_itself(ctx, _one_codec(ctx, codecs), choices, lambda runs, found: _tell(runs, found, choices)))
    compared = _stored(ctx, runs, Path(choices.output)) if runs else _measured(codecs, choices)
    _show(compared, choices)


def _one_codec(ctx: click.Context, codecs: str) -> str:
    if ctx.get_parameter_source("codecs") is ParameterSource.DEFAULT:
        return "delta"
    [name, *more] = codecs.split(",")
    if more or not name.strip():
        raise click.UsageError(f"--aa measures one codec against itself, and --codec {codecs!r} does not name one")
    return name.strip()


def _measured(codecs: str, choices: Choices) -> "list[Run]":
    from serbench.cli.measure import measure

    names = [name.strip() for name in codecs.split(",") if name.strip()]
    if len(names) < 2:
        raise click.UsageError(f"--codec {codecs!r} names {len(names)}; a comparison needs two or more, as in {CODECS}")
    return measure(experiments_of(choices, names), choices).runs


def _stored(ctx: click.Context, names: Sequence[str], folder: Path) -> "list[Run]":
    from serbench.paths import kind_of

    for option in ctx.params:
        if option not in _FOR_STORED_RUNS and ctx.get_parameter_source(option) is ParameterSource.COMMANDLINE:
            flag = "--codec" if option == "codecs" else f"--{option.replace('_', '-')}"
            raise click.UsageError(f"stored runs are compared as they are, so {flag} means nothing here; leave it out")
    lone = len(names) == 1 and kind_of(Path(names[0])) != "folder"
    runs = [] if lone else [run for name in names for run in _named(name, folder)]
    if len(runs) < 2:
        raise click.UsageError(f"one run ({names[0]}) can't be compared; name two or more, or a folder of them")
    return runs


def _named(name: str, folder: Path) -> "list[Run]":
    """A run, or those of a folder with `serbench report`'s baseline first, if all of them can be compared."""
    from serbench.comparison import check_comparable
    from serbench.errors import ResultsError
    from serbench.paths import kind_of
    from serbench.report.console import error_console, tell
    from serbench.report.stored_runs import gather_runs
    from serbench.report.survey import rank
    from serbench.results import find_run, read_run

    if kind_of(Path(name)) != "folder":
        return [read_run(find_run(name, folder))]
    found = gather_runs([name], folder)
    for line in found.left_out:
        tell(error_console(), f"left out: {line}")
    try:
        for other in found.runs[1:]:
            check_comparable(found.runs[0], other)
    except ResultsError as error:
        raise ResultsError(f"{error}; `serbench report {name}` compares those that can be") from error
    return sorted(found.runs, key=lambda run: rank(run.spec.codec))


def _show(runs: "Sequence[Run]", choices: Choices) -> None:
    from serbench.comparison import compare_runs
    from serbench.errors import OutputsDifferError
    from serbench.report.console import error_console, tell

    try:
        comparison = compare_runs(runs)
    except OutputsDifferError:
        tell(error_console(), f"the runs: {', '.join(run.id for run in runs)}")
        raise
    _tell(runs, comparison, choices)


def _tell(runs: "Sequence[Run]", comparison: "Comparison", choices: Choices) -> None:
    from serbench.comparison import encode_comparison, run_warnings
    from serbench.refusals import check_refusals
    from serbench.report.comparison_table import comparison_report
    from serbench.report.console import output_console

    if choices.json:
        click.echo(encode_comparison(comparison), nl=False)
    else:
        console = output_console()
        console.print(comparison_report(comparison, runs))
        for line in run_warnings(runs):
            console.print(f" warning: {line}", style="yellow", markup=False, soft_wrap=True)
        console.print(f" Runs: {', '.join(run.id for run in runs)}", style="dim", markup=False, soft_wrap=True)
    check_refusals(runs)
