"""`serbench run`: measure one experiment. It does not know how that is done, only what is asked and shown."""

from typing import TYPE_CHECKING, Any

import click

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
    from serbench.cli.measure import Measured

EXAMPLES = """
\b
Examples:
  serbench run --model sim:step=2ms --codec pickle
  serbench run --model smollm2-135m --prompt "The capital of France is"
  serbench run --codec delta --num-prompts 32 --input-len 64:256 --json | python -m json.tool
"""


@click.command("run", cls=SectionCommand, short_help="Measure one experiment.", epilog=EXAMPLES)
@model_options
@click.option(
    "--codec",
    cls=SectionOption,
    section="Between scheduler and workers",
    default="delta",
    metavar="NAME",
    help="See `serbench codecs`.",
)
@path_options
@workload_options
@engine_options
@measuring_options
@output_options
def command(codec: str, **options: Any) -> None:
    """Serve requests with one codec and measure what each step costs: throughput, latency, phases, bytes, CPU time.

    The run is stored, repeat by repeat, and shown. Exits with 1 where payloads were refused.
    """
    from serbench.cli.measure import measure
    from serbench.refusals import check_refusals

    if "," in codec:
        raise click.UsageError(f"run measures one codec; `serbench compare --codec {codec}` measures several")
    choices = Choices(**options)
    measured = measure(experiments_of(choices, [codec]), choices)
    _show(measured, choices)
    check_refusals(measured.runs)


def _show(measured: "Measured", choices: Choices) -> None:
    from serbench.refusals import WARNING
    from serbench.report.answers import answers_report
    from serbench.report.console import output_console
    from serbench.report.run_tables import run_report
    from serbench.results import encode_run

    [run], [path] = measured.runs, measured.paths
    if choices.json:
        click.echo(encode_run(run), nl=False)
        return
    console = output_console()
    if choices.prompt:
        console.print(answers_report(measured.answers()))
    console.print(run_report(run))
    for warning in run.warnings:
        if warning not in (*measured.things[0].notes, WARNING):
            console.print(f" warning: {warning}", style="yellow", markup=False, soft_wrap=True)
    console.print(f" Stored in {path}", markup=False, soft_wrap=True)
