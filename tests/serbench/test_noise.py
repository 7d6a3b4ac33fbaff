"""Tests what is told of noisy series, and what is not told of quiet ones. They do not know how a series came about."""

import numpy as np
import pytest

from serbench.noise import load_warning, noise_warnings


@pytest.mark.parametrize("rates", [[], [100.0], [100.0, 101.0, 99.0, 100.5, 100.0], [0.0, 5.0]])
def test_of_a_quiet_series_nothing_is_told(rates: list[float]) -> None:
    assert noise_warnings(rates) == []


@pytest.mark.parametrize(
    ("rates", "told", "to_do"),
    [
        ([100, 80, 120, 95, 110], "scatter by more than 5%", "end other programs"),
        ([70, 100, 101, 99, 100], "the first repeat was over 10% slower", "--warmup"),
        ([100, 95, 90.5, 85.5, 81], "fall by over 2% a repeat", "let the machine come to rest"),
        ([81, 85.5, 90.5, 95, 100], "rise by over 2% a repeat", "measure again"),
    ],
)
def test_each_kind_of_trouble_has_its_line_and_its_advice(rates: list[float], told: str, to_do: str) -> None:
    [line] = noise_warnings(rates)
    assert told in line
    assert to_do in line


def test_chance_is_seldom_told_as_a_trend() -> None:
    series = np.exp(np.random.default_rng(0).normal(0, 0.1, size=(1000, 5)))
    lines = [line for rates in series for line in noise_warnings(rates.tolist())]
    assert len(lines) > 800
    assert sum("a repeat:" in line for line in lines) < 30


def test_a_busy_machine_is_told() -> None:
    assert load_warning(0.9, 2) == []
    [line] = load_warning(3.25, 2)
    assert "3.2 on 2 cores" in line
