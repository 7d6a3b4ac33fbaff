"""Measures experiments for a command: notes, progress, storing, and what is said when it ends early.

It does not know what a command shows of the results.
"""

from collections.abc import Sequence
from pathlib import Path

from rich.console import Console

from serbench.cli.options import Choices
from serbench.experiment import Experiment
from serbench.harness import Harness
from serbench.live import LiveEngine
from serbench.prepare import prepare
from serbench.prepared import Prepared
from serbench.report.console import error_console, tell
from serbench.report.figures import counted
from serbench.report.progress import SilentProgress, TerminalProgress
from serbench.results import Run, check_writable, store_run
from serbench.spans import SpanStore
from serbench_engine.models.simulated_spec import is_simulated


class Measured:
    """Runs in the order of the experiments, each with its file and what it was prepared from."""

    def __init__(self, things: Sequence[Prepared], harness: Harness) -> None:
        self.things = things
        self.harness = harness
        self.runs: list[Run] = [recorder.run() for recorder in harness.recorders]
        self.paths: list[Path] = [recorder.path for recorder in harness.recorders if recorder.path is not None]

    def answers(self, thing: int = 0) -> list[tuple[str, str, str]]:
        """Prompt, answer and why it ended, of the requests of a thing's last repeat."""
        prepared = self.things[thing]
        requests = prepared.workload.requests(self.runs[thing].repeats[-1].group)
        return [
            (request.prompt or "", prepared.text.decode(end.output_token_ids.tolist()), end.finish_reason)
            for request, end in zip(requests, self.harness.last_finished[thing], strict=True)
        ]


def measure(experiments: Sequence[Experiment], choices: Choices) -> Measured:
    """Prepare, measure and store.

    Raises:
        SerbenchError, EngineError, KeyboardInterrupt: as the harness does; where what was measured is has been told
        then.
    """
    folder = Path(choices.output)
    console = error_console()
    things = prepare(experiments)
    check_writable(folder)
    if not choices.quiet:
        if choices.device == "auto" and not all(is_simulated(thing.experiment.model) for thing in things):
            tell(console, f"--device auto is {things[0].experiment.device}")
        for note in dict.fromkeys(note for thing in things for note in thing.notes):
            tell(console, note)
    show = console.is_terminal and not choices.quiet
    with TerminalProgress(console) if show else SilentProgress() as progress:
        harness = Harness(
            things,
            open_engine=LiveEngine,
            store=lambda run: store_run(run, folder),
            watcher=progress,
            keep_spans=SpanStore().keep if choices.trace else None,
        )
        try:
            harness.run()
        except BaseException:
            _tell_what_is_kept(console, harness)
            raise
    return Measured(things, harness)


def _tell_what_is_kept(console: Console, harness: Harness) -> None:
    for recorder in harness.recorders:
        if recorder.path is not None:
            done, asked = len(recorder.repeats), recorder.experiment.repeats
            kept = "is kept" if done == 1 else "are kept"
            repeats = f"{counted(asked, 'repeat')} of {recorder.experiment.codec}"
            tell(console, f"{done} of {repeats} {kept} in {recorder.path}")
