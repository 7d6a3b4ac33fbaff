"""Tests `serbench hostpath`: the grid, the document, the tables, bad input. They assert no times."""

import json

import pytest

from serbench.cli.hostpath import shapes_of
from serbench.hostpath import Growth, Shape
from serbench.report.hostpath_tables import _growth_table
from serbench.stats import judge
from tests.serbench.cli.calling import call, refused

QUICK = ("--executor", "inproc", "--repeats", "1", "--warmup", "0", "--steps", "8")


def test_the_document_has_every_cell_and_phase() -> None:
    result = call("hostpath", *QUICK, "--codec", "none,columnar", "--batch", "1,4", "--context", "20,40", "--json")
    assert result.exit_code == 0, result.stderr
    document = json.loads(result.stdout)
    assert document["schema"] == "serbench/hostpath/1"
    assert len(document["cells"]) == 8
    for cell in document["cells"]:
        assert cell["passes"][0]["steps"] == 8
        assert {"schedule", "encode", "apply", "update"} < cell["phases_us"].keys()
    assert {(one["at"], one["first"], one["last"]) for one in document["growth_per_request"]} == {
        (20, 1, 4),
        (40, 1, 4),
    }
    assert {(one["at"], one["first"], one["last"]) for one in document["growth_with_context"]} == {
        (1, 20, 40),
        (4, 20, 40),
    }


def test_the_tables_fit_80_columns() -> None:
    result = call(
        "hostpath", *QUICK, "--codec", "msgspec,delta,cached,columnar", "--batch", "1,2", "--context", "20,40"
    )
    assert result.exit_code == 0, result.stderr
    assert max(map(len, result.stdout.splitlines())) <= 80
    assert "…" not in result.stdout.replace("1 … 2", "").replace("20 … 40", "")
    for words in (
        "host µs a step",
        "plan bytes",
        "request added",
        "too few repeats",
        "2×40",
        "other",
        "forward and sample excluded",
    ):
        assert words in result.stdout


def test_each_table_says_what_it_is() -> None:
    page = call("hostpath", *QUICK, "--codec", "delta", "--context", "20,40", "--batch", "2").stdout
    assert "growth of the host time with the context, means of the repeats' own ratios" in " ".join(page.split())
    assert "with the batch" not in page
    assert "result bytes a step; the context has no part in them, so one of each batch" in page
    page = call("hostpath", *QUICK, "--codec", "delta", "--context", "20", "--batch", "2,4").stdout
    assert "growth of the host time with the batch, means of the repeats' own ratios" in " ".join(page.split())
    assert "with the context" not in page
    assert "has no part in them" not in page


def test_growth_has_as_many_digits_as_other_figures() -> None:
    growth = Growth(
        codec="delta", at=20, first=1, last=2, us_per_request=29.163, ratio=judge([1.0], [2.0], higher_is_better=False)
    )
    table = _growth_table([growth])
    assert table is not None
    assert [list(column.cells) for column in table.columns][-2:] == [["29.2"], ["too few repeats"]]


def test_by_default_one_of_batch_and_context_varies() -> None:
    shapes = shapes_of(None, None)
    assert {Shape(1, 512), Shape(4096, 512), Shape(64, 128), Shape(64, 32768)} < set(shapes)
    assert len(shapes) == len(set(shapes)) == 10
    assert shapes_of((16, 32), None) == (Shape(16, 512), Shape(32, 512))
    assert shapes_of(None, (128, 256)) == (Shape(64, 128), Shape(64, 256))


@pytest.mark.parametrize("command", [("hostpath",), ("predict", "--step", "2ms")])
def test_where_all_is_skipped_nothing_can_be_measured(command: tuple[str, ...]) -> None:
    line = refused(*command, "--batch", "2000000000")
    assert "there is nothing small enough to measure: batch 2,000,000,000 at context 512: full state" in line


def test_what_is_skipped_is_shown() -> None:
    result = call("hostpath", *QUICK, "--codec", "pickle", "--batch", "1,4096", "--context", "2048")
    assert result.exit_code == 0, result.stderr
    assert "skipped: pickle at 4,096 × 2,048 (full state of 8.4 M ids)" in result.stdout


@pytest.mark.parametrize(
    ("args", "words"),
    [
        (["--batch", "1,x"], ["--batch", "'x' is no whole number", "from 1 to 2147483647"]),
        (["--batch", "0"], ["--batch", "0 is out of range", "from 1 to 2147483647"]),
        (["--context", "1"], ["--context", "1 is out of range", "from 2 to"]),
        (["--codec", ","], ["names nothing"]),
        (["--codec", "detla"], ["no codec 'detla'", "Did you mean delta"]),
        (["--codec", "none"], ["codec none hands things over by reference", "use --executor inproc"]),
        (["--executor", "inproc", "--transport", "shm"], ["--transport shm", "use inproc"]),
        (["--steps", "3"], ["--steps", "3"]),
    ],
)
def test_bad_input_is_one_clear_line(args: list[str], words: list[str]) -> None:
    line = refused("hostpath", *args)
    for word in words:
        assert word in line
