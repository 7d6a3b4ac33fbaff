"""`serbench report`: stored runs as a page to read and print. It does not know what is in it (serbench.report)."""

from pathlib import Path
from typing import TYPE_CHECKING

import click

if TYPE_CHECKING:
    from serbench.report.plots.listing import Drawn, NotDrawn
    from serbench.report.survey import Survey

EXAMPLES = """
\b
Examples:
  serbench report results                       # all runs of a folder
  serbench report sweeps/grid --output grid     # a sweep's folder
  serbench report results/A.json results/B.json --baseline delta
"""


@click.command("report", short_help="Stored runs as HTML and Markdown with plots.", epilog=EXAMPLES)
@click.argument("runs", nargs=-1, required=True, metavar="RUN...")
@click.option("--output", default="results/report", metavar="DIR", help="Where the report is written.")
@click.option("--baseline", metavar="CODEC", help="What the others are compared with.  [default: pickle, or the first]")
@click.option("--results", default="results", metavar="DIR", help="Where RUNs are looked for that are ids.")
def command(runs: tuple[str, ...], output: str, baseline: str | None, results: str) -> None:
    """Write a report on RUNs, which are ids or files of stored runs, or folders of them: report.html, one file that
    needs nothing else, and report.md with the plots beside it as SVG and PNG.
    """
    from serbench.errors import NotWrittenError, ResultsError
    from serbench.files import write_atomically
    from serbench.report.harmless import harmless
    from serbench.report.html_page import html_page
    from serbench.report.markdown_page import markdown_page
    from serbench.report.stored_runs import gather_runs
    from serbench.report.survey import Survey
    from serbench.report.written import make_report
    from serbench.results import check_writable

    folder = Path(output)
    gathered = gather_runs(runs, Path(results))
    survey = Survey(gathered.runs, baseline)
    if baseline is not None and all(point.baseline is None for point in survey.all_points):
        names = dict.fromkeys(name for point in survey.all_points for name in point.runs)
        raise ResultsError(f"there is no run of {baseline} to compare with; there are {', '.join(names)}")
    check_writable(folder)
    plots, failed = _drawn(survey)
    report = make_report(gathered, survey, plots, failed)
    pages = {"report.html": html_page(report), "report.md": markdown_page(report)}
    files = {name: harmless(page).encode() for name, page in pages.items()}
    for drawn in report.plots:
        files |= {f"{drawn.plot.name}.svg": drawn.svg, f"{drawn.plot.name}.png": drawn.png}
    try:
        for name, data in files.items():
            write_atomically(folder / name, data)
    except OSError as error:
        raise NotWrittenError(f"the report can't be written to {folder}: {error.strerror}") from error
    for line in report.left_out:
        click.echo(f"left out: {harmless(line)}", err=True)
    click.echo(f"Stored in {folder / 'report.html'} and {folder / 'report.md'}")


def _drawn(survey: "Survey") -> "tuple[list[Drawn | NotDrawn], list[str]]":
    """The plots, and what went wrong with those that fail: the others and the tables are written all the same."""
    from serbench.cli.main import interrupt_behind
    from serbench.report.plots.listing import PLOTS, draw

    plots, failed = [], []
    for plot in PLOTS:
        try:
            plots.append(draw(plot, survey))
        except Exception as error:
            if (interrupt := interrupt_behind(error)) is not None:
                raise interrupt from None
            failed.append(f"{plot.title}: drawing it failed ({type(error).__name__}: {error}); please report this")
    return plots, failed
