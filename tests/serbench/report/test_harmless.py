"""Tests that no text commands the terminal it is shown in. They do not know where text comes from."""

import io

import pytest
from rich.control import Control
from rich.table import Table
from rich.text import Text

from serbench.report.console import HarmlessConsole, tell
from serbench.report.harmless import harmless

HOSTILE = "\x1b[2Jname\x9b31m\x07\x1b]8;;http://x\x1b\\ \r\u202edesrever"


def test_what_terminals_obey_is_replaced_and_the_rest_is_kept() -> None:
    assert harmless("a\x1b[31m\x00\x7f\x9b\u202e") == "a\ufffd[31m" + 4 * "\ufffd"
    assert harmless("été µ ×\tline\nnext …") == "été µ ×\tline\nnext …"


@pytest.mark.parametrize("width", [80, 10])
def test_a_console_keeps_its_own_colours_and_nobody_else_s(width: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("NO_COLOR", raising=False)
    monkeypatch.setenv("TERM", "xterm-256color")
    file = io.StringIO()
    console = HarmlessConsole(file=file, width=width, force_terminal=True, highlight=False)
    table = Table(HOSTILE)
    table.add_row(Text(HOSTILE, "red"))
    for what in (HOSTILE, table):
        console.print(what)
    tell(console, HOSTILE)
    console.control(Control.home())
    page = file.getvalue()
    assert "\x1b[31m" in page  # its own red
    assert page.endswith("\x1b[H")
    assert not any(one in page for one in ("\x1b[2J", "\x9b", "\x07", "\x1b]", "\r", "\u202e"))
