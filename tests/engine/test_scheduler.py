"""The scheduler alone, against a model that samples at random: order, budget, blocks, preemption, abort, endings."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from serbench_codecs.plan import FAILED_ROW
from serbench_engine.request import RequestTimes, SamplingParams
from serbench_engine.scheduler import Scheduler
from serbench_engine.stopping import StopRules
from tests.engine.scheduling import EOS, Bench
from tests.engine.serving import greedy


def test_prompts_are_computed_in_chunks_within_the_budget_first_come_first_served() -> None:
    bench = Bench(budget=16)
    bench.add("a", 20)
    bench.add("b", 5)
    first, second, third = bench.step(), bench.step(), bench.step()
    assert first is not None
    assert second is not None
    assert third is not None
    assert first.batch_counts.tolist() == [16]
    assert second.batch_counts.tolist() == [4, 5]
    assert third.batch_counts.tolist() == [1, 1]


def test_a_steady_batch_is_the_same_object_from_step_to_step() -> None:
    bench = Bench(budget=64)
    bench.add("a", 5)
    bench.add("b", 5)
    plans = [bench.step() for _ in range(5)]
    assert plans[2] is not None
    assert plans[4] is not None
    assert plans[2].batch_rows is plans[4].batch_rows
    assert plans[2].batch_counts is plans[4].batch_counts


def test_the_youngest_is_preempted_and_comes_back_with_its_tokens() -> None:
    bench = Bench(num_blocks=8, budget=64)
    bench.next_ids = {"a": list(range(10, 40)), "b": list(range(50, 80))}
    bench.add("a", 14, greedy(16))
    bench.add("b", 14, greedy(16))
    bench.run()
    assert bench.scheduler.preemptions >= 1
    assert bench.finished["a"].num_preemptions == 0
    assert bench.finished["b"].num_preemptions >= 1
    assert bench.finished["a"].output_token_ids.tolist() == list(range(10, 26))
    assert bench.finished["b"].output_token_ids.tolist() == list(range(50, 66))
    back = next(plan for plan in bench.plans if plan.step > 0 and len(plan.admitted))
    assert len(back.admitted.token_ids[0]) > 14
    assert back.admitted.num_prompt_tokens.tolist() == [14]


def test_a_row_is_reused_in_the_step_that_frees_it() -> None:
    bench = Bench(num_rows=1)
    bench.add("a", 4, greedy(1))
    bench.add("b", 4, greedy(1))
    bench.step()
    plan = bench.step()
    assert plan is not None
    assert plan.freed.tolist() == [0]
    assert plan.admitted.rows.tolist() == [0]


def test_end_of_text_ends_with_stop_unless_ignored_or_too_early() -> None:
    bench = Bench(budget=64)
    ids = [5, EOS, 6, EOS, 7, 7, 7, 7]
    bench.next_ids = {name: list(ids) for name in "abc"}
    bench.add("a", 4, SamplingParams(temperature=0, max_tokens=8))
    bench.add("b", 4, SamplingParams(temperature=0, max_tokens=8, ignore_eos=True))
    bench.add("c", 4, SamplingParams(temperature=0, max_tokens=8, min_tokens=2))
    bench.run()
    assert (bench.finished["a"].output_token_ids.tolist(), bench.finished["a"].finish_reason) == ([5, EOS], "stop")
    assert (bench.finished["b"].output_token_ids.tolist(), bench.finished["b"].finish_reason) == (ids, "length")
    assert bench.finished["c"].output_token_ids.tolist() == [5, EOS, 6, EOS]


def test_a_row_that_could_not_be_sampled_ends_with_error_and_harms_nobody() -> None:
    bench = Bench(budget=64)
    bench.next_ids = {"a": [5, FAILED_ROW]}
    bench.add("a", 4)
    bench.add("b", 4)
    bench.run()
    assert bench.finished["a"].finish_reason == "error"
    assert bench.finished["a"].output_token_ids.tolist() == [5]
    assert bench.finished["b"].output_token_ids.tolist() == [7] * 8


def test_abort_works_in_every_state_and_twice() -> None:
    bench = Bench(num_rows=2, num_blocks=8, budget=8)
    waiting, decoding = bench.add("waiting", 30), None
    bench.scheduler.abort(waiting)
    bench.scheduler.abort(waiting)
    prefilling = bench.add("prefilling", 20)
    bench.step()
    bench.scheduler.abort(prefilling)
    decoding = bench.add("decoding", 4)
    bench.step()
    bench.step()
    bench.scheduler.abort(decoding)
    done = bench.add("done", 4, greedy(1))
    bench.run()
    bench.scheduler.abort(done)  # an abort that meets a finish
    assert not bench.scheduler.has_unfinished
    reasons = {name: one.finish_reason for name, one in bench.finished.items()}
    assert reasons == {"waiting": "abort", "prefilling": "abort", "decoding": "abort", "done": "length"}
    assert len(bench.finished["decoding"].output_token_ids) == 2


@pytest.mark.parametrize("looks_ahead", [False, True])
@pytest.mark.parametrize("begin", range(4))
@pytest.mark.parametrize("aborted", ["a", "b", "c", "ac", "abc"])
def test_an_abort_while_a_plan_is_in_flight_drops_its_sample_and_harms_nobody(
    aborted: str, begin: int, looks_ahead: bool
) -> None:
    bench = Bench(budget=64, looks_ahead=looks_ahead)
    requests = {name: bench.add(name, 4, greedy(8)) for name in "abc"}
    for _ in range(begin):
        bench.step()
    bench.step([requests[name] for name in aborted])
    bench.step()
    bench.add("late", 4)
    bench.run()
    lengths = {name: len(one.output_token_ids) for name, one in bench.finished.items()}
    assert lengths == {name: begin if name in aborted else 8 for name in ("a", "b", "c", "late")}
    assert {name for name, one in bench.finished.items() if one.finish_reason == "abort"} == set(aborted)
    assert bench.scheduler._pool.num_free == bench.num_blocks


def test_a_preempted_request_can_be_aborted() -> None:
    bench = Bench(num_blocks=8, budget=64)
    bench.add("a", 14, greedy(16))
    victim = bench.add("b", 14, greedy(16))
    while not bench.scheduler.preemptions:
        bench.step()
    bench.scheduler.abort(victim)
    bench.run()
    assert bench.finished["b"].finish_reason == "abort"
    assert len(bench.finished["b"].output_token_ids) > 0


def test_a_full_prompt_hit_still_computes_one_token() -> None:
    bench = Bench(prefix_caching=True, budget=64)
    bench.add("a", 16, greedy(2))
    bench.run()
    bench.add("b", 16, greedy(2))
    plan = bench.step()
    assert plan is not None
    assert plan.admitted.num_computed_tokens.tolist() == [12]
    assert plan.batch_counts.tolist() == [4]
    bench.run()
    assert bench.scheduler.cached_tokens == 12


def test_a_block_is_findable_only_once_its_kv_is_written() -> None:
    bench = Bench(prefix_caching=True, budget=8)
    bench.add("a", 16)
    bench.add("b", 16)
    bench.step()  # a computes 8 of 16
    second = bench.step()  # a computes the rest: nothing left for b
    third = bench.step()
    assert second is not None
    assert third is not None
    assert second.batch_counts.tolist() == [8]
    assert third.admitted.num_computed_tokens.tolist() == [12]


def test_times_are_those_of_the_first_and_last_token() -> None:
    bench = Bench(budget=64)
    bench.add("a", 4, greedy(3))
    bench.run()
    times = bench.finished["a"].times
    assert (times.arrival_ns, times.first_token_ns, times.last_token_ns) == (1, 100, 102)


@pytest.mark.parametrize("prefix_caching", [False, True])
def test_a_queue_whose_first_lacks_blocks_is_looked_at_again_only_when_that_may_have_changed(
    prefix_caching: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    bench = Bench(num_blocks=14, budget=64, prefix_caching=prefix_caching, looks_ahead=True)
    for name in "ab":
        bench.add(name, 4, greedy(20))
    bench.step()
    large = bench.add("large", 50)
    bench.step()
    bench.step()
    steady = bench.scheduler._steady
    with monkeypatch.context() as patched:
        patched.setattr(Scheduler, "_admit", None)
        for _ in range(3):
            bench.add(f"behind {len(bench.plans)}", 4, greedy(1))
            bench.step()
            assert bench.scheduler._steady is steady is not None
    bench.scheduler.abort(large)
    plan = bench.step()
    assert plan is not None
    assert plan.admitted.request_ids == ["behind 3", "behind 4"]  # as many as there are rows
    bench.run()
    assert bench.finished["behind 5"].finish_reason == "length"


def _counting(bench: Bench, name: str, prompt_len: int, output_len: int, begin: int = 1) -> None:
    """Add a request that counts on from ``begin``, prompt and output."""
    numbers = np.arange(begin, begin + prompt_len + output_len, dtype=np.int32)
    bench.next_ids[name] = numbers[prompt_len:].tolist()
    bench.add_prompt(name, numbers[:prompt_len], greedy(output_len))


def test_a_request_that_lacks_blocks_is_admitted_when_a_running_one_writes_the_block_that_it_begins_with() -> None:
    bench = Bench(num_rows=6, num_blocks=6, budget=64, prefix_caching=True)
    _counting(bench, "first", 4, 1)  # its block 0 is the one that is found, until "both" grows into it
    _counting(bench, "both", 8, 8)  # of its blocks only block 1 is found
    _counting(bench, "slow", 2, 8)  # writes block 0 again
    _counting(bench, "else 1", 2, 2, begin=50)
    _counting(bench, "else 2", 2, 2, begin=60)
    bench.step()
    bench.step()
    _counting(bench, "late", 9, 1)
    held, admitting = bench.step(), bench.step()
    assert held is not None
    assert admitting is not None
    assert held.admitted.request_ids == []
    assert admitting.admitted.request_ids == ["late"]
    assert admitting.admitted.num_computed_tokens.tolist() == [8]


def test_a_long_request_is_admitted_when_it_needs_fewer_blocks_at_first_because_less_of_it_is_found() -> None:
    bench = Bench(num_blocks=5, budget=13, prefix_caching=True)
    _counting(bench, "first", 4, 1)
    _counting(bench, "both", 8, 2)
    _counting(bench, "other", 1, 8, begin=50)  # grows into the block of "first" in step 4
    bench.step()
    bench.step()
    _counting(bench, "long", 20, 1)
    plans = [bench.step() for _ in range(3)]
    admitted = [plan.admitted.num_computed_tokens.tolist() for plan in plans if plan is not None]
    assert admitted == [[], [], [0]]


def test_what_one_request_asks_for_costs_no_other_the_fast_path(monkeypatch: pytest.MonkeyPatch) -> None:
    bench = Bench(budget=64)
    bench.next_ids = {"logged": list(range(10, 30)), "watched": [8, 8, 8, 9, 9, 9, 8, 9, 9]}
    bench.add("plain", 4, greedy(20))
    bench.add("logged", 4, SamplingParams(temperature=0, max_tokens=20, logprobs=0))
    bench.add("watched", 4, SamplingParams(temperature=0, max_tokens=20, stop_token_ids=(8,), min_tokens=5))
    bench.step()
    bench.step()
    steady = bench.scheduler._steady
    with monkeypatch.context() as patched:
        patched.setattr(StopRules, "judge", None)  # looks at all rows
        for _ in range(4):
            bench.step()
            assert bench.scheduler._steady is steady is not None
        bench.step()
    assert bench.finished["watched"].output_token_ids.tolist() == [8, 8, 8, 9, 9, 9, 8]
    assert (bench.finished["watched"].finish_reason, bench.finished["watched"].stop_reason) == ("stop", 8)
    assert bench.finished["watched"].times == RequestTimes(1, 100, 106)
    bench.run()
    logged = bench.finished["logged"].logprobs
    assert logged is not None
    assert [list(entries) for entries in logged] == [[i] for i in range(10, 30)]
    assert bench.finished["plain"].logprobs is None


@pytest.mark.parametrize(("ids", "times"), [([], (1, 0, 0)), ([5], (1, 100, 100)), ([5, 6], (1, 100, 101))])
def test_a_token_that_could_not_be_sampled_has_no_time(ids: list[int], times: tuple[int, int, int]) -> None:
    bench = Bench(budget=64)
    bench.next_ids = {"a": [*ids, FAILED_ROW]}
    bench.add("a", 4)
    bench.add("b", 4)
    bench.run()
    assert bench.finished["a"].times == RequestTimes(*times)
    assert bench.finished["b"].times == RequestTimes(1, 100, 107)


def test_a_request_aborted_before_it_got_a_token_of_its_row_keeps_its_times() -> None:
    bench = Bench(num_blocks=8, budget=64)
    bench.add("a", 14, greedy(16))
    victim = bench.add("b", 14, greedy(16))
    while not bench.scheduler.preemptions:
        bench.step()
    preempted_ns = victim.last_token_ns
    bench.budget = bench.scheduler._budget = 4  # it comes back in small parts
    while not victim.serial:
        bench.step()
    bench.step()
    bench.scheduler.abort(victim)
    bench.run()
    assert bench.finished["b"].times == RequestTimes(1, 100, preempted_ns)


@given(
    st.lists(st.tuples(st.integers(1, 40), st.integers(1, 20)), min_size=1, max_size=10),
    st.integers(1, 4),
    st.integers(16, 40),
    st.integers(1, 30),
    st.booleans(),
    st.lists(st.tuples(st.integers(0, 30), st.integers(0, 9)), max_size=4),
)
def test_every_request_gets_all_its_tokens_whatever_the_pressure(
    lengths: list[tuple[int, int]],
    num_rows: int,
    num_blocks: int,
    budget: int,
    prefix_caching: bool,
    aborts: list[tuple[int, int]],
) -> None:
    bench = Bench(num_rows, 64, num_blocks, budget, prefix_caching)
    rng = np.random.default_rng(0)
    expected = {}
    for i, (prompt_len, output_len) in enumerate(lengths):
        expected[str(i)] = rng.integers(0, 50, output_len).tolist()
        bench.next_ids[str(i)] = list(expected[str(i)])
        bench.add(str(i), prompt_len, greedy(output_len))
    while bench.scheduler.has_unfinished:
        for step, which in aborts:
            if step == len(bench.plans) and str(which) in bench.requests and str(which) not in bench.finished:
                bench.scheduler.abort(bench.requests[str(which)])
        bench.step()
        assert len(bench.plans) < 5000
    assert set(bench.finished) == set(expected)
    for name, one in bench.finished.items():
        ids = one.output_token_ids.tolist()
        assert ids == expected[name][: len(ids)]
        assert one.finish_reason == "abort" or len(ids) == len(expected[name])
    assert bench.scheduler._pool.num_free == num_blocks
