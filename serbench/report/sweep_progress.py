"""Shows how far a sweep is and how long the rest takes. It does not know how that is estimated.

It draws between passes only: a bar that redraws itself in a thread would take time from what is being timed.
"""

from types import TracebackType

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn

from serbench.report.console import tell


class SweepProgress:
    """A bar on a terminal that is gone at the end, nothing in a pipe; failures are told in both, unless ``quiet``."""

    def __init__(self, console: Console, total: int, *, quiet: bool) -> None:
        self._console = console
        self._total = total
        self._quiet = quiet
        self._progress = Progress(
            TextColumn("{task.description}"),
            BarColumn(bar_width=20),
            MofNCompleteColumn(),
            TextColumn("{task.fields[left]}"),
            console=console,
            transient=True,
            auto_refresh=False,
            disable=quiet or not console.is_terminal,
        )
        self._task = self._progress.add_task("starting", total=total, left="")

    def __enter__(self) -> "SweepProgress":
        self._progress.__enter__()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._progress.__exit__(kind, error, traceback)

    def at(self, point: str, group: int, *, left: int, left_s: float | None) -> None:
        """Name the pass that begins now, and the time left."""
        what = "warming up" if group < 0 else f"repeat {group + 1}"
        time_left = "" if left_s is None else f"about {duration(left_s)} left"
        self._progress.update(self._task, description=f"{point}: {what}", completed=self._total - left, left=time_left)
        self._progress.refresh()

    def failed(self, point: str, reason: str) -> None:
        """Say at once what goes wrong."""
        if not self._quiet:
            tell(self._console, f"{point} failed and is left out from here on: {reason}")


def duration(seconds: float) -> str:
    """``40 s``, ``12 min``, ``3 h 05 min``."""
    if seconds < 90:
        return f"{max(1, round(seconds))} s"
    minutes = round(seconds / 60)
    return f"{minutes} min" if minutes < 90 else f"{minutes // 60} h {minutes % 60:02d} min"
