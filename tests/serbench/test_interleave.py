"""Tests the order in which compared things take their turns. They do not know what is measured."""

from collections import Counter

import numpy as np
import pytest

from serbench.interleave import balanced_order, turns_of


@pytest.mark.parametrize("things", [1, 2, 3, 6])
@pytest.mark.parametrize("groups", [1, 4, 5, 8])
def test_every_group_has_each_thing_once(things: int, groups: int) -> None:
    order = balanced_order(things, groups, seed=3)
    assert len(order) == groups
    assert all(sorted(group) == list(range(things)) for group in order)


def test_the_order_is_seeded() -> None:
    assert balanced_order(6, 8, seed=1) == balanced_order(6, 8, seed=1)
    assert balanced_order(6, 8, seed=1) != balanced_order(6, 8, seed=2)


def test_two_things_go_a_b_b_a() -> None:
    a, b = balanced_order(2, 4, seed=0)[0]
    assert balanced_order(2, 4, seed=0) == [[a, b], [b, a], [b, a], [a, b]]


@pytest.mark.parametrize("things", [2, 3, 6])
def test_a_steady_drift_hits_all_things_alike(things: int) -> None:
    turns = np.array(balanced_order(things, 8, seed=5)).ravel()
    times = [np.flatnonzero(turns == thing).mean() for thing in range(things)]
    assert times == pytest.approx([times[0]] * things)


def test_over_seeds_each_thing_is_first_equally_often() -> None:
    first = Counter(balanced_order(3, 4, seed)[0][0] for seed in range(600))
    assert all(150 < first[thing] < 250 for thing in range(3))


def test_warm_ups_take_no_places_of_the_balanced_order() -> None:
    turns = turns_of(2, warmup=2, repeats=4, seed=0)
    assert [group for group, _ in turns] == [-2, -1, 0, 1, 2, 3]
    assert [things for _, things in turns] == [[0, 1], [0, 1], *balanced_order(2, 4, seed=0)]
