"""`serbench record`: keep the plans of a run. It does not know how they are kept, only what is asked and told."""

from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import click
from click.core import ParameterSource

from serbench.cli.options import (
    Choices,
    SectionCommand,
    SectionOption,
    engine_options,
    experiments_of,
    measuring_options,
    model_options,
    path_options,
)
from serbench.cli.workload_options import workload_options

if TYPE_CHECKING:
    from serbench.recorder import Recorded

EXAMPLES = """
\b
Examples:
  serbench record --model sim --num-prompts 256 --output a.plans
  serbench record --dataset sharegpt.json --num-prompts 64 --output b.plans
  serbench replay a.plans --codec pickle,delta,columnar
"""

WITHOUT_MEANING: Final = (
    "codec",
    "result_format",
    "transport",
    "wait",
    "executor",
    "workers",
    "step_timeout",
    "repeats",
    "warmup",
)
"""Options of `serbench run` that plans don't depend on: they may be given, so that its command lines can be used."""


@click.command("record", cls=SectionCommand, short_help="Keep the plans of a run.", epilog=EXAMPLES)
@click.option(
    "--output",
    cls=SectionOption,
    section="Output",
    required=True,
    metavar="FILE",
    help="Where the plans are written; what is there is replaced.",
)
@click.option("--json", cls=SectionOption, section="Output", is_flag=True, help="Print what was recorded as JSON.")
@click.option("--quiet", "-q", cls=SectionOption, section="Output", is_flag=True, help="No notes.")
@model_options
@workload_options
@engine_options
@click.option(
    "--codec", cls=SectionOption, section="Without meaning here", metavar="NAME", help="Plans don't depend on it."
)
@path_options
@measuring_options
@click.pass_context
def command(ctx: click.Context, /, codec: str | None, **options: Any) -> None:
    """Serve requests once and keep the plan and the result of every step in a file, for `serbench replay`.

    Takes the options of `serbench run`. Plans depend on neither codec, transport nor executor: they are recorded in
    this process, where nothing is serialized.
    """
    from serbench.paths import refuse_overwriting
    from serbench.recorder import prepare_recording, record_plans
    from serbench.report.console import error_console, tell

    choices = Choices(**options)
    refuse_overwriting({"--output": choices.output}, {"--dataset": choices.dataset})
    prepared = prepare_recording(experiments_of(choices, ["none"])[0])
    if not choices.quiet:
        given = [name for name in WITHOUT_MEANING if ctx.get_parameter_source(name) is ParameterSource.COMMANDLINE]
        flags = ", ".join(f"--{name.replace('_', '-')}" for name in given)
        notes = [f"one pass is recorded in this process, so {flags} changed nothing"] if given else []
        for note in (*notes, *prepared.notes):
            tell(error_console(), note)
    recorded = record_plans(prepared, Path(choices.output))
    if not choices.quiet:
        for note in prepared.workload.notes():
            tell(error_console(), note)
    _show(recorded, choices)


def _show(recorded: "Recorded", choices: Choices) -> None:
    import msgspec

    from serbench.report.figures import counted, figure

    if choices.json:
        click.echo(msgspec.json.format(msgspec.json.encode(recorded), indent=2))
        return
    about, steps = recorded.about, max(1, recorded.num_steps)
    click.echo(
        f"{counted(recorded.num_steps, 'step')} of {counted(about.requests, 'request')} of {about.model} "
        f"({counted(about.input_tokens, 'token')} in, {about.output_tokens:,} out)\n"
        f"{recorded.num_bytes:,} bytes, {figure(recorded.num_bytes / steps)} a step, in {choices.output}"
    )
