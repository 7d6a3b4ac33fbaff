"""`serbench trace`: a run's steps as a picture in Perfetto. It does not know the format (serbench.trace_events)."""

from pathlib import Path

import click

EXAMPLES = """
\b
Examples:
  serbench run --model sim:step=2ms --trace
  serbench trace 2026 --steps 0:50        # a run by the beginning of its id
  serbench trace results/ID.json --output step.json
"""


@click.command("trace", short_help="Show a run's steps in Perfetto.", epilog=EXAMPLES)
@click.argument("run")
@click.option("--repeat", type=click.IntRange(min=0), default=0, metavar="N", help="Which repeat: its group.")
@click.option("--steps", default=None, metavar="N[:N]", help="Only these steps.  [default: all]")
@click.option(
    "--output",
    metavar="FILE",
    help="Where to; compressed if it ends in .gz.  [default: ID.trace.json.gz beside the run]",
)
@click.option("--results", default="results", metavar="DIR", help="Where RUN is looked for if it is an id.")
def command(run: str, repeat: int, steps: str | None, output: str | None, results: str) -> None:
    """Write the steps of RUN, a stored run's id or file, as a trace for https://ui.perfetto.dev or chrome://tracing:
    scheduler, transport and workers are tracks, phases are slices, on one clock.

    The run must have been measured with `serbench run --trace`, which keeps the time stamps.
    """
    import gzip

    from serbench.errors import ResultsError
    from serbench.files import write_atomically
    from serbench.paths import refuse_overwriting
    from serbench.results import find_run, read_run
    from serbench.spans import read_spans, spans_path
    from serbench.trace_events import StepRange, trace_document

    shown = StepRange() if steps is None else StepRange.parse(steps)
    path = find_run(run, Path(results))
    refuse_overwriting({"--output": output}, {"the run": path, "its time stamps": spans_path(path)})
    stored, spans = read_run(path), read_spans(path)
    if repeat not in spans:
        raise ResultsError(f"there is no repeat {repeat} of {stored.id}; there are {', '.join(map(str, spans))}")
    target = Path(output) if output else path.with_name(f"{path.stem}.trace.json.gz")
    document = trace_document(stored, repeat, spans[repeat], shown)
    try:
        write_atomically(target, gzip.compress(document, mtime=0) if target.suffix == ".gz" else document)
    except OSError as error:
        raise ResultsError(f"{target} can't be written: {error.strerror}") from error
    click.echo(f"Stored in {target}: open it in https://ui.perfetto.dev (it stays on this machine)")
