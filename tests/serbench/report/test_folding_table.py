"""Tests that tables lose nothing, however narrow the terminal. They do not know what tables hold."""

import io
import re
from collections import Counter
from pathlib import Path

import pytest
from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.table import Table
from rich.text import Text

from serbench.comparison import compare_runs
from serbench.doctor import Finding
from serbench.report.comparison_table import comparison_table, raw_figures
from serbench.report.folding_table import FoldingTable
from serbench.report.lists import codecs_table, findings_table, models_table
from serbench.report.run_tables import bytes_table, latency_table, phases_table, rates_table
from serbench_codecs.registry import list_codecs
from serbench_engine.models.catalogue import KNOWN_MODELS
from tests.serbench.mocks import Bench, prepared


def shown(table: Table, width: int) -> list[str]:
    file = io.StringIO()
    Console(file=file, width=width, color_system=None).print(table)
    return file.getvalue().splitlines()


def letters(text: str) -> Counter[str]:
    """What is left when layout is taken away."""
    return Counter(char for char in text if char not in " ─\n")


@pytest.fixture(scope="module")
def tables(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Table]:
    things = prepared(["pickle", "pickle:ids=packed", "delta"])
    cost_us = {"pickle": 345678.0, "pickle:ids=packed": 300000.0, "delta": 123456.0}
    runs = Bench(things, tmp_path_factory.mktemp("runs"), lambda one: cost_us[one.codec]).run()
    run = runs[0]
    return {
        "rates": rates_table(run),
        "latency": latency_table(run.repeats),
        "phases": phases_table(run.repeats),
        "bytes": bytes_table(run.repeats),
        "comparison": comparison_table(compare_runs(runs)),
        "codecs": codecs_table(list_codecs()),
        "models": models_table(KNOWN_MODELS),
        "doctor": findings_table([Finding("a package", "not there", "wrong", "pip install it, or leave it out")]),
    }


NAMES = ("rates", "latency", "phases", "bytes", "comparison", "codecs", "models", "doctor")


@pytest.mark.parametrize("name", NAMES)
def test_no_figure_is_lost_at_any_width(name: str, tables: dict[str, Table]) -> None:
    table = tables[name]
    held = letters("".join(str(cell) for column in table.columns for cell in column.cells))
    for width in (*range(24, 100, 4), 60, 75, 79):
        lines = shown(table, width)
        assert max(map(len, lines)) <= width
        text = "\n".join(lines)
        assert "…" not in text
        assert not held - letters(text), width


def test_where_there_is_room_it_is_an_ordinary_table() -> None:
    folding, ordinary = (kind("one", "two", box=SIMPLE_HEAD, padding=(0, 1)) for kind in (FoldingTable, Table))
    for table in (folding, ordinary):
        table.add_row("a b c", "1,234")
    assert shown(folding, 40) == shown(ordinary, 40)


def test_first_words_wrap_then_padding_goes_then_rows_become_blocks() -> None:
    table = FoldingTable("name", "figure", "what it is", box=SIMPLE_HEAD, show_edge=False, padding=(0, 1))
    table.add_row("first", "1,234,567", "words that may go to another line")
    assert [len(shown(table, width)) for width in (60, 40, 27)] == [3, 4, 6]
    assert shown(table, 40)[2].startswith(" first   1,234,567")
    assert shown(table, 27)[2].startswith("first 1,234,567 words")
    assert [line.split() for line in shown(table, 22)[:2]] == [["first"], ["figure", "1,234,567"]]


def test_a_block_that_a_number_begins_says_of_what() -> None:
    table = FoldingTable("num\nprompts", "output\ntokens/s", box=SIMPLE_HEAD, show_edge=False)
    for head in ("16", Text("32"), "delta"):
        table.add_row(head, "1,234,567,890")
    heads = [line.split() for line in shown(table, 16) if line.startswith(" ") and not line.startswith("  ")]
    assert heads == [["num", "prompts", "16"], ["num", "prompts", "32"], ["delta"]]


@pytest.mark.parametrize("width", [60, 72, 80, 100])
def test_a_comparison_breaks_no_interval(width: int, tables: dict[str, Table]) -> None:
    page = "\n".join(shown(tables["comparison"], width))
    assert len(re.findall(r"\[\d+\.\d+, \d+\.\d+\]", page)) == 6
    assert "pickle:ids=packed" in page


def test_a_comparison_s_raw_figures_are_not_cropped(tmp_path: Path) -> None:
    runs = Bench(prepared(["pickle", "pickle:ids=packed"]), tmp_path).run()
    grid = raw_figures(compare_runs(runs).rows)
    held = letters("".join(str(cell) for column in grid.columns for cell in column.cells))
    for width in (16, 24, 40, 60):
        assert letters("\n".join(shown(grid, width))) == held
