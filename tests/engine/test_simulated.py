"""The simulated model: a wrong id, block or count changes its outputs, chunks and batches do not; its clock."""

from collections.abc import Callable

import numpy as np
import pytest

from serbench_codecs.plan import StepPlan, StepResult
from serbench_codecs.table import RequestTable, TableLimits
from serbench_engine.models.config import SimConfig
from serbench_engine.runner.base import ModelRunner
from serbench_engine.runner.simulated import SimulatedBatch, SimulatedRunner
from tests.engine.serving import SIM, Outputs, Workload, greedy, random_workload, serve_sim, sim_executor

Plant = Callable[[RequestTable], None]


class PlantingRunner:
    """A simulated runner whose table is changed once, before it prepares step ``at``."""

    def __init__(self, inner: SimulatedRunner, plant: Plant, at: int) -> None:
        self._inner, self._plant, self._at = inner, plant, at
        self.device_ns = 0

    def open(self, limits: TableLimits) -> None:
        self._inner.open(limits)

    def prepare(self, plan: StepPlan, table: RequestTable) -> SimulatedBatch:
        if plan.step == self._at:
            self._plant(table)
        return self._inner.prepare(plan, table)

    def forward(self, batch: SimulatedBatch) -> int:
        return self._inner.forward(batch)

    def sample(self, output: int, batch: SimulatedBatch) -> StepResult:
        return self._inner.sample(output, batch)

    def look_ahead(self, table: RequestTable) -> None:
        """Nothing: what is planted is to be seen."""


def _outputs(plant: Plant | None, at: int = 10) -> tuple[Outputs, int]:
    """What comes out, and how often the engine noticed by itself that something was wrong (another number of ids)."""
    executor = sim_executor()
    inner = SimulatedRunner(SimConfig(), 256 * 16)
    runner: ModelRunner = inner if plant is None else PlantingRunner(inner, plant, at)
    executor._runners = [runner]
    outcome = serve_sim(random_workload(3, 6, (20, 40), (30, 40)), executor, codec="cached", validate=False)
    return outcome.outputs, outcome.report.recoveries


def _wrong_id(table: RequestTable) -> None:
    row = int(np.flatnonzero(table.serial)[0])
    table.token_ids[row, table.num_tokens[row] - 1] += 1


def _wrong_block_new(table: RequestTable) -> None:
    first, second = np.flatnonzero(table.serial)[:2]
    table.block_table[first, table.num_blocks[first] - 1] = table.block_table[second, table.num_blocks[second] - 1]


def _wrong_block_old(table: RequestTable) -> None:
    first, second = np.flatnonzero(table.serial)[:2]
    table.block_table[first, 0] = table.block_table[second, 0]


def _wrong_count(table: RequestTable) -> None:
    row = int(np.flatnonzero(table.serial)[0])
    table.num_computed_tokens[row] -= 1


@pytest.mark.parametrize("plant", [_wrong_id, _wrong_block_new, _wrong_block_old, _wrong_count])
def test_a_planted_fault_changes_the_outputs(plant: Plant) -> None:
    def harmless(table: RequestTable) -> None:
        assert table.serial.any()

    assert _outputs(harmless) == _outputs(None)
    assert _outputs(plant) != _outputs(None)


@pytest.mark.parametrize("budget", [7, 16, 33, 1000])
def test_outputs_do_not_depend_on_how_prompts_are_chunked(budget: int) -> None:
    workload = random_workload(5, 8, (1, 90), (1, 30))
    assert serve_sim(workload, max_num_batched_tokens=budget).outputs == serve_sim(workload).outputs


def test_outputs_do_not_depend_on_batch_mates() -> None:
    workload = random_workload(6, 5, (1, 50), (1, 30))
    explicit = [(name, prompt, greedy(12, seed=i)) for i, (name, prompt, _) in enumerate(workload.requests)]
    together = serve_sim(Workload(explicit)).outputs
    for request in explicit:
        assert serve_sim(Workload([request])).outputs[request[0]] == together[request[0]]


def test_every_prompt_token_matters() -> None:
    base = serve_sim(Workload([("a", list(range(40)), greedy(8))])).outputs["a"]
    for position in (0, 15, 16, 39):
        prompt = list(range(40))
        prompt[position] += 1000
        assert serve_sim(Workload([("a", prompt, greedy(8))])).outputs["a"] != base


def test_device_time_is_at_least_what_was_asked_and_is_recorded() -> None:
    model = SIM.__class__(SIM.name, SimConfig(step_us=300.0, token_us=10.0), SIM.weights, SIM.fingerprint)
    workload = random_workload(7, 4, (10, 10), (5, 5))
    report = serve_sim(workload, sim_executor(model=model)).report
    wanted = 300.0 + 10.0 * report.num_tokens
    assert (report.device_us >= wanted).all()
    model_us = report.phases_us["forward"] + report.phases_us["sample"]
    assert (model_us >= wanted - 1.0).all()
