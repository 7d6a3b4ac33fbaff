"""Tests order, sharing, storing and endings of a measuring session, on mock engines with a clock of their own."""

import gc
import math
from pathlib import Path

import msgspec
import numpy as np
import pytest

from serbench.comparison import compare_runs
from serbench.errors import FaultError
from serbench.experiment import Experiment
from serbench.mock import MockEngine, MockSession, MockStep
from serbench.results import Run, read_run
from serbench_codecs.plan import Int32Array
from serbench_engine.request import FinishedRequest
from tests.serbench.mocks import Bench, prepared


def test_all_warm_up_before_the_first_timed_pass_and_turns_go_a_b_b_a(tmp_path: Path) -> None:
    bench = Bench(prepared(["pickle", "delta"], repeats=4), tmp_path)
    bench.run()
    codecs, groups = [codec for codec, _ in bench.watcher.turns], [group for _, group in bench.watcher.turns]
    assert groups == [-1, -1, 0, 0, 1, 1, 2, 2, 3, 3]
    a, b = codecs[2:4]
    assert {a, b} == {"pickle", "delta"}
    assert codecs[2:] == [a, b, b, a, b, a, a, b]
    assert bench.watcher.passes == bench.watcher.ended == len(bench.watcher.turns)


def test_things_that_differ_in_the_codec_share_one_engine(tmp_path: Path) -> None:
    bench = Bench(prepared(["pickle", "delta", "cached"], repeats=2), tmp_path)
    bench.run()
    assert len(bench.engines) == 1
    assert len(bench.engines[0].sessions) == 9
    assert bench.engines[0].closed


def test_of_things_that_can_t_share_only_one_engine_is_alive(tmp_path: Path) -> None:
    first, second = prepared(["pickle", "delta"], repeats=2)
    other = msgspec.structs.replace(second.experiment, block_size=32)
    alive = []

    def cost_us(_: Experiment) -> float:
        alive.append(sum(not engine.closed for engine in bench.engines))
        return 1000.0

    bench = Bench([first, msgspec.structs.replace(second, experiment=other)], tmp_path, cost_us)
    bench.run()
    assert len(bench.engines) == 3  # A, B (both its turns), A
    assert set(alive) == {1}
    assert all(engine.closed for engine in bench.engines)
    assert bench.watcher.passes == bench.watcher.ended == 7  # each engine warms up


def test_a_group_has_the_same_prompts_for_all_and_another_group_has_others(tmp_path: Path) -> None:
    runs = Bench(prepared(["pickle", "delta"]), tmp_path).run()
    digests = [[repeat.outputs_digest for repeat in run.repeats] for run in runs]
    assert digests[0] == digests[1]
    assert len(set(digests[0])) == len(digests[0])
    assert runs[0].outputs_digest == runs[1].outputs_digest


def test_figures_are_taken_from_what_happened(tmp_path: Path) -> None:
    run = Bench(prepared(["delta"], repeats=1), tmp_path, lambda _: 2000.0).run()[0]
    [repeat] = run.repeats
    assert repeat.wall_s == pytest.approx(repeat.steps * 0.002)
    assert repeat.requests_per_s == pytest.approx(3 / repeat.wall_s)
    assert repeat.output_tokens_per_s == pytest.approx(repeat.output_tokens / repeat.wall_s)
    assert repeat.total_tokens_per_s == pytest.approx((repeat.input_tokens + repeat.output_tokens) / repeat.wall_s)
    assert repeat.host_us_per_step == pytest.approx(1000)
    assert repeat.host_us_without_adapt == pytest.approx(800)
    assert repeat.latency_s.ttft is not None
    assert repeat.latency_s.ttft.p50 == pytest.approx(0.002)
    assert repeat.latency_s.tpot is not None
    assert repeat.latency_s.tpot.mean == pytest.approx(0.002)
    assert repeat.payload_bytes.plan.total == 100 * repeat.steps
    assert (repeat.cpu_s.scheduler, repeat.cpu_s.workers) == (1.0, 0.5)
    assert run.summary["wall_s"].median == repeat.wall_s


def test_every_repeat_is_on_disk_at_once(tmp_path: Path) -> None:
    bench = Bench(prepared(["delta"], repeats=3), tmp_path)
    run = bench.run()[0]
    assert [len(state.repeats) for state in bench.stored] == [1, 2, 3]
    assert {state.id for state in bench.stored} == {run.id}
    assert [path.name for path in tmp_path.iterdir()] == [f"{run.id}.json"]
    assert read_run(tmp_path / f"{run.id}.json") == run


class Planted(MockEngine):
    """Opens sessions of ``kind`` from the ``nth`` on, ordinary ones before."""

    def __init__(self, bench: Bench, kind: type[MockSession], nth: int) -> None:
        super().__init__(bench.clock, lambda _: 1000.0)
        self._kind = kind
        self._nth = nth

    def session(self, experiment: Experiment) -> MockSession:
        ordinary = super().session(experiment)
        return ordinary if len(self.sessions) <= self._nth else self._kind(self._clock, 1000.0)


class Interrupting(MockSession):
    """Interrupts its first step."""

    def step(self) -> MockStep:
        raise KeyboardInterrupt


class Losing(MockSession):
    """Loses every request."""

    def add_request(self, *_: object) -> None: ...


class Failing(MockSession):
    """Ends every request but the first in an error, after two tokens."""

    def _finished(self, request_id: str, prompt: Int32Array, tokens: int, arrived: int) -> FinishedRequest:
        ordinary = super()._finished(request_id, prompt, tokens, arrived)
        if request_id == "request-0":
            return ordinary
        ids = ordinary.output_token_ids[:2]
        return msgspec.structs.replace(ordinary, output_token_ids=ids, finish_reason="error")


class Lazy(MockSession):
    """Ends every request after one token."""

    def step(self) -> MockStep:
        self._waiting = [(name, prompt, 1, arrived) for name, prompt, _, arrived in self._waiting]
        return super().step()


def test_an_interrupt_keeps_what_was_measured_and_closes_the_engine(tmp_path: Path) -> None:
    bench = Bench(prepared(["delta"], repeats=5), tmp_path)
    bench.open_engine = lambda bench: Planted(bench, Interrupting, 3)
    with pytest.raises(KeyboardInterrupt):
        bench.harness.run()
    assert bench.engines[0].closed
    [recorder] = bench.harness.recorders
    assert recorder.path is not None
    stored = read_run(recorder.path)
    assert len(stored.repeats) == 2
    assert "interrupted after 2 of 5 repeats" in stored.warnings


def test_a_lost_request_is_a_fault_not_a_figure(tmp_path: Path) -> None:
    bench = Bench(prepared(["delta"], warmup=0), tmp_path)
    bench.open_engine = lambda bench: Planted(bench, Losing, 0)
    with pytest.raises(FaultError, match="3 of 3 requests never ended, the first is request-0"):
        bench.harness.run()
    assert not bench.stored


@pytest.mark.parametrize("warmup", [0, 1])
def test_requests_that_ended_in_an_error_are_no_finished_work(tmp_path: Path, warmup: int) -> None:
    bench = Bench(prepared(["delta"], warmup=warmup), tmp_path)
    bench.open_engine = lambda bench: Planted(bench, Failing, 0)
    with pytest.raises(FaultError, match=r"2 of 3 requests failed: the model's logits .* request-1, after 2 tokens"):
        bench.harness.run()
    assert not bench.stored


def test_tokens_not_produced_are_told(tmp_path: Path) -> None:
    bench = Bench(prepared(["delta"], repeats=1), tmp_path)
    bench.open_engine = lambda bench: Planted(bench, Lazy, 0)
    [run] = bench.run()
    assert run.repeats[0].output_tokens == 3
    [warning] = run.warnings
    assert "3 of 3 requests did not produce the tokens they were to produce" in warning


def test_nothing_stays_frozen(tmp_path: Path) -> None:
    frozen = gc.get_freeze_count()
    Bench(prepared(["delta"], repeats=1), tmp_path).run()
    assert gc.get_freeze_count() == frozen
    assert gc.isenabled()


def noisy_compare(folder: Path, seed: int, effect: float) -> list[str]:
    """Verdicts on throughput of delta against pickle, whose steps take ``effect`` times as long, at 1.5 % noise."""
    rng = np.random.default_rng(seed)

    def cost_us(experiment: Experiment) -> float:
        return 1000.0 * math.exp(rng.normal(0, 0.015)) * (effect if experiment.codec == "pickle" else 1.0)

    runs: list[Run] = Bench(prepared(["pickle", "delta"], seed=seed), folder, cost_us).run()
    comparison = compare_runs(runs)
    throughput = comparison.rows[1].throughput
    assert throughput is not None
    return [throughput.verdict]


def test_through_the_whole_harness_a_true_difference_is_found_and_a_false_one_is_not(tmp_path: Path) -> None:
    found = [verdict for seed in range(20) for verdict in noisy_compare(tmp_path, seed, effect=1.06)]
    assert found.count("faster") >= 18
    alike = [verdict for seed in range(20) for verdict in noisy_compare(tmp_path, seed, effect=1.0)]
    assert alike.count("no difference shown") >= 17
