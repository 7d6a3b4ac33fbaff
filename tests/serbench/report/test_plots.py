"""Tests that plots say what they must, that nothing overlaps or leaves the page, and names are taken as names.

They do not know how figures are measured; how a plot looks is for eyes.
"""

import xml.etree.ElementTree as ElementTree
from collections.abc import Sequence
from itertools import combinations, pairwise
from statistics import geometric_mean

import matplotlib
import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from matplotlib.figure import Figure
from matplotlib.text import Text

from serbench.report.figures import figure
from serbench.report.harmless import harmless
from serbench.report.plots.curves import Mark
from serbench.report.plots.listing import PLOTS, Drawn, NotDrawn, draw, inline_svg
from serbench.report.plots.panels import log_axis, plain_ticks, spread
from serbench.report.plots.payloads import data_size
from serbench.report.plots.places import few, left_out
from serbench.report.plots.style import INK, RC, looks
from serbench.report.plots.throughput import draw_throughput
from serbench.report.survey import CODECS, Survey
from serbench.results import PhaseTimes, Run
from tests.serbench.report.grids import grid, measured, placed

BY_NAME = {plot.name: plot for plot in PLOTS}
HOSTILE = "$x$\x1b[2J<script>alert('$x$')</script>&_^{\\frac"


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> list[Run]:
    return measured(tmp_path_factory.mktemp("runs"))


@pytest.fixture(scope="module")
def survey(runs: list[Run]) -> Survey:
    return Survey(grid(runs, ["sim", "sim:step=1ms"], [1, 2, 3], [5, 50]))


def drawn(name: str, survey: Survey) -> Drawn:
    found = draw(BY_NAME[name], survey)
    assert isinstance(found, Drawn), found
    return found


def figure_of(name: str, survey: Survey) -> Figure:
    with matplotlib.rc_context(RC):
        found = BY_NAME[name].draw(survey)
    assert isinstance(found, Figure)
    return found


def texts(svg: bytes) -> list[str]:
    root = ElementTree.fromstring(svg)
    return ["".join(node.itertext()).strip() for node in root.iter("{http://www.w3.org/2000/svg}text")]


@pytest.mark.parametrize("name", BY_NAME)
def test_every_plot_is_drawn_with_text_as_text_and_every_codec_named(name: str, survey: Survey) -> None:
    plot = drawn(name, survey)
    assert plot.png.startswith(b"\x89PNG")
    found = texts(plot.svg)
    for series in survey.series:
        if not (name == "speedup" and series == survey.baseline):
            assert series in found, f"{series} is not named in {name}"


@pytest.mark.parametrize("name", ["phases", "speedup"])
def test_the_same_runs_give_the_same_plot(name: str, survey: Survey) -> None:
    first, second = drawn(name, survey), drawn(name, survey)
    assert (first.svg, first.png, first.inline) == (second.svg, second.png, second.inline)


def test_a_speed_up_for_a_readme_is_small_and_stands_on_white(runs: list[Run]) -> None:
    codecs = [placed(runs[i % 3], codec=name) for i, name in enumerate(CODECS[1:])]
    models = [f"sim:step={step}ms" for step in (0.5, 1, 2, 5, 10)]
    plot = drawn("speedup", Survey(grid(codecs, models, [1, 2, 3], [5])))
    assert len(plot.svg) < 60_000
    ground = ElementTree.fromstring(plot.svg)[0].attrib
    assert ground == {"width": "100%", "height": "100%", "fill": "white"}


@pytest.mark.parametrize("name", BY_NAME)
@pytest.mark.parametrize("codecs", [3, 9])
def test_no_text_overlaps_another_or_leaves_the_page(name: str, codecs: int, runs: list[Run]) -> None:
    more = [placed(runs[i % 3], codec=f"{runs[i % 3].spec.codec}:variant={i}") for i in range(codecs)]
    survey = Survey(
        grid(more, ["/a/folder/a-model-whose-name-is-longer-than-any-panel-is-wide", "sim"], [1, 2, 3], [5, 50])
    )
    drawing = figure_of(name, survey)
    drawing.draw_without_rendering()
    width, height = drawing.bbox.width, drawing.bbox.height
    found = [text for text in drawing.findobj(Text) if text.get_text() and shown(text)]
    boxes = [(text.get_text(), Text.get_window_extent(text)) for text in found]  # without an annotation's arrow
    for text, box in boxes:
        assert box.x0 >= -1, text
        assert box.y0 >= -1, text
        assert box.x1 <= width + 1, text
        assert box.y1 <= height + 1, text
    for (text, box), (other, beside) in combinations(boxes, 2):
        apart = box.x1 <= beside.x0 + 1 or beside.x1 <= box.x0 + 1 or box.y1 <= beside.y0 + 2 or beside.y1 <= box.y0 + 2
        assert apart, f"{text!r} lies over {other!r} in {name}"


def shown(text: Text) -> bool:
    return text.get_visible() and (text.axes is None or text.axes.axison)


def test_what_the_runs_have_nothing_for_is_told(runs: list[Run]) -> None:
    survey = Survey(runs)
    found = {plot.name: draw(plot, survey) for plot in PLOTS}
    missing = {name: one.why for name, one in found.items() if isinstance(one, NotDrawn)}
    assert missing == {"speedup": "all runs have the same model, sim: the model's step time does not vary"}


def test_early_runs_without_distributions_have_no_plot_of_latency(runs: list[Run]) -> None:
    early = [
        msgspec.structs.replace(
            run, repeats=[msgspec.structs.replace(one, latency_quantiles_s={}, batch_sizes=None) for one in run.repeats]
        )
        for run in runs
    ]
    found = draw(BY_NAME["latency"], Survey(early))
    assert isinstance(found, NotDrawn)
    assert "without the distribution" in found.why


def test_a_phase_that_was_not_measured_is_not_drawn_as_nothing(runs: list[Run]) -> None:
    without = {name: phase for name, phase in runs[0].repeats[0].phases_us.items() if name != "adapt"}
    repeats = [msgspec.structs.replace(one, phases_us=without) for one in runs[0].repeats]
    found = draw(BY_NAME["phases"], Survey([msgspec.structs.replace(runs[0], repeats=repeats), *runs[1:]]))
    assert isinstance(found, NotDrawn)
    assert found.why == "not measured in all runs: adapt"


def test_bars_of_all_panels_have_one_unit_and_scale(runs: list[Run]) -> None:
    slow = {"other": PhaseTimes(9e3, 9e3, 9e3, 9e3 * runs[0].repeats[0].steps)}
    repeats = [msgspec.structs.replace(one, phases_us=one.phases_us | slow) for one in runs[0].repeats]
    survey = Survey([*grid(runs, ["sim"], [1], [5]), placed(msgspec.structs.replace(runs[0], repeats=repeats))])
    panels = figure_of("phases", survey).axes
    assert len({axes.get_xlim() for axes in panels}) == 1
    assert all("host ms a step" in axes.get_xlabel() and "median of codecs" in axes.get_xlabel() for axes in panels)


@pytest.mark.parametrize("name", ["throughput", "bytes"])
def test_dots_stand_for_an_axis_of_one_value_and_say_theirs(name: str, runs: list[Run]) -> None:
    survey = Survey(runs)
    found = texts(drawn(name, survey).svg)
    assert set(survey.series) <= set(found)
    means = [geometric_mean(repeat.output_tokens_per_s for repeat in run.repeats) for run in runs]
    said = ["100 B"] * 3 if name == "bytes" else [figure(mean) for mean in means]
    for one in said:
        assert found.count(one) >= said.count(one), found


@pytest.mark.parametrize(("low", "high"), [(0.9, 1.2), (1800.0, 2200.0), (136.0, 136.1), (0.9, 30), (1e-7, 1e9)])
def test_every_axis_has_two_ticks_or_more_within_it(low: float, high: float) -> None:
    axes = Figure().add_subplot()
    log_axis(axes, "x", low, high, str)
    ticks = axes.get_xticks()
    assert 2 <= len(ticks) <= 6
    assert all(low <= tick <= high for tick in ticks)


def test_one_run_is_enough_for_plots(runs: list[Run]) -> None:
    names = {plot.name for plot in PLOTS if isinstance(draw(plot, Survey(runs[:1])), Drawn)}
    assert names == {"throughput", "phases", "bytes", "latency"}


def test_a_codec_that_was_not_measured_everywhere(runs: list[Run]) -> None:
    places = grid(runs, ["sim", "sim:step=1ms"], [1, 3], [5, 50])
    holes = [run for run in places if run.spec.codec == "pickle" or run.spec.max_num_seqs == 1]
    survey = Survey(holes)
    assert all(isinstance(figure_of(plot.name, survey), Figure) for plot in PLOTS)


def test_panels_stand_only_where_there_is_something(runs: list[Run]) -> None:
    both = grid(runs, ["sim", "sim:step=1ms"], [3], [50])
    survey = Survey([*both, *grid(runs[:1], ["sim"], [1, 2], [5, 7, 9]), *grid(runs[:1], ["sim:step=2ms"], [1], [7])])
    assert len(figure_of("speedup", survey).axes) == 1
    assert len(figure_of("throughput", survey).axes) == 9
    found = draw(BY_NAME["speedup"], Survey([*grid(runs, ["sim"], [3], [5]), *grid(runs, ["sim:step=1ms"], [2], [5])]))
    assert isinstance(found, NotDrawn)
    assert "more than one model" in found.why


def test_panels_that_are_left_out_are_told(runs: list[Run]) -> None:
    assert left_out(Survey(grid(runs, ["sim"], [1, 2, 3], [5]))) == ""
    told = left_out(Survey(grid(runs, ["sim"], [1, 2, 3], [5, 6, 7, 8])))
    assert told.startswith("plots have panels for at most 3 of the 4 contexts: the first")


def test_names_are_taken_as_names(runs: list[Run]) -> None:
    survey = Survey(grid(runs, [HOSTILE, "sim"], [1, 3], [5]))
    plot = drawn("throughput", survey)
    assert harmless(HOSTILE[:8]) in "".join(texts(plot.svg))
    assert "<script" not in plot.svg.decode() + plot.inline


def test_intervals_are_drawn_from_four_repeats_on(runs: list[Run]) -> None:
    few_repeats = [msgspec.structs.replace(run, repeats=run.repeats[:3]) for run in runs]
    with matplotlib.rc_context(RC):
        many, three = (len(draw_throughput(Survey(some)).axes[0].lines) for some in (runs, few_repeats))
    assert many - three == len(runs)


def test_nothing_global_is_left_changed(survey: Survey) -> None:
    before = dict(matplotlib.rcParams)
    drawn("phases", survey)
    assert dict(matplotlib.rcParams) == before


def test_inline_plots_take_the_page_s_colours_and_have_ids_of_their_own(survey: Survey) -> None:
    inline = drawn("throughput", survey).inline
    assert inline.startswith("<svg")
    assert INK not in inline
    assert "currentColor" in inline
    root = ElementTree.fromstring(inline)
    assert "width" not in root.attrib
    assert "viewBox" in root.attrib
    known = [node.attrib["id"] for node in root.iter() if "id" in node.attrib]
    assert len(known) == len(set(known))
    assert all(one.startswith("throughput-") for one in known)
    used = {value for node in root.iter() for key, value in node.attrib.items() if key.endswith("href")}
    assert used
    assert {one.removeprefix("#") for one in used} <= set(known)
    assert inline_svg('<?xml?><svg width="1" height="2" viewBox="0"/>', "x") == '<svg viewBox="0"/>'


def test_known_codecs_look_the_same_everywhere_and_variants_differ() -> None:
    some, all_of_them = looks(["delta", "mine"]), looks(["pickle", "delta", "delta:format=pickle", "cached", "mine"])
    assert some["delta"] == all_of_them["delta"]
    assert all_of_them["delta"].line != all_of_them["delta:format=pickle"].line
    colours = {look.colour for name, look in all_of_them.items() if ":" not in name}
    assert len(colours) == 4


@pytest.mark.parametrize(
    ("low", "high", "ticks"),
    [
        (0.9, 30, [1, 2, 5, 10, 20]),
        (200, 120_000, [300, 1000, 3000, 10_000, 30_000, 100_000]),
        (1, 1e9, [1, 100, 10_000, 1e6, 1e8]),
        (2.2, 7.5, [3, 5, 7]),
        (1.1, 1.4, []),
    ],
)
def test_ticks_are_plain_numbers(low: float, high: float, ticks: Sequence[float]) -> None:
    assert plain_ticks(low, high) == pytest.approx(ticks)


@given(st.lists(st.floats(0, 100), max_size=8), st.floats(0.1, 12))
def test_labels_keep_their_order_and_distance_within_the_panel(wanted: list[float], gap: float) -> None:
    places = spread(wanted, gap, 0.0, 100.0)
    ordered = sorted(range(len(wanted)), key=lambda i: (wanted[i], -i))
    assert all(places[b] - places[a] >= gap - 1e-6 for a, b in pairwise(ordered))
    assert all(-1e-6 <= place <= 100 + 1e-6 for place in places)


def test_labels_with_room_stay_where_they_are() -> None:
    assert spread([10, 50, 30], 5, 0, 100) == [10, 50, 30]
    assert spread([50, 50], 10, 0, 100) == [55, 45]


def test_bytes_are_written_in_their_unit() -> None:
    assert [data_size(count) for count in (41, 1000, 2500, 5e6)] == ["41 B", "1 kB", "2.5 kB", "5 MB"]


def test_of_many_places_the_ends_and_the_middle_are_shown() -> None:
    assert few([1, 2, 3]) == [1, 2, 3]
    assert few([1, 2, 3, 4, 5]) == [1, 3, 5]


def test_a_mark_without_interval_has_none() -> None:
    assert Mark(1.0, 2.0).low is None
