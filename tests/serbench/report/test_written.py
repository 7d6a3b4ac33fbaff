"""Tests written reports: complete, self-contained, safe whatever names are. They do not know what plots look like."""

import re
from collections.abc import Sequence
from html.parser import HTMLParser

import msgspec
import pytest

from serbench.report.figures import figure
from serbench.report.html_page import html_page
from serbench.report.markdown_page import markdown_page, plain
from serbench.report.plots.listing import PLOTS, Plot, draw
from serbench.report.record_tables import WordTable, all_tables, all_warnings
from serbench.report.stored_runs import Gathered
from serbench.report.survey import Survey
from serbench.report.written import Report, make_report
from serbench.results import Run
from tests.serbench.report.grids import grid, measured, placed

HOSTILE = '<script>alert("x")</script> | `a` $b$ [c](http://d) \\ *e* </style>'


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> list[Run]:
    return measured(tmp_path_factory.mktemp("runs"))


def report_on(runs: Sequence[Run], left_out: Sequence[str] = (), plots: Sequence[Plot] = PLOTS[:2]) -> Report:
    survey = Survey(runs)
    drawn = [draw(plot, survey) for plot in plots]
    return make_report(Gathered(list(runs), list(left_out)), survey, drawn, ["a plot: failed"])


@pytest.fixture(scope="module")
def report(runs: list[Run]) -> Report:
    return report_on(grid(runs, ["sim", "sim:step=1ms"], [1, 3], [5, 50]), ["torn.json is no stored run"], PLOTS)


class Page(HTMLParser):
    """What a browser makes of the page: text, ids, what is linked to and whether tags match."""

    VOID = frozenset({"meta", "link", "br", "img", "hr", "path", "use", "rect", "polygon"})

    def __init__(self, page: str) -> None:
        super().__init__()
        self.ids: list[str] = []
        self.targets: list[str] = []
        self.tags: set[str] = set()
        self.words: list[str] = []
        self.open: list[str] = []
        self.feed(page)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.add(tag)
        if tag not in self.VOID:
            self.open.append(tag)
        for name, value in attrs:
            if name == "id":
                self.ids.append(str(value))
            if name in ("href", "src", "xlink:href"):
                self.targets.append(str(value))

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.handle_starttag(tag, attrs)
        if tag not in self.VOID:
            self.open.pop()

    def handle_endtag(self, tag: str) -> None:
        if tag not in self.VOID:
            assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        self.words.append(data)


def test_the_page_is_whole_and_needs_nothing_else(report: Report) -> None:
    text = html_page(report)
    page = Page(text)
    assert page.open == []
    assert not {"script", "link", "iframe", "img", "object"} & page.tags
    assert len(page.ids) == len(set(page.ids))
    assert all(target.startswith("#") and target[1:] in page.ids for target in page.targets)
    assert "@import" not in text
    assert not re.search(r"url\((?!#)", text)


def test_the_page_is_for_light_dark_and_paper(report: Report) -> None:
    text = html_page(report)
    for words in ("prefers-color-scheme: dark", "@media print", "width=device-width", "currentColor"):
        assert words in text


def test_both_say_everything(report: Report) -> None:
    page = " ".join(Page(html_page(report)).words)
    markdown = markdown_page(report)
    assert [table.title for table in report.tables] == [
        "Runs",
        "Ratios",
        "Phases of a step",
        "Raw repeats",
        "Environment",
    ]
    assert {drawn.plot.name for drawn in report.plots} == {plot.name for plot in PLOTS}
    for table in report.tables:
        assert table.title in page
        assert f"## {table.title}" in markdown
        assert all(len(row) == len(table.columns) for row in table.rows)
        for row in table.rows:
            assert f"| {' | '.join(plain(cell) for cell in row)} |" in markdown
            assert all(cell in page for cell in row)
    for line in (*report.warnings, *report.left_out, *report.summary):
        assert line in page
        assert plain(line) in markdown
    for drawn in report.plots:
        assert f"({drawn.plot.name}.svg)" in markdown


def test_every_raw_repeat_is_there(report: Report, runs: list[Run]) -> None:
    [raw] = [table for table in report.tables if table.title == "Raw repeats"]
    assert len(raw.rows) == 8 * 3 * 4
    rates = {row[raw.columns.index("output tokens/s")] for row in raw.rows}
    assert rates == {figure(repeat.output_tokens_per_s) for run in runs for repeat in run.repeats}


def test_ratios_have_interval_and_verdict(report: Report) -> None:
    [ratios] = [table for table in report.tables if table.title == "Ratios"]
    assert len(ratios.rows) == 8 * 2
    row = dict(zip(ratios.columns[:5], ratios.rows[0][:5], strict=True))
    assert row["throughput"] == "×1.50"
    assert row["95 %"] == "1.50 … 1.50"
    assert row["verdict"] == "faster"


def test_what_is_left_out_is_said(runs: list[Run]) -> None:
    report = report_on([*runs, placed(runs[0], seed=9)], ["torn.json is no stored run"])
    told = "\n".join(report.left_out)
    for words in ("torn.json", "1 run with seed 9", "Speed-up by the model's step time: all runs have the same model"):
        assert words in told


def test_names_of_whatever_kind_are_text(runs: list[Run]) -> None:
    hostile = [placed(run, HOSTILE) for run in runs]
    hostile = [msgspec.structs.replace(run, warnings=[HOSTILE]) for run in hostile]
    report = report_on(hostile)
    page = Page(html_page(report))
    assert "script" not in page.tags
    assert page.open == []
    assert any(HOSTILE in words for words in page.words)
    markdown = markdown_page(report)
    assert "<script" not in re.sub(r"\\<", "", markdown)
    assert "](http" not in re.sub(r"\\\]", "", markdown)
    rows = [line for line in markdown.splitlines() if line.startswith("| ")]
    assert all(line.endswith(" |") for line in rows)


def test_tables_say_what_ran_and_what_was_not_measured(runs: list[Run]) -> None:
    without = {name: phase for name, phase in runs[0].repeats[0].phases_us.items() if name != "adapt"}
    repeats = [msgspec.structs.replace(one, phases_us=without, cached_tokens=None) for one in runs[0].repeats]
    weights = msgspec.structs.replace(runs[0].weights, origin="dequantized")
    report = report_on([msgspec.structs.replace(runs[0], repeats=repeats, weights=weights), *runs[1:]])
    tables = {table.title: table for table in report.tables}
    rows = [dict(zip(tables["Runs"].columns, row, strict=True)) for row in tables["Runs"].rows]
    assert sorted(row["without adapt"] for row in rows) == ["400", "800", "–"]
    assert sorted(row["cached tokens"] for row in rows) == ["0", "0", "–"]
    assert {row["limits"] for row in rows} == {"up to 256 requests, 2,048 tokens a step; blocks of 16; no prefix cache"}
    assert {row["plan bytes, median step"] for row in rows} == {"100"}
    phases = tables["Phases of a step"]
    assert sorted(row[phases.columns.index("adapt")] for row in phases.rows) == ["100", "200", "–"]
    assert "Weights of sim: dequantized." in report.summary


def test_warnings_that_differ_in_numbers_are_one(runs: list[Run]) -> None:
    lines = (["load 1.5 on 2 cores"], ["load 7 on 2 cores", "only here"], ["load 12.25 on 2 cores"])
    some = [msgspec.structs.replace(run, warnings=list(told)) for run, told in zip(runs, lines, strict=True)]
    assert all_warnings(Survey(some)) == ["load 1.5 to 12.25 on 2 cores", f"only here ({some[1].id})"]


def test_outputs_that_differ_are_a_warning_of_the_report(runs: list[Run]) -> None:
    wrong = [msgspec.structs.replace(one, outputs_digest="0") for one in runs[1].repeats]
    broken = [runs[0], msgspec.structs.replace(runs[1], repeats=wrong)]
    assert any("one of the codecs is wrong" in line for line in report_on(broken).warnings)


def test_an_early_end_and_few_repeats_are_shown(runs: list[Run]) -> None:
    short = [msgspec.structs.replace(run, repeats=run.repeats[:2]) for run in runs]
    tables = {table.title: table for table in all_tables(Survey(short))}
    assert tables["Runs"].rows[0][tables["Runs"].columns.index("repeats")] == "2 of 4"
    assert "too few repeats" in tables["Ratios"].rows[0]


def test_environments_are_told_apart(runs: list[Run]) -> None:
    other = msgspec.structs.replace(runs[0].environment, cpu="another", load_average=3.0)
    busy = msgspec.structs.replace(runs[0].environment, load_average=1.0)
    some = [
        msgspec.structs.replace(runs[0], environment=busy),
        msgspec.structs.replace(runs[1], environment=other),
        runs[2],
    ]
    [table] = [one for one in all_tables(Survey(some)) if one.title == "Environment"]
    assert table.columns == ["", "machine 1", "machine 2"]
    cells = {row[0]: row[1:] for row in table.rows}
    assert cells["processor"] == ["a mock, none", "another, none"]
    assert cells["load average"] == ["0.0 … 1.0", "3.0"]


def test_a_single_run_has_a_report(runs: list[Run]) -> None:
    report = report_on(runs[:1])
    assert "1 run with 4 repeats" in report.summary[0]
    assert "Ratios" not in [table.title for table in report.tables]
    assert Page(html_page(report)).open == []


def test_runs_of_two_settings_have_a_true_title_and_all_their_ratios(runs: list[Run]) -> None:
    sweep = grid([run for run in runs if run.spec.codec != "columnar"], ["sim:step=1ms"], [1, 3], [5, 50])
    report = report_on([*sweep, *(placed(run, "sim:step=2ms", block_size=32) for run in runs)])
    assert report.title == "serbench: pickle, delta, columnar; sim:step=1ms, sim:step=2ms"
    assert "3 codecs (pickle, delta, columnar), 2 models, 2 batch sizes, 2 contexts." in report.summary[0]
    [ratios] = [table for table in report.tables if table.title == "Ratios"]
    assert len(ratios.rows) == 4 + 2
    assert sum("block_size 32" in row[0] for row in ratios.rows) == 2
    assert report_on(sweep).title == "serbench: pickle, delta on sim:step=1ms"


def test_ratios_to_different_codecs_say_to_which(runs: list[Run]) -> None:
    report = report_on([*runs, *(placed(run, context=50, codec=name) for run, name in zip(runs, "ab", strict=False))])
    assert [row[1] for row in table_of(report, "Ratios").rows] == ["delta to pickle", "columnar to pickle", "b to a"]


def table_of(report: Report, title: str) -> WordTable:
    return next(table for table in report.tables if table.title == title)


def test_paths_are_not_counted_as_codecs(runs: list[Run]) -> None:
    report = report_on([*runs, placed(runs[0], transport="inproc", executor="inproc")])
    assert "3 codecs (pickle, delta, columnar), 2 paths, 1 model, 1 batch size, 1 context." in report.summary[0]


def test_the_headline_is_the_best_ratio_where_it_matters(report: Report) -> None:
    assert (
        "columnar gives 3.00 times the throughput of pickle (95 % interval 3.00 to 3.00: faster)" in report.summary[1]
    )
