"""Block pool: conservation, reference counts, least recently used first, what can be found."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from serbench_engine.blocks import BlockPool, chain_hash


def test_free_blocks_are_reused_least_recently_used_first() -> None:
    pool = BlockPool(4)
    first = pool.allocate(4)
    pool.release(first[2:3])
    pool.release(first[0:1])
    assert pool.allocate(2).tolist() == [first[2], first[0]]


def test_the_end_of_a_sequence_is_reused_before_its_start() -> None:
    pool = BlockPool(3)
    blocks = pool.allocate(3)
    pool.release(blocks)
    assert pool.allocate(3).tolist() == blocks[::-1].tolist()


def test_a_freed_block_is_findable_until_it_is_handed_out_again() -> None:
    pool = BlockPool(2)
    block = int(pool.allocate(1)[0])
    pool.publish([block], [b"content"])
    pool.release(np.array([block], dtype=np.int32))
    assert pool.find([b"content"]) == [block]
    pool.allocate(2)
    assert pool.find([b"content"]) == []


def test_held_blocks_are_shared_and_freed_by_the_last_holder() -> None:
    pool = BlockPool(2)
    taken = pool.allocate(1)
    pool.publish([int(taken[0])], [b"c"])
    found = pool.find([b"c"])
    assert pool.count_idle(found) == 0
    pool.hold(found)
    pool.release(taken)
    assert pool.num_free == 1
    pool.release(taken)
    assert pool.num_free == 2
    assert pool.count_idle(found) == 1


def test_a_prefix_ends_at_the_first_block_that_is_not_there() -> None:
    pool = BlockPool(4)
    blocks = pool.allocate(3).tolist()
    pool.publish(blocks, [b"0", b"1", b"3"])
    assert pool.find([b"0", b"1", b"2", b"3"]) == blocks[:2]


def test_the_first_block_with_a_content_stays_the_one() -> None:
    pool = BlockPool(2)
    one, two = pool.allocate(2).tolist()
    pool.publish([one, two], [b"same", b"same"])
    assert pool.find([b"same"]) == [one]


def test_blocks_that_are_put_back_leave_no_trace() -> None:
    pool = BlockPool(4)
    old, newer, *_ = pool.allocate(4).tolist()
    pool.publish([old], [b"c"])
    pool.release(np.array([2, 3, old], dtype=np.int32))
    taken = pool.take(3)
    pool.publish([newer], [b"c"])  # not the first
    pool.put_back(taken)
    assert pool.find([b"c"]) == [old]
    assert pool.allocate(3).tolist() == taken.tolist()
    assert pool.find([b"c"]) == []
    pool.publish([newer], [b"d"])
    assert pool.find([b"d"]) == [newer]


def test_what_taken_blocks_held_is_findable_until_it_is_forgotten() -> None:
    pool = BlockPool(2)
    old, newer = pool.allocate(2).tolist()
    pool.publish([old], [b"c"])
    pool.release(np.array([old], dtype=np.int32))
    pool.take(1)
    pool.publish([newer], [b"c"])
    assert pool.find([b"c"]) == [old]
    pool.forget_taken()
    assert pool.find([b"c"]) == []


@pytest.mark.parametrize("seed", range(20))
def test_the_queue_stays_short_and_in_order_however_often_free_blocks_are_held(seed: int) -> None:
    rng = np.random.default_rng(seed)
    pool, free, held = BlockPool(12), list(range(12)), list[int]()
    for _ in range(300):
        some = rng.permutation(free if rng.random() < 0.5 else held)[: rng.integers(1, 6)].tolist()
        if set(some) <= set(held):
            pool.release(np.array(some, dtype=np.int32))
            free += some[::-1]
            held = [block for block in held if block not in some]
        elif rng.random() < 0.9:
            pool.hold(some)
            held += some
            free = [block for block in free if block not in some]
        else:
            taken = pool.allocate(len(some)).tolist()
            assert taken == free[: len(some)]
            held += taken
            free = free[len(some) :]
        assert pool.num_free == len(free)
        assert len(pool._free) <= 2 * 12


def test_a_chain_hash_depends_on_all_before_it() -> None:
    ids = np.arange(16, dtype=np.int32)
    assert chain_hash(chain_hash(b"", ids), ids) != chain_hash(b"", ids)
    assert len(chain_hash(b"", ids)) == 16


@given(st.lists(st.tuples(st.sampled_from(["take", "drop", "share"]), st.integers(0, 7)), max_size=60))
def test_no_block_is_lost_or_given_twice(moves: list[tuple[str, int]]) -> None:
    pool = BlockPool(8)
    held: list[np.ndarray] = []
    for move, number in moves:
        if move == "take" and number <= pool.num_free:
            blocks = pool.allocate(number)
            if number:
                pool.publish([int(blocks[0])], [bytes([blocks[0]])])
                held.append(blocks)
        elif move == "drop" and held:
            pool.release(held.pop(number % len(held)))
        elif move == "share":
            found = pool.find([bytes([number])])
            if found:
                pool.hold(found)
                held.append(np.array(found, dtype=np.int32))
        distinct = set(np.concatenate(held).tolist()) if held else set()
        assert pool.num_free == 8 - len(distinct)
