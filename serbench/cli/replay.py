"""`serbench replay`: recorded plans through codecs and transports. It does not know how they are replayed."""

from typing import TYPE_CHECKING, Any, Final

import click

from serbench.cli import ranges
from serbench.cli.comma_separated import Names
from serbench.cli.options import SectionCommand, SectionOption, replaying_options
from serbench.cli.simulated import progress_shown

if TYPE_CHECKING:
    from serbench.replay import Replay

EXAMPLES = """
\b
Examples:
  serbench replay a.plans
  serbench replay a.plans --codec none,columnar --transport inproc
  serbench replay a.plans --codec delta --transport pipe,shm,zmq --json
"""

CODECS: Final = "pickle,cloudpickle,msgspec,delta,cached,columnar"
PATH: Final = "Between scheduler and worker"


@click.command("replay", cls=SectionCommand, short_help="Send recorded plans again.", epilog=EXAMPLES)
@click.argument("file")
@click.option("--codec", "codecs", cls=SectionOption, section=PATH, type=Names(), default=CODECS, help="One or more.")
@click.option(
    "--transport",
    "transports",
    cls=SectionOption,
    section=PATH,
    type=Names(),
    default="shm",
    help="One or more of inproc, pipe, shm and zmq; all but inproc lead to another process.",
)
@click.option(
    "--result-format",
    cls=SectionOption,
    section=PATH,
    metavar="NAME",
    help="Encoding of results.  [default: the codec's]",
)
@click.option(
    "--wait",
    cls=SectionOption,
    section=PATH,
    type=click.Choice(["auto", "spin", "block"]),
    default="auto",
    help="How payloads are waited for.",
)
@click.option(
    "--step-timeout",
    "step_timeout_s",
    cls=SectionOption,
    section=PATH,
    type=ranges.SECONDS,
    default=120.0,
    metavar="SECONDS",
    help="A worker that takes longer for a step counts as hung.",
)
@click.option(
    "--steps", cls=SectionOption, section="Measuring", type=ranges.STEPS, metavar="N", help="The first N only."
)
@click.option(
    "--check-every",
    cls=SectionOption,
    section="Measuring",
    type=ranges.STEPS,
    default=64,
    metavar="N",
    help="Steps between two digests of the worker's table; counts and newest ids are compared in each.",
)
@replaying_options
@click.option("--json", cls=SectionOption, section="Output", is_flag=True, help="Print the document on stdout.")
@click.option("--quiet", "-q", cls=SectionOption, section="Output", is_flag=True, help="No progress.")
def command(
    file: str, codecs: tuple[str, ...], transports: tuple[str, ...], json: bool, quiet: bool, **how: Any
) -> None:
    """Send the plans of FILE, and their results back, through each codec and transport in turn, with no model.

    What is measured is the path from a plan to the worker's table, and from a result back. The worker's table is held
    to the scheduler's.
    """
    from serbench.replay import ReplaySpec, encode_replay, replay_plans
    from serbench.report.console import error_console, output_console, tell
    from serbench.report.replay_table import replay_report

    def show(replay: "Replay") -> None:
        if json:
            click.echo(encode_replay(replay), nl=False)
        else:
            output_console().print(replay_report(replay))

    spec = ReplaySpec(path=file, codecs=codecs, transports=transports, **how)

    def show_what_there_is(replay: "Replay") -> None:
        show(replay)
        done = min(len(row.passes) for row in replay.rows)
        tell(error_console(), f"ended early: {done} of {spec.repeats} repeats are shown")

    with progress_shown(quiet) as progress:
        replay = replay_plans(spec, progress, keep=show_what_there_is)
    show(replay)
