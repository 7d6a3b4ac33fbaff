"""Tests which points a grid has and in which order their passes are made. They measure nothing."""

from collections import Counter
from collections.abc import Mapping
from typing import Any

import numpy as np
import pytest

from serbench.errors import ExperimentError
from serbench.experiment import Experiment
from serbench.sweep.grid import Axis, Point, references, span
from serbench.sweep.schedule import engines_of, schedule
from serbench.sweep.time_left import TimeLeft


def make(values: Mapping[str, Any]) -> Experiment:
    return Experiment(**{"model": "sim", "repeats": 4, **values})


def grid(**axes: tuple[Any, ...]) -> list[Point]:
    return span([Axis(name, values) for name, values in axes.items()], make)


def test_a_grid_has_a_point_for_each_combination_and_a_file_for_each_point() -> None:
    points = grid(max_num_seqs=(16, 64), codec=("pickle", "pickle:ids=packed", "delta"))
    assert len({point.id for point in points}) == 6
    assert points[4].id == "004-64-pickle-ids-packed"
    assert points[4].values == {"max_num_seqs": "64", "codec": "pickle:ids=packed"}
    assert (points[4].experiment.max_num_seqs, points[4].experiment.codec) == (64, "pickle:ids=packed")


def test_a_value_given_twice_is_refused() -> None:
    with pytest.raises(ExperimentError, match="--codec has delta twice"):
        grid(codec=("delta", "pickle", "delta"))


def test_every_point_is_compared_with_the_first_codec_of_its_kind() -> None:
    points = grid(block_size=(16, 32), codec=("pickle", "delta", "cached"))
    assert references(points) == [None, 0, 0, None, 3, 3]
    assert references(grid(block_size=(16, 32), transport=("shm", "pipe"))) == [None, 0, None, 2]
    assert references(grid(block_size=(16, 32))) == [None, None]


def test_points_that_differ_on_the_path_only_share_an_engine() -> None:
    points = grid(block_size=(16, 32), transport=("shm", "pipe"), codec=("pickle", "delta"))
    assert engines_of([point.experiment for point in points]) == [[0, 1, 2, 3], [4, 5, 6, 7]]


@pytest.mark.parametrize("stay", [1, 2, 3, 10])
def test_every_repeat_of_every_point_has_its_turn(stay: int) -> None:
    points = grid(block_size=(16, 32, 64), codec=("pickle", "delta"))
    passes = [one for visit in schedule([point.experiment for point in points], stay) for one in visit]
    assert Counter((one.point, one.group) for one in passes) == Counter((p, g) for p in range(6) for g in range(4))
    assert [one.order for one in passes] == list(range(24))


def test_engines_take_turns_forth_and_back_and_pairs_are_adjacent() -> None:
    points = grid(block_size=(16, 32, 64), codec=("pickle", "delta"))
    visits = schedule([point.experiment for point in points], 1)
    engines = [visit[0].point // 2 for visit in visits for _ in range(len(visit) // 2)]
    a, b, c = engines[:3]
    assert engines == [a, b, c, c, b, a, c, b, a, a, b, c]
    for visit in visits:
        for first, second in zip(visit[::2], visit[1::2], strict=True):
            assert (first.group, first.point // 2) == (second.group, second.point // 2)


def test_a_steady_drift_hits_all_points_alike() -> None:
    points = grid(block_size=(16, 32, 64), codec=("pickle", "delta", "cached"))
    passes = [one for visit in schedule([point.experiment for point in points], 1) for one in visit]
    times = [np.mean([one.order for one in passes if one.point == i]) for i in range(len(points))]
    assert times == pytest.approx([times[0]] * len(points), abs=1.0)


def test_one_engine_is_opened_once() -> None:
    assert len(schedule([point.experiment for point in grid(codec=("pickle", "delta"))], 1)) == 1


def test_the_time_left_weighs_passes_by_their_point() -> None:
    left = TimeLeft([0, 0, 1, 1], {})
    assert left.seconds(5.0) is None
    left.made(0, 1.0)
    assert left.seconds(2.0) == pytest.approx(3 * 2.0)  # of point 1 nothing is known yet: taken to be like 0
    left.made(1, 9.0)
    assert left.seconds(20.0) == pytest.approx(20.0)
    left.given_up(1)
    assert left.passes == 1
    assert left.seconds(20.0) == pytest.approx(2.0)


def test_the_time_left_knows_earlier_sittings() -> None:
    left = TimeLeft([0, 1], {1: [4.0]})
    left.made(0, 1.0)
    assert left.seconds(2.0) == pytest.approx(8.0)
