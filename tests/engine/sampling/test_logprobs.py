"""Log-probabilities: against log_softmax of the raw logits, ragged over rows, ranks and rows that failed."""

import numpy as np
import torch

from serbench_codecs.plan import Logprobs
from serbench_engine.sampling.sampler import Sampler
from tests.engine.sampling.tables import all_rows, make_table, set_parameters

VOCAB = 90


def some_logits(rows: int) -> torch.Tensor:
    return torch.randn(rows, VOCAB, generator=torch.Generator().manual_seed(4)) * 3


def entries(logprobs: Logprobs, i: int) -> tuple[list[int], list[float], list[int]]:
    """Ids, values and ranks of sampled row i."""
    ends = np.cumsum(logprobs.counts)
    part = slice(ends[i] - logprobs.counts[i], ends[i])
    return logprobs.token_ids[part].tolist(), logprobs.values[part].tolist(), logprobs.ranks[part].tolist()


def test_each_row_gets_what_it_asked_for() -> None:
    table, logits = make_table(5, VOCAB), some_logits(5)
    for row, wanted in enumerate([2, -1, 0, 5, 1000]):
        set_parameters(table, row, num_logprobs=wanted)
    token_ids, logprobs = Sampler(VOCAB).sample(logits, table, all_rows(table))
    assert logprobs is not None
    assert logprobs.counts.tolist() == [3, 0, 1, 6, VOCAB + 1]
    expected = torch.log_softmax(logits, -1)
    for row in (0, 2, 3, 4):
        ids, values, ranks = entries(logprobs, row)
        assert ids[0] == token_ids[row]
        np.testing.assert_allclose(values, expected[row, ids].numpy(), rtol=1e-6)
        best = expected[row].argsort(descending=True)[: len(ids) - 1].tolist()
        assert ids[1:] == best
        assert ranks == [1, *range(1, len(ids))]
    dtypes = [column.dtype.name for column in (logprobs.counts, logprobs.token_ids, logprobs.values, logprobs.ranks)]
    assert dtypes == ["int32", "int32", "float32", "int32"]


def test_they_are_of_the_raw_logits_and_rank_the_sampled_id() -> None:
    table, logits = make_table(1, VOCAB), some_logits(1)
    set_parameters(table, 0, num_logprobs=1, temperature=5.0, seed=8, repetition_penalty=3.0)
    token_ids, logprobs = Sampler(VOCAB).sample(logits, table, all_rows(table))
    assert logprobs is not None
    ids, values, ranks = entries(logprobs, 0)
    sampled = int(token_ids[0])
    order = logits[0].argsort(descending=True).tolist()
    assert sampled != order[0]  # else this shows nothing
    assert (ids, ranks) == ([sampled, order[0]], [order.index(sampled) + 1, 1])
    np.testing.assert_allclose(values, torch.log_softmax(logits[0], -1)[ids].numpy(), rtol=1e-6)


def test_equally_likely_ids_share_the_better_rank() -> None:
    table = make_table(1, VOCAB)
    logits = torch.zeros(1, VOCAB)
    logits[0, 7] = logits[0, 9] = 2
    set_parameters(table, 0, num_logprobs=0)
    token_ids, logprobs = Sampler(VOCAB).sample(logits, table, all_rows(table))
    assert logprobs is not None
    assert (token_ids.tolist(), logprobs.ranks.tolist()) == ([7], [1])


def test_a_row_that_failed_has_no_entries() -> None:
    table, logits = make_table(2, VOCAB), some_logits(2)
    logits[0, 0] = torch.nan
    for row in (0, 1):
        set_parameters(table, row, num_logprobs=3)
    _, logprobs = Sampler(VOCAB).sample(logits, table, all_rows(table))
    assert logprobs is not None
    assert logprobs.counts.tolist() == [0, 4]
    assert len(logprobs.values) == 4


def test_a_row_has_the_same_entries_whatever_others_ask_for() -> None:
    table = make_table(3, VOCAB)
    logits = some_logits(3).round()  # many equally likely ids
    for row, wanted in enumerate([2, 7, 2]):
        set_parameters(table, row, num_logprobs=wanted)
    _, together = Sampler(VOCAB).sample(logits, table, all_rows(table))
    assert together is not None
    for row in range(3):
        _, alone = Sampler(VOCAB).sample(logits[row : row + 1], table, np.array([row], np.int32))
        assert alone is not None
        assert entries(alone, 0) == entries(together, row)
