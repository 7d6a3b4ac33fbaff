"""Makes the consoles that reports are written to. It does not know what is written.

rich leaves out colours in a pipe and where NO_COLOR is set, and takes the width from the terminal or COLUMNS, else 80.
"""

import sys

from rich.console import Console
from rich.text import Text


def output_console() -> Console:
    """For what was asked for."""
    return Console(file=sys.stdout, highlight=False)


def error_console() -> Console:
    """For progress, notes and errors."""
    return Console(file=sys.stderr, highlight=False)


def tell(console: Console, line: str) -> None:
    """A line for the user beside the results; never broken, so that it can be searched for in a pipe."""
    console.print(Text(line, style="dim"), soft_wrap=True)
