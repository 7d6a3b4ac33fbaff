"""Makes the consoles that reports are written to. It does not know what is written.

rich leaves out colours in a pipe and where NO_COLOR is set, and takes the width from the terminal or COLUMNS, else 80.
A width that no terminal has (COLUMNS=0, as some tools set it) is taken for none.
"""

import sys
from collections.abc import Iterable
from typing import Final, TextIO

from rich.console import Console, ConsoleOptions, RenderableType
from rich.segment import Segment
from rich.text import Text

from serbench.report.harmless import harmless

WITHOUT_TERMINAL: Final = 80
WIDEST: Final = 10_000


class HarmlessConsole(Console):
    """A console whose text can't command the terminal; styles and rich's own cursor movements are no text."""

    def render(self, renderable: RenderableType, options: ConsoleOptions | None = None) -> Iterable[Segment]:
        """Render as ever."""
        for text, style, control in super().render(renderable, options):
            yield Segment(text if control else harmless(text), style, control)


def output_console() -> Console:
    """For what was asked for."""
    return _console(sys.stdout)


def error_console() -> Console:
    """For progress, notes and errors."""
    return _console(sys.stderr)


def _console(file: TextIO) -> Console:
    console = HarmlessConsole(file=file, highlight=False)
    if not 0 < console.width <= WIDEST:
        console.width = WITHOUT_TERMINAL
    return console


def tell(console: Console, line: str) -> None:
    """A line for the user beside the results; never broken, so that it can be searched for in a pipe."""
    console.print(Text(line, style="dim"), soft_wrap=True)
