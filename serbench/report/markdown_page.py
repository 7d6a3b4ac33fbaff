"""Writes a report as Markdown, with its plots as files beside it. It does not know how they were made."""

import re
from collections.abc import Iterator, Sequence

from serbench.report.record_tables import WordTable
from serbench.report.written import Report


def markdown_page(report: Report) -> str:
    """The whole document."""
    return "\n".join(_blocks(report)) + "\n"


def _blocks(report: Report) -> Iterator[str]:
    yield f"# {plain(report.title)}\n"
    yield from (f"{plain(line)}\n" for line in report.summary)
    for drawn in report.plots:
        yield f"## {drawn.plot.title}\n"
        yield f"![{drawn.plot.title}]({drawn.plot.name}.svg)\n"
        yield f"{plain(drawn.plot.caption)} ([PNG]({drawn.plot.name}.png))\n"
    for table in report.tables:
        yield f"## {table.title}\n"
        if table.note:
            yield f"{plain(table.note)}\n"
        yield _table(table)
    yield from _list("Warnings", report.warnings)
    yield from _list("Left out", report.left_out)


def _list(title: str, lines: Sequence[str]) -> Iterator[str]:
    if lines:
        yield f"## {title}\n"
        yield "\n".join(f"- {plain(line)}" for line in lines) + "\n"


def _table(table: WordTable) -> str:
    rule = ["---" if i < table.words else "---:" for i in range(len(table.columns))]
    rows = [[plain(cell) for cell in row] for row in (table.columns, *table.rows)]
    return "\n".join(f"| {' | '.join(row)} |" for row in (rows[0], rule, *rows[1:])) + "\n"


def plain(text: str) -> str:
    """Text that no reader of Markdown takes for markup, in one line."""
    return re.sub(r"([\\`*_{}\[\]<>|#&~$])", r"\\\1", " ".join(text.split()))
