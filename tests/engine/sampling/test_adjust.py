"""Penalties against the transformers library and their formulas, and stop ids that may not come yet."""

import numpy as np
import pytest
import torch
from transformers import RepetitionPenaltyLogitsProcessor

from serbench_engine.sampling.adjust import forbid_early_stop, penalize
from tests.engine.sampling.tables import all_rows, make_table, set_ids, set_parameters

VOCAB = 50


def some_scores(rows: int) -> torch.Tensor:
    return torch.randn(rows, VOCAB, generator=torch.Generator().manual_seed(7)) * 4


@pytest.mark.parametrize("penalty", [1.3, 0.8])
def test_the_repetition_penalty_is_the_transformers_librarys(penalty: float) -> None:
    table = make_table(2, VOCAB)
    set_ids(table, 0, [3, 3, 9], [9, 20])
    set_ids(table, 1, [1], [])
    for row in (0, 1):
        set_parameters(table, row, repetition_penalty=penalty)
    scores = some_scores(2)
    processor = RepetitionPenaltyLogitsProcessor(penalty)
    expected = [processor(torch.tensor([ids]), scores[i : i + 1].clone()) for i, ids in enumerate([[3, 9, 20], [1]])]
    penalize(scores, table, all_rows(table))
    torch.testing.assert_close(scores, torch.cat(expected), rtol=1e-6, atol=0)


def test_frequency_and_presence_count_the_output_only() -> None:
    table = make_table(1, VOCAB)
    set_ids(table, 0, [5, 5, 5], [7, 7, 8])
    set_parameters(table, 0, frequency_penalty=0.5, presence_penalty=0.25)
    before = some_scores(1)
    scores = before.clone()
    penalize(scores, table, all_rows(table))
    expected = torch.zeros(VOCAB)
    expected[7], expected[8] = 2 * 0.5 + 0.25, 0.5 + 0.25
    torch.testing.assert_close(before[0] - scores[0], expected)


def test_rows_are_penalized_by_their_own_parameters_and_ids() -> None:
    table = make_table(4, VOCAB)
    for row, (prompt, output) in enumerate([([1, 2], [3]), ([4], [5, 5]), ([6], []), ([7, 8, 9], [1])]):
        set_ids(table, row, prompt, output)
    set_parameters(table, 0, repetition_penalty=1.5)
    set_parameters(table, 1, frequency_penalty=-1.0)
    set_parameters(table, 2, presence_penalty=2.0)  # no output yet: nothing to subtract
    before = some_scores(4)
    together = before.clone()
    penalize(together, table, np.array([3, 1, 0, 2], np.int32))
    changed = [sorted(torch.nonzero(row)[:, 0].tolist()) for row in together - before]
    assert changed == [[], [5], [1, 2, 3], []]
    alone = before[2:3].clone()
    penalize(alone, table, np.array([0], np.int32))
    assert torch.equal(alone[0], together[2])


def test_penalties_compose_repetition_first() -> None:
    table = make_table(1, VOCAB)
    set_ids(table, 0, [0], [4])
    set_parameters(table, 0, repetition_penalty=2.0, presence_penalty=1.0)
    scores = torch.full((1, VOCAB), 8.0)
    penalize(scores, table, all_rows(table))
    assert scores[0, [4, 0, 1]].tolist() == [8 / 2 - 1, 8 / 2, 8]


def test_stop_ids_are_forbidden_below_min_tokens_and_allowed_from_there() -> None:
    table = make_table(3, VOCAB)
    for row, output in enumerate([[1], [1, 1], [1, 1, 1]]):
        set_ids(table, row, [0], output)
        set_parameters(table, row, min_tokens=2)
        table.stop_ids[row] = np.array([2, 11], np.int32)
    scores = some_scores(3)
    forbid_early_stop(scores, table, all_rows(table))
    forbidden = torch.isneginf(scores)
    assert torch.nonzero(forbidden).tolist() == [[0, 2], [0, 11]]
