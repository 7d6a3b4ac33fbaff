"""Tests how runs are laid out as a grid, and that nothing is lost in silence. They do not know how it is drawn."""

import msgspec
import pytest

from serbench.report.survey import Survey, model_label
from serbench.results import PhaseTimes, Run
from serbench.workload.spec import Arrivals
from tests.serbench.report.grids import grid, measured, placed


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> list[Run]:
    return measured(tmp_path_factory.mktemp("runs"), ["columnar", "delta", "pickle"])


def slower(run: Run, forward_us: float) -> Run:
    """``run`` with another time of the model."""
    times = PhaseTimes(forward_us, forward_us, forward_us, forward_us)
    repeats = [msgspec.structs.replace(one, phases_us={**one.phases_us, "forward": times}) for one in run.repeats]
    return msgspec.structs.replace(run, repeats=repeats)


def test_a_grid_has_a_point_for_every_place_and_a_run_for_every_codec(runs: list[Run]) -> None:
    survey = Survey(grid(runs, ["sim", "sim:step=1ms"], [1, 2, 3], [5, 50]))
    assert (survey.batches, survey.contexts) == ([1, 2, 3], [5, 50])
    assert len(survey.points) == 12
    assert survey.series == ["pickle", "delta", "columnar"]
    assert all(list(point.runs) == survey.series for point in survey.points)
    assert survey.notes == []
    assert len(survey.in_order) == 36


def test_the_batch_is_what_could_run_at_once(runs: list[Run]) -> None:
    assert Survey([placed(run, batch=256) for run in runs]).batches == [3]  # there were three requests


def test_the_client_s_limit_is_one_too(runs: list[Run]) -> None:
    limited = [placed(runs[0], arrivals=Arrivals(max_concurrency=number)) for number in (1, 2)]
    survey = Survey([*limited, placed(runs[0])])
    assert (survey.batches, survey.notes) == ([1, 2, 3], [])


def test_models_stand_in_the_order_of_their_steps(runs: list[Run]) -> None:
    slow, quick = placed(runs[0], "sim:step=9ms"), placed(runs[0], "sim:step=20ms")
    survey = Survey([slower(slow, 9000.0), slower(quick, 2.0)])
    assert survey.models == ["sim:step=20ms", "sim:step=9ms"]  # by what was measured, not by what was asked for


def test_the_baseline_is_pickle_or_the_first_or_what_is_asked_for(runs: list[Run]) -> None:
    assert Survey(runs).baseline == "pickle"
    assert Survey(runs[:2]).baseline == "delta"
    assert Survey(runs, "columnar").points[0].series == ["columnar", "pickle", "delta"]
    lacking = Survey(runs, "cached")
    assert "no run of cached" in lacking.notes[0]
    assert lacking.points[0].compared[0] is None


def test_ratios_are_those_of_the_comparison(runs: list[Run]) -> None:
    [point] = Survey(runs).points
    comparison, why = point.compared
    assert why == ""
    assert comparison is not None
    ratios = {
        name: row.throughput.ratio for name, row in zip(point.series, comparison.rows, strict=True) if row.throughput
    }
    assert ratios == {"delta": pytest.approx(1.5), "columnar": pytest.approx(3.0)}


def test_why_nothing_is_compared_is_told(runs: list[Run]) -> None:
    other = msgspec.structs.replace(runs[0], weights=msgspec.structs.replace(runs[0].weights, fingerprint="x"))
    [point] = Survey([other, runs[2]]).points
    comparison, why = point.compared
    assert comparison is None
    assert "weights differ" in why


def test_runs_of_another_setting_are_in_the_tables_and_told(runs: list[Run]) -> None:
    survey = Survey([*runs, placed(runs[0], seed=7)])
    assert len(survey.points) == 1
    assert len(survey.in_order) == 4
    [note] = survey.notes
    assert "1 run with seed 7" in note


def test_every_setting_has_ratios_of_its_own(runs: list[Run]) -> None:
    compared = [placed(run, "sim:step=2ms", block_size=32) for run in runs]
    survey = Survey([*grid(runs[1:], ["sim"], [1, 2], [5]), *compared])
    assert [len(point.runs) for point in survey.all_points] == [2, 2, 3]
    assert all(point.compared[0] is not None for point in survey.all_points)
    assert "block_size 32" in str(survey.all_points[-1])
    assert "block_size 16" in str(survey.all_points[0])
    assert survey.notes == ["3 runs with block_size 32: in tables only, plots are of one setting"]


def test_others_are_compared_with_the_series_that_is_there(runs: list[Run]) -> None:
    alone = placed(runs[2], transport="inproc", executor="inproc")
    for asked in (None, "pickle", "pickle shm"):
        survey = Survey([alone, *grid(runs[1:], ["sim", "sim:step=1ms"], [1, 3], [50])], asked)
        assert survey.series == ["pickle inproc", "pickle shm", "delta shm"]
        assert survey.baseline == "pickle shm"
        assert sum(point.compared[0] is not None for point in survey.points) == 4
    assert Survey([placed(runs[0], codec="none"), placed(runs[0], codec="mine")]).baseline == "none"


def test_a_run_measured_again_replaces_the_earlier_in_plots_and_is_told(runs: list[Run]) -> None:
    later = msgspec.structs.replace(runs[0], id="later", created="2999-01-01T00:00:00+00:00")
    survey = Survey([*runs, later])
    assert survey.points[0].runs["columnar"].id == "later"
    assert "1 run measured again" in survey.notes[0]
    assert len(survey.in_order) == 4


def test_series_tell_apart_what_varies_and_only_that(runs: list[Run]) -> None:
    pickle = runs[2]
    assert Survey([pickle]).series == ["pickle"]
    assert Survey([pickle, placed(pickle, transport="zmq")]).series == ["pickle shm", "pickle zmq"]
    both = Survey([pickle, placed(pickle, result_format="packed")])
    assert both.series == ["pickle results packed", "pickle results pickle"]


def test_the_hardest_point_has_the_most_to_tell(runs: list[Run]) -> None:
    survey = Survey(grid(runs, ["sim", "sim:step=1ms"], [1, 3], [5, 50]))
    assert (survey.hardest.batch, survey.hardest.context) == (3, 50)
    assert survey.hardest.model == survey.models[0]


def test_runs_without_kernels_stand_in_a_grid_of_their_own(runs: list[Run]) -> None:
    without = [msgspec.structs.replace(run, id=f"{run.id}-x", without_kernels="no compiler") for run in runs[:2]]
    survey = Survey([*runs, *without])
    assert [run.id for run in survey.points[0].runs.values()] == [run.id for run in runs[::-1]]
    assert survey.notes == ["2 runs with no C++ kernels: in tables only, plots are of one setting"]
    assert [one.setting for one in (survey, *survey.others)] == ["C++ kernels", "no C++ kernels"]


def test_a_place_with_more_codecs_is_not_harder_for_that(runs: list[Run]) -> None:
    small, large = grid(runs, ["sim"], [1], [5]), grid(runs[:2], ["sim"], [3], [50])
    survey = Survey([*small, *large, *grid(runs[:1], ["sim"], [3], [90])])
    assert (survey.hardest.batch, survey.hardest.context) == (3, 50)  # at 90 tokens there is nothing to compare


@pytest.mark.parametrize(
    ("model", "label"),
    [
        ("sim:step=2ms", "model step 2 ms"),
        ("sim", "model step 0 ms"),
        ("sim:step=2ms:token=1us", "sim:step=2ms:token=1us"),
        ("a/b", "a/b"),
    ],
)
def test_models_are_called_by_their_step_or_their_name(model: str, label: str) -> None:
    assert model_label(model) == label
