"""What the scheduler does early or leaves out to save time must change no plan."""

import itertools

import msgspec
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from serbench_engine.request import SamplingParams
from serbench_engine.scheduler import Scheduler
from tests.engine.scheduling import Bench
from tests.engine.serving import greedy


def written(bench: Bench) -> list[bytes]:
    """Every plan of a bench, byte for byte."""
    return [msgspec.msgpack.encode(plan, enc_hook=np.ndarray.tolist) for plan in bench.plans]


def crowd(seed: int, *, looks_ahead: bool = False, prefix_caching: bool = True) -> Bench:
    """Serve requests of very few contents in too few blocks: drawn from ``seed``."""
    rng = np.random.default_rng(seed)
    size, budget, vocab = (int(rng.choice(some)) for some in ([1, 4], [16], [1, 2]))
    num_blocks = 32 // size * int(rng.integers(1, 4)) + int(rng.integers(0, 3))
    bench = Bench(int(rng.choice([2, 3, 6])), 32, num_blocks, budget, prefix_caching, looks_ahead, size)
    num_requests, added = int(rng.integers(5, 20)), 0
    while added < num_requests or bench.scheduler.has_unfinished:
        while added < num_requests and rng.random() < 0.3:
            prompt = rng.integers(0, vocab, rng.integers(1, 31), dtype=np.int32)
            bench.next_ids[str(added)] = (np.arange(len(prompt), 32) * 7 % vocab).tolist()
            bench.add_prompt(str(added), prompt, greedy(int(rng.integers(1, 33 - len(prompt)))))
            added += 1
        bench.step()
    return bench


@pytest.mark.parametrize("seed", range(60))
def test_plans_are_the_same_looking_ahead_where_many_blocks_hold_the_same(seed: int) -> None:
    """What the running step publishes may be what a block taken ahead holds."""
    assert written(crowd(seed, looks_ahead=False)) == written(crowd(seed, looks_ahead=True))


@pytest.mark.parametrize("prefix_caching", [False, True])
@pytest.mark.parametrize("seed", range(60))
def test_plans_are_the_same_whether_or_not_the_queue_is_looked_at_in_vain(
    seed: int, prefix_caching: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    plans = written(crowd(seed, looks_ahead=True, prefix_caching=prefix_caching))
    monkeypatch.setattr(Scheduler, "_may_fit", lambda self: True)
    assert plans == written(crowd(seed, looks_ahead=True, prefix_caching=prefix_caching))
    monkeypatch.setattr(Scheduler, "_become_steady", lambda self, plan: None)
    assert plans == written(crowd(seed, prefix_caching=prefix_caching))


@settings(deadline=None)
@given(
    st.lists(st.tuples(st.integers(0, 30), st.integers(1, 24), st.integers(1, 24)), min_size=1, max_size=8),
    st.integers(1, 4),
    st.integers(12, 40),
    st.integers(4, 30),
    st.booleans(),
    st.lists(st.tuples(st.integers(0, 30), st.integers(0, 7)), max_size=4),
    st.lists(st.integers(0, 99), max_size=30),
)
def test_plans_are_the_same_whether_or_not_it_looks_ahead(
    arrivals: list[tuple[int, int, int]],
    num_rows: int,
    num_blocks: int,
    budget: int,
    prefix_caching: bool,
    aborts: list[tuple[int, int]],
    ids: list[int],
) -> None:
    """Requests that come late, are aborted or stop early take back what was done ahead."""
    benches = [Bench(num_rows, 64, num_blocks, budget, prefix_caching, looks_ahead) for looks_ahead in (False, True)]
    for bench in benches:
        bench.next_ids = {str(i): ids[i:] for i in range(len(arrivals))}
        for turn in itertools.count():
            for i, (begin, prompt_len, output_len) in enumerate(arrivals):
                if turn == begin:
                    bench.add(str(i), prompt_len, SamplingParams(temperature=0, max_tokens=output_len))
            for step, which in aborts:
                if step == turn and str(which) in bench.requests:
                    bench.scheduler.abort(bench.requests[str(which)])
            bench.step()
            if turn > 30 and not bench.scheduler.has_unfinished:
                break
    assert written(benches[0]) == written(benches[1])
    assert benches[0].scheduler.cached_tokens == benches[1].scheduler.cached_tokens
