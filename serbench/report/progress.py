"""Shows how far a measuring session is. It does not know what is measured.

It draws between passes only: a bar that redraws itself in a thread would take time from what is being timed.
"""

from types import TracebackType

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

from serbench.experiment import Experiment


class SilentProgress:
    """Shows nothing: for pipes and --quiet."""

    def __enter__(self) -> "SilentProgress":
        return self

    def __exit__(self, *_: object) -> None: ...

    def begin(self, passes: int) -> None: ...

    def turn(self, experiment: Experiment, group: int) -> None: ...

    def done(self) -> None: ...


class TerminalProgress:
    """A bar on ``console`` that is gone at the end."""

    def __init__(self, console: Console) -> None:
        self._progress = Progress(
            TextColumn("{task.description}"),
            BarColumn(bar_width=24),
            MofNCompleteColumn(),
            TimeRemainingColumn(),
            console=console,
            transient=True,
            auto_refresh=False,
        )
        self._task = self._progress.add_task("starting the engine", total=None)

    def __enter__(self) -> "TerminalProgress":
        self._progress.__enter__()
        self._progress.refresh()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._progress.__exit__(kind, error, traceback)

    def begin(self, passes: int) -> None:
        """Know how many passes there will be."""
        self._progress.update(self._task, total=passes)
        self._progress.refresh()

    def turn(self, experiment: Experiment, group: int) -> None:
        """Name the pass that begins now."""
        what = "warming up" if group < 0 else f"repeat {group + 1} of {experiment.repeats}"
        self._progress.update(self._task, description=f"{experiment.codec}: {what}")
        self._progress.refresh()

    def done(self) -> None:
        """Count the pass."""
        self._progress.advance(self._task)
        self._progress.refresh()
