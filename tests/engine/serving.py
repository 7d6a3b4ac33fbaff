"""Runs a workload through the engine in-process and says what came out. It knows no test."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

from serbench_engine.config import EngineOptions
from serbench_engine.engine import Engine
from serbench_engine.executor.base import Executor, WorkerSpec
from serbench_engine.executor.inproc import InprocExecutor
from serbench_engine.models.config import ResolvedModel, SimConfig, WeightsSource
from serbench_engine.phases import SessionReport
from serbench_engine.request import FinishedRequest, SamplingParams

SIM = ResolvedModel("sim", SimConfig(), WeightsSource("sim"), "sim")

Outputs = dict[str, tuple[list[int], str]]
"""For each request id: its output ids and why it ended."""


@dataclass(frozen=True)
class Workload:
    """Requests (id, prompt ids, parameters) that are all there at the start, and aborts by step."""

    requests: Sequence[tuple[str, list[int], SamplingParams]]
    aborts: Mapping[int, Sequence[str]] = field(default_factory=dict)


@dataclass(frozen=True)
class Outcome:
    """What a workload produced and cost."""

    finished: dict[str, FinishedRequest]
    report: SessionReport

    @property
    def outputs(self) -> Outputs:
        return {name: (one.output_token_ids.tolist(), one.finish_reason) for name, one in self.finished.items()}


def greedy(max_tokens: int | None = 16, **rest: object) -> SamplingParams:
    """Greedy parameters that ignore the end of text."""
    return SamplingParams(temperature=0.0, max_tokens=max_tokens, ignore_eos=True, **rest)  # type: ignore[arg-type]


def random_workload(
    seed: int, num_requests: int, input_len: tuple[int, int], output_len: tuple[int, int], vocab_size: int = 32768
) -> Workload:
    """Requests of random lengths and ids."""
    rng = np.random.default_rng(seed)
    requests = []
    for i in range(num_requests):
        prompt = rng.integers(0, vocab_size, int(rng.integers(*input_len, endpoint=True))).tolist()
        requests.append((f"r{i}", prompt, greedy(int(rng.integers(*output_len, endpoint=True)))))
    return Workload(requests)


def options(**changes: object) -> EngineOptions:
    """Small limits with every check on; ``changes`` replace fields."""
    values: dict[str, object] = {
        "codec": "none",
        "transport": "inproc",
        "max_model_len": 256,
        "num_blocks": 256,
        "max_num_batched_tokens": 64,
        "max_num_seqs": 16,
        "validate": True,
    }
    return EngineOptions(**(values | changes))  # type: ignore[arg-type]


def sim_spec(model: ResolvedModel = SIM, num_blocks: int = 256, block_size: int = 16) -> WorkerSpec:
    """A worker of the simulated model."""
    return WorkerSpec(model, "float32", "cpu", block_size, num_blocks, max_num_batched_tokens=64)


def sim_executor(num_workers: int = 1, model: ResolvedModel = SIM, num_blocks: int = 256) -> InprocExecutor:
    """In-process workers of the simulated model."""
    return InprocExecutor(sim_spec(model, num_blocks), num_workers)


def serve(engine: Engine, workload: Workload) -> Outcome:
    """Run the workload to its end and close the session."""
    for request_id, prompt, params in workload.requests:
        engine.add_request(request_id, prompt, params)
    finished: dict[str, FinishedRequest] = {}
    step = 0
    while engine.has_unfinished:
        for request_id in workload.aborts.get(step, ()):
            engine.abort_request(request_id)
        for one in engine.step().finished:
            assert one.request_id not in finished
            finished[one.request_id] = one
        step += 1
        assert step < 20_000, "the engine makes no progress"
    return Outcome(finished, engine.close())


def serve_sim(workload: Workload, executor: Executor | None = None, **changes: object) -> Outcome:
    """Run the workload on the simulated model."""
    return serve(Engine(executor or sim_executor(), options(**changes), SIM), workload)
