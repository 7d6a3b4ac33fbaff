"""Tests what the host path measures and says: steady steps only, growth, what is left out. They assert no times."""

import msgspec
import numpy as np
import pytest

from serbench.errors import ExperimentError, FaultError
from serbench.experiment import Experiment
from serbench.hostpath import (
    HostCell,
    HostPass,
    Hostpath,
    HostpathSpec,
    Shape,
    Times,
    growth_per_request,
    growth_with_context,
    summed,
)
from serbench.hostpath_cells import MOST_FULL_STATE_IDS, measure_hostpath, reason_to_skip
from serbench.live import LiveEngine
from serbench.report.progress import SilentProgress
from serbench.steady_decode import SteadyBatch, SteadySteps, decode_steadily, prepare_steady, simulated
from serbench_codecs.codec import HEADER_BYTES
from serbench_engine.phases import PHASES

HERE = Experiment(model="sim", codec="columnar", executor="inproc", repeats=2, warmup=1)


def steps_of(steady: SteadyBatch, num_requests: int | None = None) -> SteadySteps:
    """The steps looked at; of the first ``num_requests`` only, if given."""
    prepared = prepare_steady(HERE, steady, simulated("sim", steady.max_model_len))
    engine = LiveEngine(prepared)
    try:
        requests = prepared.workload.requests(0)[:num_requests]
        return decode_steadily(engine.session(prepared.experiment), requests, steady.steps)
    finally:
        engine.close()


def test_a_sixteenth_of_the_batch_gets_a_block_in_every_step() -> None:
    steps = steps_of(SteadyBatch(batch=64, context=40, steps=20))
    assert len(steps.host_us) == 20
    assert set(steps.plan_bytes.tolist()) == {HEADER_BYTES + 16 + 4 * 8}
    assert set(steps.phases_us) == set(PHASES)


def test_a_prefill_in_pieces_is_not_looked_at(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("serbench.steady_decode.PREFILL_TOKENS", 100)
    steps = steps_of(SteadyBatch(batch=8, context=50, steps=10))
    assert steps.plan_bytes.max() <= HEADER_BYTES + 16 + 8 * 8


def test_a_context_beyond_the_model_s_own_limit_is_served() -> None:
    assert len(steps_of(SteadyBatch(batch=2, context=40_000, steps=8)).host_us) == 8


def test_steps_that_are_no_steady_decode_are_refused() -> None:
    steady = SteadyBatch(batch=2, context=20, steps=8)
    prepared = prepare_steady(HERE, steady, simulated("sim", steady.max_model_len))
    engine = LiveEngine(prepared)
    requests = prepared.workload.requests(0)
    try:
        with pytest.raises(FaultError, match="2 requests that decode did not all get one token in each of 99 steps"):
            decode_steadily(engine.session(prepared.experiment), requests, 99)
    finally:
        engine.close()


def test_prompts_differ_between_groups_and_are_the_same_again() -> None:
    steady = SteadyBatch(batch=3, context=20, steps=8)
    workload = prepare_steady(HERE, steady, simulated("sim", 100)).workload
    once, again, other = (workload.requests(group) for group in (0, 0, 1))
    assert [len(one.prompt_token_ids) for one in once] == [20, 19, 18]
    assert all(np.array_equal(a.prompt_token_ids, b.prompt_token_ids) for a, b in zip(once, again, strict=True))
    assert not np.array_equal(once[0].prompt_token_ids, other[0].prompt_token_ids)


def test_every_cell_is_measured_in_turn_with_the_others() -> None:
    shapes = (Shape(2, 20), Shape(4, 40))
    hostpath = measure_hostpath(
        HostpathSpec(codecs=("delta", "columnar"), shapes=shapes, base=HERE, steps=8), SilentProgress()
    )
    assert [(cell.codec, cell.batch, cell.context) for cell in hostpath.cells] == [
        (codec, shape.batch, shape.context) for shape in shapes for codec in ("delta", "columnar")
    ]
    orders = sorted(one.order for cell in hostpath.cells for one in cell.passes)
    assert orders == list(range(8))
    for cell in hostpath.cells:
        assert [one.group for one in cell.passes] == [0, 1]
        assert 0 < cell.host_us.p50 <= cell.host_us.p99
    assert {(one.codec, one.first, one.last) for one in hostpath.growth_per_request} == set()


@pytest.mark.parametrize(("ends_after", "repeats"), [(1, 0), (5, 0), (6, 1), (9, 2), (10, 2)])
def test_what_is_measured_when_an_interrupt_comes_is_kept(ends_after: int, repeats: int) -> None:
    class Interrupting(SilentProgress):
        passes = 0

        def done(self) -> None:
            self.passes += 1
            if self.passes == ends_after:
                raise KeyboardInterrupt

    base = msgspec.structs.replace(HERE, repeats=4, warmup=1)
    spec = HostpathSpec(codecs=("delta", "cached", "columnar"), shapes=(Shape(2, 20),), base=base, steps=8)
    kept: list[Hostpath] = []
    with pytest.raises(KeyboardInterrupt):
        measure_hostpath(spec, Interrupting(), keep=kept.append)
    assert [[len(cell.passes) for cell in one.cells] for one in kept] == ([[repeats] * 3] if repeats else [])


def skipped(codec: str, batch: int, context: int) -> str:
    spec = HostpathSpec(codecs=(codec,), shapes=(Shape(batch, context),), base=HERE)
    return reason_to_skip(HostCell(codec=codec, batch=batch, context=context), spec)


def test_a_full_state_that_is_too_large_is_skipped_and_nothing_else() -> None:
    assert MOST_FULL_STATE_IDS == 1 << 22
    assert skipped("pickle", 1 << 12, (1 << 10) + 1) == "full state of 4.2 M ids"
    assert skipped("columnar", 1 << 12, (1 << 10) + 1) == ""
    assert skipped("pickle", 1 << 12, 1 << 10) == ""
    assert "GiB" in skipped("columnar", 1 << 24, 1 << 20)


def test_a_table_with_room_for_what_is_decoded_may_be_too_large_where_its_contexts_are_not() -> None:
    assert "GiB" in skipped("columnar", 1 << 24, 2)


def test_nothing_to_measure_is_refused() -> None:
    with pytest.raises(ExperimentError, match="at least one codec"):
        HostpathSpec(codecs=(), shapes=(Shape(1, 20),))
    with pytest.raises(ExperimentError, match="batch 0 at context 20"):
        HostpathSpec(codecs=("delta",), shapes=(Shape(0, 20),))
    with pytest.raises(ExperimentError, match="3 steps are too few"):
        HostpathSpec(codecs=("delta",), shapes=(Shape(1, 20),), steps=3)


# --- growth ---------------------------------------------------------------------------------------------------------


def cell(batch: int, context: int, host_us: list[float]) -> HostCell:
    passes = [
        HostPass(
            group=i,
            order=i,
            steps=8,
            host_us=Times(us, 2 * us, us),
            ahead_us=us / 4,
            phases_us={"encode": us},
            plan_bytes=1.0,
            result_bytes=1.0,
        )
        for i, us in enumerate(host_us)
    ]
    return summed(HostCell(codec="delta", batch=batch, context=context), passes)


def test_a_cell_is_the_median_of_its_passes() -> None:
    found = cell(1, 20, [10.0, 30.0, 14.0])
    assert found.host_us == Times(14.0, 28.0, 14.0)
    assert found.phases_us == {"encode": 14.0}
    assert found.ahead_us == 3.5


def test_growth_is_told_between_16_and_1024_where_they_are_there() -> None:
    cells = [cell(batch, 512, [100.0 + 0.5 * batch] * 4) for batch in (1, 16, 1024, 4096)]
    [growth] = growth_per_request(cells)
    assert (growth.at, growth.first, growth.last) == (512, 16, 1024)
    assert growth.us_per_request == pytest.approx(0.5)
    [growth] = growth_per_request(cells[::3])
    assert (growth.first, growth.last) == (1, 4096)


def test_growth_with_context_is_a_ratio_of_passes_side_by_side() -> None:
    cells = [
        cell(64, 128, [10.0, 20.0, 40.0, 80.0]),
        cell(64, 32768, [11.0, 22.0, 44.0, 88.0]),
        cell(64, 512, [1.0] * 4),
    ]
    [growth] = growth_with_context(cells)
    assert (growth.at, growth.first, growth.last, growth.us_per_request) == (64, 128, 32768, None)
    assert growth.ratio.ratio == pytest.approx(1.1)
    assert growth.ratio.verdict == "slower"


def test_skipped_cells_do_not_grow() -> None:
    cells = [cell(64, 128, [10.0] * 4), HostCell(codec="delta", batch=64, context=512, skipped="too large")]
    assert growth_with_context(cells) == []
