"""Writes a report as one HTML file that needs nothing else: no network, no script. It does not know how it was made.

Text is escaped here and nowhere else; plots come as SVG elements that matplotlib escaped.
"""

from collections.abc import Iterator, Sequence
from html import escape
from typing import Final

from serbench.report.figures import counted
from serbench.report.record_tables import WordTable
from serbench.report.written import Report

STYLE: Final = """
:root { color-scheme: light dark; --ink: #1b1b1c; --page: #fff; --soft: #5c5c60; --line: #d9d9da; --band: #f5f5f6; }
@media screen and (prefers-color-scheme: dark) {
  :root { --ink: #e7e7e9; --page: #161618; --soft: #a3a3a8; --line: #3b3b3f; --band: #1f1f22; }
}
* { box-sizing: border-box; }
body { margin: 0 auto; padding: 1.5rem 1rem 4rem; max-width: 76rem; color: var(--ink); background: var(--page);
  font: 1rem/1.5 system-ui, sans-serif; }
h1 { font-size: 1.5rem; line-height: 1.25; margin: 0 0 1rem; overflow-wrap: anywhere; }
h2 { font-size: 1.15rem; margin: 2.5rem 0 .5rem; }
p, li { max-width: 46rem; overflow-wrap: anywhere; }
nav { font-size: .9rem; margin: 1rem 0; }
nav a { margin-right: 1rem; white-space: nowrap; }
a { color: inherit; text-underline-offset: .2em; }
figure { margin: 0; }
figcaption, .note { color: var(--soft); font-size: .9rem; max-width: 46rem; }
.wide { overflow-x: auto; }
.wide svg { display: block; width: 100%; min-width: 40rem; max-width: 60rem; height: auto; }
.wide svg text { font-family: system-ui, sans-serif !important; }
table { border-collapse: collapse; font-size: .8rem; font-variant-numeric: tabular-nums; }
th, td { padding: .25rem .6rem; text-align: right; border-bottom: 1px solid var(--line); vertical-align: top; }
th { font-weight: 600; vertical-align: bottom; min-width: 4.5rem; }
td { white-space: nowrap; }
.word { text-align: left; }
.prose td { white-space: normal; max-width: 40rem; overflow-wrap: anywhere; }
tbody tr:nth-child(even) { background: var(--band); }
summary { cursor: pointer; }
.warnings { border-left: 3px solid #d55e00; padding-left: 1rem; }
@page { size: A4 landscape; margin: 12mm; }
@media print {
  body { max-width: none; padding: 0; font-size: 9pt; }
  nav { display: none; }
  figure, tr { break-inside: avoid; }
  h2 { break-after: avoid; }
  .wide { overflow: visible; }
  .wide svg { min-width: 0; max-width: 200mm; }
  table { font-size: 5.5pt; }
  th, td { padding: .8pt 2.5pt; min-width: 0; }
}
"""


def html_page(report: Report) -> str:
    """The whole document."""
    return "\n".join(
        (
            "<!doctype html>",
            '<html lang="en">',
            '<head><meta charset="utf-8"><meta name="viewport" content="width=device-width, initial-scale=1">',
            f"<title>{escape(report.title)}</title>",
            f"<style>{STYLE}</style></head>",
            "<body>",
            *_body(report),
            "</body></html>\n",
        )
    )


def _body(report: Report) -> Iterator[str]:
    yield f"<h1>{escape(report.title)}</h1>"
    yield from (f"<p>{escape(line)}</p>" for line in report.summary)
    yield from _contents(report)
    if report.warnings:
        yield f'<section class="warnings">{"".join(_list("Warnings", report.warnings))}</section>'
    for drawn in report.plots:
        yield f'<figure><h2 id="{drawn.plot.name}">{escape(drawn.plot.title)}</h2>'
        yield f'<div class="wide" role="img" aria-label="{escape(drawn.plot.title)}">{drawn.inline}</div>'
        yield f"<figcaption>{escape(drawn.plot.caption)}</figcaption></figure>"
    for table in report.tables:
        yield from _table(table)
    if report.left_out:
        yield from _list("Left out", report.left_out)


def _contents(report: Report) -> Iterator[str]:
    targets = [(drawn.plot.name, drawn.plot.title) for drawn in report.plots]
    targets += [(_anchor(table.title), table.title) for table in report.tables]
    links = (f'<a href="#{name}">{escape(title)}</a>' for name, title in targets)
    yield f"<nav>{' '.join(links)}</nav>"


def _anchor(title: str) -> str:
    return f"table-{title.lower().replace(' ', '-')}"


def _list(title: str, lines: Sequence[str]) -> Iterator[str]:
    yield f"<h2>{title}</h2><ul>"
    yield from (f"<li>{escape(line)}</li>" for line in lines)
    yield "</ul>"


def _table(table: WordTable) -> Iterator[str]:
    yield f'<h2 id="{_anchor(table.title)}">{escape(table.title)}</h2>'
    if table.note:
        yield f'<p class="note">{escape(table.note)}</p>'
    if table.long:
        yield f"<details><summary>{counted(len(table.rows), 'row')}</summary>"
    prose = ' class="prose"' if table.words == len(table.columns) else ""
    yield f'<div class="wide"><table{prose}><thead>{_row("th", table.columns, table.words)}</thead><tbody>'
    yield from (_row("td", row, table.words) for row in table.rows)
    yield "</tbody></table></div>"
    if table.long:
        yield "</details>"


def _row(tag: str, cells: Sequence[str], words: int) -> str:
    attributes = [' class="word"' if i < words else "" for i in range(len(cells))]
    return f"<tr>{''.join(f'<{tag}{a}>{escape(c)}</{tag}>' for a, c in zip(attributes, cells, strict=True))}</tr>"
