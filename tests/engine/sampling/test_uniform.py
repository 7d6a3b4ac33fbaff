"""Counter-based random numbers: pure, spread evenly, and unrelated between seeds and indices."""

import numpy as np

from serbench_engine.sampling.uniform import uniforms

SEEDS = np.arange(4096, dtype=np.uint64)


def test_a_number_depends_on_its_own_seed_and_index_only() -> None:
    together = uniforms(SEEDS, np.arange(4096))
    alone = [uniforms(SEEDS[i : i + 1], np.array([i]))[0] for i in (0, 1, 77, 4095)]
    assert together[[0, 1, 77, 4095]].tolist() == alone


def test_they_are_spread_evenly_over_indices_and_over_seeds() -> None:
    for drawn in (
        uniforms(np.full(4096, 12345, np.uint64), np.arange(4096)),
        uniforms(SEEDS, np.zeros(4096, np.int64)),
    ):
        assert drawn.min() >= 0
        assert drawn.max() < 1
        counts = np.histogram(drawn, bins=64, range=(0, 1))[0]
        assert ((counts - 64) ** 2 / 64).sum() < 103.4  # chi-square, 63 degrees of freedom, p = 0.001


def test_neighbouring_seeds_and_indices_are_unrelated() -> None:
    grid = uniforms(np.repeat(SEEDS[:64], 64), np.tile(np.arange(64), 64)).reshape(64, 64)
    assert len(np.unique(grid)) == grid.size
    for one, other in ((grid[:-1], grid[1:]), (grid[:, :-1], grid[:, 1:]), (grid[:-1, 1:], grid[1:, :-1])):
        assert abs(np.corrcoef(one.ravel(), other.ravel())[0, 1]) < 0.06  # 4 standard errors


def test_large_seeds_are_told_apart() -> None:
    top = np.array([2**64 - 1, 2**64 - 2, 2**63], dtype=np.uint64)
    assert len(set(uniforms(top, np.zeros(3, np.int64)).tolist())) == 3
