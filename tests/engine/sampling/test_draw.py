"""Truncation against the transformers library's processors, and the distribution of what is drawn."""

import numpy as np
import numpy.typing as npt
import pytest
import torch
from transformers import (
    LogitsProcessorList,
    MinPLogitsWarper,
    TemperatureLogitsWarper,
    TopKLogitsWarper,
    TopPLogitsWarper,
)

from serbench_engine.sampling.draw import DrawParameters, draw, integer_weights, truncate
from serbench_engine.sampling.uniform import uniforms

VOCAB = 3000  # more than the ids that top-p looks at first


def parameters(
    rows: int, temperature: float = 1.0, top_k: int = 0, top_p: float = 1.0, min_p: float = 0.0, seed: int = 1
) -> DrawParameters:
    return DrawParameters(
        temperature=np.full(rows, temperature),
        top_k=np.full(rows, top_k, np.int64),
        top_p=np.full(rows, top_p),
        min_p=np.full(rows, min_p),
        uniform=uniforms(np.full(rows, seed, np.uint64), np.arange(rows)),
    )


def scores(rows: int, vocab: int = VOCAB, spread: float = 3.0) -> torch.Tensor:
    return torch.randn(rows, vocab, generator=torch.Generator().manual_seed(rows + vocab)) * spread


def their_probabilities(given: torch.Tensor, own: DrawParameters) -> npt.NDArray[np.float64]:
    """The transformers library's, in its order: temperature, top-k, top-p, min-p. float64[n, vocab]."""
    warpers = LogitsProcessorList()
    warpers.append(TemperatureLogitsWarper(float(own.temperature[0])))
    if own.top_k[0]:
        warpers.append(TopKLogitsWarper(int(own.top_k[0])))
    if own.top_p[0] < 1:
        warpers.append(TopPLogitsWarper(float(own.top_p[0])))
    if own.min_p[0]:
        warpers.append(MinPLogitsWarper(float(own.min_p[0])))
    warped = warpers(torch.zeros(len(given), 1, dtype=torch.long), given.double())
    return torch.softmax(warped, -1).numpy()


@pytest.mark.parametrize(
    "options",
    [
        {"temperature": 0.7},
        {"temperature": 2.5},
        {"top_k": 1},
        {"top_k": 40},
        {"top_k": 2000},
        {"top_k": VOCAB},
        {"top_k": VOCAB + 1},
        {"top_p": 0.01},
        {"top_p": 0.9},
        {"top_p": 0.9, "temperature": 4.0},  # nearly flat: the nucleus is wider than what is looked at first
        {"top_p": 0.999},
        {"min_p": 0.05},
        {"min_p": 1.0},
        {"top_k": 50, "top_p": 0.8},
        {"top_k": 5, "top_p": 0.999},
        {"top_k": 100, "top_p": 0.95, "min_p": 0.02, "temperature": 1.3},
    ],
    ids=str,
)
def test_what_is_kept_and_with_which_probability_is_as_in_the_transformers_library(options: dict[str, float]) -> None:
    given = scores(6)
    own = parameters(6, **options)  # type: ignore[arg-type]
    weights = truncate(integer_weights(given, own.temperature), own).double()
    ours = (weights / weights.sum(1, keepdim=True)).numpy()
    theirs = their_probabilities(given, own)
    assert (theirs > 0).any()
    np.testing.assert_allclose(ours, theirs, rtol=1e-5, atol=1e-9)
    kept = theirs > 1e-9
    assert ((ours > 0) == (theirs > 0))[kept].all()
    assert not (ours[theirs == 0] > 0).any()


def test_ties_are_kept_or_dropped_together() -> None:
    given = torch.tensor([[2.0, 1.0, 2.0, 1.0, 0.0]])
    weights = integer_weights(given, np.ones(1))
    assert (truncate(weights.clone(), parameters(1, top_k=1)) > 0).tolist() == [[True, False, True, False, False]]
    assert (truncate(weights.clone(), parameters(1, top_k=3)) > 0).tolist() == [[True, True, True, True, False]]
    assert (truncate(weights.clone(), parameters(1, top_p=0.4)) > 0).tolist() == [[True, False, True, False, False]]


@pytest.mark.parametrize(
    "options",
    [{}, {"temperature": 0.5}, {"top_k": 4}, {"top_p": 0.7}, {"min_p": 0.2}, {"top_k": 6, "top_p": 0.9}],
    ids=str,
)
def test_what_is_drawn_has_the_distribution(options: dict[str, float]) -> None:
    draws = 20_000
    one = scores(1, vocab=12, spread=1.0)
    own = parameters(draws, **options)  # type: ignore[arg-type]
    drawn = draw(one.expand(draws, -1).clone(), own).numpy()
    expected = their_probabilities(one, own.part(np.array([0])))[0] * draws
    counts = np.bincount(drawn, minlength=12)
    assert counts[expected == 0].sum() == 0
    some = expected > 0
    chi_square = ((counts - expected)[some] ** 2 / expected[some]).sum()
    assert chi_square < 31.3  # p = 0.001 with 11 degrees of freedom, the most there are here


def test_the_ends_of_the_unit_interval_draw_the_first_and_the_last_kept_id() -> None:
    own = parameters(2, top_k=3)
    own.uniform[:] = [0.0, 1 - 2.0**-53]
    given = torch.tensor([[0.0, 5.0, 4.0, 3.0, 1.0]]).expand(2, -1).clone()
    assert draw(given, own).tolist() == [1, 3]


def test_a_temperature_near_zero_is_greedy() -> None:
    given = scores(50)
    assert (draw(given, parameters(50, temperature=1e-6)) == given.argmax(1)).all()


@pytest.mark.parametrize("options", [{}, {"top_k": 30}, {"top_p": 0.95}, {"min_p": 0.01, "temperature": 3.0}], ids=str)
def test_a_row_is_drawn_alike_whatever_stands_beside_it(options: dict[str, float]) -> None:
    given = scores(24)
    own = parameters(24, **options)  # type: ignore[arg-type]
    together = draw(given, own)
    alone = torch.cat([draw(given[i : i + 1], own.part(np.array([i]))) for i in range(24)])
    assert (together == alone).all()
    shuffled = np.random.default_rng(3).permutation(24)
    assert (draw(given[torch.from_numpy(shuffled)], own.part(shuffled)) == together[torch.from_numpy(shuffled)]).all()
