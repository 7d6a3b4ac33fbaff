"""The sampler as a whole: what rows get, that rows don't disturb each other, and what comes out beside the ids."""

import numpy as np
import pytest
import torch

from serbench_codecs.plan import FAILED_ROW, Int32Array
from serbench_codecs.table import RequestTable
from serbench_engine.sampling.sampler import Sampler
from tests.engine.sampling.tables import all_rows, make_table, set_ids, set_parameters

VOCAB = 700
ROWS = 12


def some_logits(rows: int = ROWS, seed: int = 0) -> torch.Tensor:
    return torch.randn(rows, VOCAB, generator=torch.Generator().manual_seed(seed)) * 3


def mixed_table() -> RequestTable:
    """Rows of every kind, one after the other."""
    table = make_table(ROWS, VOCAB)
    kinds: list[dict[str, float]] = [
        {},
        {"temperature": 1.0},
        {"temperature": 0.8, "top_k": 20},
        {"temperature": 1.2, "top_p": 0.9},
        {"temperature": 1.0, "min_p": 0.05, "repetition_penalty": 1.2},
        {"frequency_penalty": 1.0, "presence_penalty": 0.5},
    ]
    rng = np.random.default_rng(5)
    for row in range(ROWS):
        ids = rng.integers(0, VOCAB, 10 + row).tolist()
        set_ids(table, row, ids[:6], ids[6:])
        set_parameters(table, row, seed=1000 + row, **kinds[row % len(kinds)])
    return table


def ids_of(logits: torch.Tensor, table: RequestTable, rows: Int32Array | None = None) -> list[int]:
    rows = all_rows(table) if rows is None else rows
    token_ids, _ = Sampler(VOCAB).sample(logits, table, rows)
    return [int(token_id) for token_id in token_ids]


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16, torch.float64])
def test_greedy_is_the_first_of_the_highest(dtype: torch.dtype) -> None:
    logits = some_logits().to(dtype)
    token_ids, logprobs = Sampler(VOCAB).sample(logits, make_table(ROWS, VOCAB), np.arange(ROWS, dtype=np.int32))
    assert token_ids.dtype == np.int32
    assert token_ids.tolist() == logits.argmax(1).tolist()
    assert logprobs is None


def test_nothing_due_gives_nothing() -> None:
    token_ids, logprobs = Sampler(VOCAB).sample(some_logits(0), make_table(2, VOCAB), np.empty(0, np.int32))
    assert (len(token_ids), logprobs) == (0, None)


def test_a_row_gets_the_same_id_alone_in_any_order_and_in_any_batch() -> None:
    table, logits = mixed_table(), some_logits()
    together = ids_of(logits, table)
    for row in range(ROWS):
        assert ids_of(logits[row : row + 1], table, np.array([row], np.int32)) == [together[row]]
    order = np.random.default_rng(1).permutation(ROWS).astype(np.int32)
    assert ids_of(logits[torch.from_numpy(order).long()], table, order) == [together[row] for row in order]
    some = np.array([7, 2, 9], np.int32)
    assert ids_of(logits[[7, 2, 9]], table, some) == [together[row] for row in some]


def test_a_request_that_moves_to_another_row_under_another_serial_goes_on_alike() -> None:
    table, logits = mixed_table(), some_logits()
    before = ids_of(logits, table)
    moved = mixed_table()
    order = np.roll(np.arange(ROWS), 5)  # preempted and admitted again elsewhere
    for name in ("token_ids", "num_tokens", "num_prompt_tokens", "sampling"):
        setattr(moved, name, getattr(table, name)[order].copy())
    moved.serial += 100
    assert ids_of(logits[torch.from_numpy(order)], moved) == [before[row] for row in order]


def test_one_sampler_over_changing_batches_answers_as_new_ones_would() -> None:
    table, sampler = mixed_table(), Sampler(VOCAB)
    rng = np.random.default_rng(2)
    for step in range(12):
        rows = np.sort(rng.choice(ROWS, rng.integers(1, ROWS + 1), replace=False)).astype(np.int32)
        logits = some_logits(len(rows), seed=step)
        if step % 3 == 2:  # a row is taken by another request
            table.serial[rows[0]] += 1000
            set_parameters(table, int(rows[0]), temperature=float(step % 2), seed=step)
        token_ids, _ = sampler.sample(logits, table, rows)
        assert token_ids.tolist() == ids_of(logits, table, rows)
        table.append_sampled(rows, token_ids)


def test_the_seed_and_the_output_index_decide() -> None:
    table = make_table(1, VOCAB)
    logits = torch.zeros(1, VOCAB)

    def drawn(seed: int, outputs: int) -> int:
        set_ids(table, 0, [1], [0] * outputs)
        set_parameters(table, 0, temperature=1.0, seed=seed)
        return ids_of(logits, table)[0]

    assert drawn(3, 0) == drawn(3, 0)
    assert len({drawn(3, outputs) for outputs in range(30)}) > 20
    assert len({drawn(seed, 0) for seed in range(30)}) > 20


@pytest.mark.parametrize("bad", [float("nan"), float("inf")])
def test_a_row_that_is_not_finite_fails_alone(bad: float) -> None:
    table = mixed_table()
    logits = some_logits()
    whole = ids_of(logits, table)
    broken = logits.clone()
    broken[[1, 6], [5, 5]] = bad  # one that draws, one that is greedy
    expected = [FAILED_ROW if row in (1, 6) else whole[row] for row in range(ROWS)]
    assert ids_of(broken, table) == expected


def test_a_row_of_nothing_but_minus_infinity_fails_and_some_do_no_harm() -> None:
    logits = some_logits(2)
    logits[0] = -torch.inf
    logits[1, :300] = -torch.inf
    table = make_table(2, VOCAB)
    set_parameters(table, 1, temperature=1.0, seed=1)
    token_ids = ids_of(logits, table)
    assert token_ids[0] == FAILED_ROW
    assert token_ids[1] >= 300


def test_min_tokens_keeps_stop_ids_away_until_they_may_come() -> None:
    table = make_table(1, VOCAB)
    logits = torch.zeros(1, VOCAB)
    logits[0, 42], logits[0, 43] = 9, 5
    table.stop_ids[0] = np.array([42], np.int32)
    set_parameters(table, 0, min_tokens=2)
    seen = []
    sampler = Sampler(VOCAB)
    for _ in range(4):
        token_ids, _ = sampler.sample(logits, table, all_rows(table))
        seen += token_ids.tolist()
        table.append_sampled(all_rows(table), token_ids)
    assert seen == [43, 43, 42, 42]


def test_a_row_whose_every_id_is_forbidden_fails() -> None:
    table = make_table(1, VOCAB)
    table.stop_ids[0] = np.arange(VOCAB, dtype=np.int32)
    set_parameters(table, 0, min_tokens=5, temperature=1.0)
    assert ids_of(some_logits(1), table) == [FAILED_ROW]


def test_the_logits_stay_as_they_were() -> None:
    logits = some_logits()
    before = logits.clone()
    ids_of(logits, mixed_table())
    assert torch.equal(logits, before)


def test_open_forgets_which_rows_needed_what() -> None:
    table, sampler = make_table(1, VOCAB), Sampler(VOCAB)
    logits = torch.zeros(1, VOCAB)
    sampler.sample(logits, table, all_rows(table))
    set_parameters(table, 0, temperature=1.0, seed=99)  # a new session: the same serial, another request
    sampler.open()
    assert sampler.sample(logits, table, all_rows(table))[0].tolist() == ids_of(logits, table)
    assert ids_of(logits, table) != [0]


def test_groups_of_rows_are_sampled_as_one_batch_would_be() -> None:
    """A vocabulary so large that rows are worked on a few at a time."""
    vocab = 1 << 21
    table = make_table(5, vocab, length=8)
    logits = torch.zeros(5, vocab)
    for row in range(5):
        set_parameters(table, row, temperature=1.0, seed=row)
    sampler = Sampler(vocab)
    together, _ = sampler.sample(logits, table, all_rows(table))
    alone = [int(sampler.sample(logits[:1], table, np.array([row], np.int32))[0][0]) for row in range(5)]
    assert together.tolist() == alone
    assert len(set(alone)) == 5
