"""Tests when requests arrive: at random by seed, by a trace's clock, or together. They do not know who serves them."""

import numpy as np
import pytest

from serbench.errors import ExperimentError
from serbench.workload.arrivals import ArrivingWorkload
from serbench.workload.spec import Arrivals, Synthetic
from serbench.workload.synthetic import SyntheticWorkload

SPEC = Synthetic(num_prompts=2000)


def times_ns(arrivals: Arrivals, group: int = 0, seed: int = 0) -> list[int]:
    inner = SyntheticWorkload(SPEC, seed=seed, vocab_size=50, avoid=[], max_model_len=1000)
    return [one.arrives_ns for one in ArrivingWorkload(inner, arrivals, seed=seed).requests(group)]


def poisson(rate: float) -> Arrivals:
    return Arrivals(kind="poisson", request_rate=rate)


def test_random_arrivals_have_the_rate_and_the_scatter_of_a_poisson_process() -> None:
    times = np.array(times_ns(poisson(40.0)))
    assert times[0] == 0
    gaps_s = np.diff(times) / 1e9
    assert (gaps_s >= 0).all()
    assert gaps_s.mean() == pytest.approx(1 / 40, rel=0.1)
    assert gaps_s.std() == pytest.approx(gaps_s.mean(), rel=0.1)


def test_random_arrivals_go_by_seed_and_group() -> None:
    assert times_ns(poisson(1.0)) == times_ns(poisson(1.0))
    assert len({tuple(times_ns(poisson(1.0), group, seed)) for group in (-1, 0, 1) for seed in (0, 1)}) == 6


def test_another_rate_stretches_the_same_pattern() -> None:
    slow, fast = np.array(times_ns(poisson(1.0))), np.array(times_ns(poisson(4.0)))
    assert np.allclose(slow, fast * 4, atol=4)


def test_together_is_at_once() -> None:
    assert set(times_ns(Arrivals(max_concurrency=3))) == {0}


@pytest.mark.parametrize(
    ("options", "complaint"),
    [
        ({"kind": "poisson"}, "poisson arrivals, and only they, need one"),
        ({"request_rate": 3.0}, "poisson arrivals, and only they, need one"),
        ({"kind": "poisson", "request_rate": 0.0}, "request_rate is 0.0"),
        ({"kind": "poisson", "request_rate": float("inf")}, "request_rate is inf"),
        ({"kind": "trace", "time_scale": -1.0}, "time_scale is -1.0"),
        ({"time_scale": 2.0}, "time_scale 2.0 scales a trace's clock"),
        ({"max_concurrency": 0}, "max_concurrency is 0"),
    ],
)
def test_arrivals_that_can_t_be(options: dict[str, object], complaint: str) -> None:
    with pytest.raises(ExperimentError, match=complaint):
        Arrivals(**options)  # type: ignore[arg-type]


def test_arrivals_in_words() -> None:
    assert str(Arrivals(max_concurrency=4)) == "all at once, at most 4 at once"
    assert str(poisson(2.5)) == "at random, 2.5/s"
    assert str(Arrivals(kind="trace", time_scale=0.5)) == "by the file's clock × 0.5"
