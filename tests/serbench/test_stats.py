"""Tests intervals and verdicts, on simulated noise above all. They do not know the harness."""

import math

import numpy as np
import pytest

from serbench.interleave import balanced_order
from serbench.stats import (
    CONFIDENCE,
    DRIFT,
    FloatArray,
    Interval,
    deviation_of,
    judge,
    paired_t,
    percentile,
    repeats_needed,
    variation,
)

SEEDS = range(2000)
REPEATS = 5
NOISE = 0.015
MAX_FALSE_ALARMS = 0.065


def drifting(shocks: FloatArray, rho: float) -> FloatArray:
    """AR(1) noise float64[..., passes] of standard deviation 1 over consecutive passes, from independent shocks."""
    levels = shocks.copy()
    for i in range(1, shocks.shape[-1]):
        levels[..., i] = rho * levels[..., i - 1] + math.sqrt(1 - rho * rho) * shocks[..., i]
    return levels


def simulated_pairs(
    noise: float,
    rho: float = 0.0,
    effect: float = 0.0,
    *,
    repeats: int = REPEATS,
    things: int = 2,
    other: int = 1,
    seeds: range = SEEDS,
) -> FloatArray:
    """Log-ratios float64[seeds, repeats] of ``other`` to the first of the things, which take turns as in the harness.

    Each pass has noise of the given standard deviation; the machine drifts from pass to pass with correlation ``rho``.
    """
    shocks = np.stack([np.random.default_rng(seed).standard_normal(things * repeats) for seed in seeds])
    turns = np.array([balanced_order(things, repeats, seed) for seed in seeds])  # [seeds, repeats, turns of a group]
    levels = drifting(shocks, rho).reshape(turns.shape)
    by_thing = np.take_along_axis(levels, np.argsort(turns, axis=2), axis=2)
    return noise * (by_thing[..., other] - by_thing[..., 0]) + effect


def share_different(log_ratios: FloatArray) -> float:
    center, half = paired_t(log_ratios)
    return float(np.mean(np.abs(center) > half))


@pytest.mark.parametrize("repeats", [4, 5, 6, 7, 8, 10, 13, 16, 20])
@pytest.mark.parametrize("rho", [0.0, 0.3, 0.7])
def test_false_alarms_stay_below_the_limit(rho: float, repeats: int) -> None:
    assert share_different(simulated_pairs(NOISE, rho, repeats=repeats)) <= MAX_FALSE_ALARMS


@pytest.mark.parametrize(("things", "other"), [(3, 1), (3, 2), (6, 1), (6, 3), (6, 5)])
@pytest.mark.parametrize("rho", [0.0, 0.3, 0.7])
def test_false_alarms_of_the_kth_of_several_things_too(rho: float, things: int, other: int) -> None:
    assert share_different(simulated_pairs(NOISE, rho, things=things, other=other)) <= MAX_FALSE_ALARMS


@pytest.mark.parametrize("rho", [0.5, 0.7])
def test_what_the_interval_is_widened_by_for_drift_is_needed_and_enough(rho: float) -> None:
    center, half = paired_t(simulated_pairs(NOISE, rho, seeds=range(20_000)))
    assert np.mean(np.abs(center) > half) < 0.052 < np.mean(np.abs(center) > half / DRIFT)


def test_the_limit_would_catch_an_interval_that_is_too_narrow() -> None:
    center, half = paired_t(simulated_pairs(NOISE, 0.7))
    assert np.mean(np.abs(center) > 0.8 * half) > MAX_FALSE_ALARMS


def test_measured_one_after_the_other_a_drift_would_be_a_difference() -> None:
    # What the order is for: A A A A A then B B B B B finds "differences" in the machine's drift.
    shocks = np.stack([np.random.default_rng(seed).standard_normal(2 * REPEATS) for seed in SEEDS])
    levels = drifting(shocks, 0.7)
    assert share_different(levels[:, REPEATS:] - levels[:, :REPEATS]) > 2 * MAX_FALSE_ALARMS


@pytest.mark.parametrize("effect", [1.05, 1 / 1.05])
@pytest.mark.parametrize(("repeats", "share"), [(5, 0.95), (4, 0.82)])
def test_a_true_change_of_five_percent_is_found(repeats: int, share: float, effect: float) -> None:
    center, half = paired_t(simulated_pairs(NOISE, effect=math.log(effect), repeats=repeats))
    found = np.mean(np.where(effect > 1, center - half > 0, center + half < 0))
    assert found == pytest.approx(share, abs=0.02)


def test_the_interval_covers_the_truth_at_least_as_often_as_it_says() -> None:
    center, half = paired_t(simulated_pairs(0.03, effect=0.1))
    assert CONFIDENCE - 0.005 <= np.mean(np.abs(center - 0.1) <= half) <= CONFIDENCE + 0.02


def test_the_interval_is_students_widened_for_drift() -> None:
    center, half = paired_t(np.array([0.1, 0.2, 0.3, 0.4]))
    assert center == pytest.approx(0.25)
    assert half == pytest.approx(DRIFT * 3.182446 * np.std([0.1, 0.2, 0.3, 0.4], ddof=1) / 2, rel=1e-6)


@pytest.mark.parametrize(("higher_is_better", "verdict"), [(True, "faster"), (False, "slower")])
def test_a_clear_difference_is_named_by_what_is_better(higher_is_better: bool, verdict: str) -> None:
    finding = judge([100, 101, 99, 100], [120, 122, 119, 121], higher_is_better=higher_is_better)
    assert finding.verdict == verdict
    assert finding.low is not None
    assert finding.high is not None
    assert 1.0 < finding.low < finding.ratio < finding.high
    assert finding.ratio == pytest.approx(1.205, abs=0.001)


def test_identical_figures_show_no_difference() -> None:
    finding = judge([3.0] * 5, [3.0] * 5, higher_is_better=True)
    assert (finding.ratio, finding.low, finding.high, finding.verdict) == (1.0, 1.0, 1.0, "no difference shown")


def test_a_wide_interval_is_too_noisy_and_says_what_would_settle_it() -> None:
    finding = judge([100, 80, 120, 100, 90], [90, 100, 110, 80, 120], higher_is_better=True)
    assert finding.verdict == "too noisy to tell"
    assert "even 50 repeats won't settle it: end other programs" in finding.advice
    settled = judge([100, 92, 108, 100, 95], [95, 100, 104, 92, 108], higher_is_better=True)
    assert settled.verdict == "too noisy to tell"
    assert "--repeats" in settled.advice


def test_an_interval_that_reaches_far_to_one_side_shows_no_equality() -> None:
    finding = judge([1] * 4, [1.03, 1.13, 1.06, 1.15], higher_is_better=True)
    assert finding.low is not None
    assert finding.high is not None
    assert finding.low < 1 < 1.1 < finding.high < 1.1 * 1.1  # it is no wider than one that is told from noise
    assert finding.verdict == "too noisy to tell"


def test_fewer_than_four_pairs_are_too_few() -> None:
    finding = judge([1, 1, 1], [2, 2, 2], higher_is_better=True)
    assert (finding.verdict, finding.low, finding.high) == ("too few repeats", None, None)
    assert finding.ratio == pytest.approx(2)
    assert "at least 4 repeats" in finding.advice


def test_another_interval_can_take_its_place() -> None:
    def certain(log_ratios: FloatArray) -> Interval:
        return Interval(log_ratios.mean(axis=-1), np.zeros(()))

    assert judge([1.0] * 4, [1.0, 1.0, 1.0, 1.001], higher_is_better=True, interval_of=certain).verdict == "faster"


@pytest.mark.parametrize(("first", "other"), [([], []), ([1.0], [1.0, 2.0]), ([1.0, 0.0], [1.0, 1.0])])
def test_figures_that_make_no_ratio_are_refused(first: list[float], other: list[float]) -> None:
    with pytest.raises(ValueError, match="figures"):
        judge(first, other, higher_is_better=True)


def test_repeats_needed_narrows_the_interval() -> None:
    needed = repeats_needed(0.05, math.log(1.05))
    assert needed is not None
    sample = np.random.default_rng(0).normal(0, 0.05, size=(4000, needed))
    assert np.median(paired_t(sample).half) <= math.log(1.05)
    assert repeats_needed(1.0, math.log(1.05)) is None


def test_the_scatter_is_found_again_in_a_finding() -> None:
    first, other = [100.0, 80.0, 120.0, 100.0, 90.0], [90.0, 100.0, 110.0, 80.0, 120.0]
    finding = judge(first, other, higher_is_better=True)
    assert deviation_of(finding) == pytest.approx(np.std(np.log(other) - np.log(first), ddof=1))
    assert deviation_of(judge([1.0], [2.0], higher_is_better=True)) == 0.0


def test_percentiles_interpolate() -> None:
    assert percentile(np.array([1.0, 2.0, 3.0, 4.0]), 50) == 2.5
    assert percentile(np.array([7.0]), 99) == 7.0


def test_variation_is_a_share_of_the_mean() -> None:
    assert variation([90.0, 110.0]) == pytest.approx(0.1414, abs=1e-4)
    assert variation([5.0]) == 0.0
