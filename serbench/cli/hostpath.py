"""`serbench hostpath`: what a steady step costs beside the model. It does not know how that is measured."""

from typing import TYPE_CHECKING, Any, Final

import click

from serbench.cli import ranges
from serbench.cli.comma_separated import Names, Numbers
from serbench.cli.options import SectionCommand, SectionOption, measuring_options, path_options

if TYPE_CHECKING:
    from serbench.hostpath import Hostpath, Shape

CODECS: Final = "pickle,msgspec,delta,cached,columnar"
BATCHES: Final = (1, 16, 64, 256, 1024, 4096)
CONTEXTS: Final = (128, 512, 2048, 8192, 32768)
BATCH, CONTEXT = 64, 512
"""What stays the same while the other varies."""

EXAMPLES = """
\b
Examples:
  serbench hostpath
  serbench hostpath --codec columnar --batch 16,256,1024
  serbench hostpath --codec none,columnar --executor inproc --batch 64 --context 128,32768 --json
"""


@click.command("hostpath", cls=SectionCommand, short_help="Measure steps without the model.", epilog=EXAMPLES)
@click.option(
    "--codec",
    "codecs",
    cls=SectionOption,
    section="What is measured",
    type=Names(),
    default=CODECS,
    help="Those that send the whole state sit out where it is over 4 M ids.",
)
@click.option(
    "--batch",
    "batches",
    cls=SectionOption,
    section="What is measured",
    type=Numbers(ranges.ROWS),
    help=f"Requests that decode.  [default: {','.join(map(str, BATCHES))}; {BATCH} with --context]",
)
@click.option(
    "--context",
    "contexts",
    cls=SectionOption,
    section="What is measured",
    type=Numbers(ranges.CONTEXTS),
    help=f"Tokens of each.  [default: {CONTEXT}, and {','.join(map(str, CONTEXTS))} at batch {BATCH}]",
)
@click.option(
    "--steps",
    cls=SectionOption,
    section="What is measured",
    type=ranges.DECODE_STEPS,
    metavar="N",
    default=128,
    help="Decode steps a repeat; fewer where a large state is sent whole.",
)
@path_options
@measuring_options
@click.option("--json", cls=SectionOption, section="Output", is_flag=True, help="Print the document on stdout.")
@click.option("--quiet", "-q", cls=SectionOption, section="Output", is_flag=True, help="No progress.")
def command(
    codecs: tuple[str, ...],
    batches: tuple[int, ...] | None,
    contexts: tuple[int, ...] | None,
    steps: int,
    json: bool,
    quiet: bool,
    **options: Any,
) -> None:
    """Measure the host's part of a steady decode step, phase by phase, on a simulated model that takes no time.

    Everything from scheduling to taking in the result counts; the model's own phases, forward and sample, don't. With
    --batch and --context each batch is measured at each context.
    """
    from serbench.cli.simulated import path_experiment, progress_shown
    from serbench.hostpath import HostpathSpec, encode_hostpath
    from serbench.hostpath_cells import measure_hostpath
    from serbench.report.console import error_console, output_console, tell
    from serbench.report.hostpath_tables import hostpath_report

    spec = HostpathSpec(codecs=codecs, shapes=shapes_of(batches, contexts), steps=steps, base=path_experiment(options))

    def show(hostpath: "Hostpath") -> None:
        if json:
            click.echo(encode_hostpath(hostpath), nl=False)
        else:
            output_console().print(hostpath_report(hostpath))

    def show_what_there_is(hostpath: "Hostpath") -> None:
        show(hostpath)
        done = min(len(cell.passes) for cell in hostpath.cells if not cell.skipped)
        tell(error_console(), f"ended early: {done} of {spec.base.repeats} repeats are shown")

    with progress_shown(quiet) as progress:
        hostpath = measure_hostpath(spec, progress, keep=show_what_there_is)
    show(hostpath)


def shapes_of(batches: tuple[int, ...] | None, contexts: tuple[int, ...] | None) -> "tuple[Shape, ...]":
    """Each batch at each context; by default one of the two varies while the other stays the same."""
    from serbench.hostpath import Shape

    if batches is None and contexts is None:
        over_batches = [Shape(batch, CONTEXT) for batch in BATCHES]
        over_contexts = [Shape(BATCH, context) for context in CONTEXTS if context != CONTEXT]
        return (*over_batches, *over_contexts)
    return tuple(Shape(batch, context) for context in contexts or (CONTEXT,) for batch in batches or (BATCH,))
