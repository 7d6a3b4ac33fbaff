"""Drives a TorchRunner by plans written by hand, with no scheduler and no codec in between.

It does not know which model runs; it hands out blocks in a seeded random order, and takes them back.
"""

from collections.abc import Sequence

import numpy as np
from torch import Tensor

from serbench_codecs.plan import NO_ROWS, NO_WRITES, SAMPLING_DTYPE, Admissions, Int32Array, Ragged, StepPlan, Writes
from serbench_codecs.table import RequestTable, TableLimits
from serbench_engine.executor.base import WorkerSpec
from serbench_engine.models.config import ModelConfig, ResolvedModel, WeightsSource
from serbench_engine.models.loading import load_weights, pack_weights
from serbench_engine.models.registry import build_model
from serbench_engine.runner.torch_runner import DTYPES, TorchRunner

BLOCK_SIZE = 8
NUM_BLOCKS = 64
ROWS = 8


def worker_spec(config: ModelConfig, dtype: str = "float32", seed: int = 0, num_blocks: int = NUM_BLOCKS) -> WorkerSpec:
    """A worker with dummy weights on one thread."""
    model = ResolvedModel("test", config, WeightsSource("dummy"), "test")
    return WorkerSpec(
        model=model,
        dtype=dtype,  # type: ignore[arg-type]  # one of the literals
        device="cpu",
        block_size=BLOCK_SIZE,
        num_blocks=num_blocks,
        max_num_batched_tokens=2048,
        threads=1,
        seed=seed,
    )


class Driver:
    """Rows of requests, their blocks, one step at a time. ``logits`` holds what each row's samples came from."""

    def __init__(self, runner: TorchRunner, config: ModelConfig, num_blocks: int = NUM_BLOCKS, seed: int = 0) -> None:
        limits = TableLimits(ROWS, config.max_model_len, BLOCK_SIZE, num_blocks, config.vocab_size)
        self.runner = runner
        self.table = RequestTable(limits)
        self.free_blocks = np.random.default_rng(seed).permutation(num_blocks).tolist()
        self.logits: dict[int, list[Tensor]] = {}
        self._step = 0
        self._serial = 0
        self._new: dict[int, tuple[list[int], int]] = {}
        self._freed: list[int] = []
        runner.open(limits)

    def add(self, row: int, token_ids: Sequence[int]) -> None:
        """Admit a request with the next step."""
        self._serial += 1
        self._new[row] = (list(token_ids), self._serial)
        self.logits[row] = []

    def drop(self, row: int) -> None:
        """Free a row and its blocks with the next step."""
        self.free_blocks.extend(self.table.block_table[row, : self.table.num_blocks[row]].tolist())
        self._freed.append(row)

    def ids(self, row: int) -> list[int]:
        """All ids of a row, prompt and output."""
        ids: list[int] = self.table.token_ids[row, : self.table.num_tokens[row]].tolist()
        return ids

    def step(self, counts: dict[int, int]) -> None:
        """Run one batch, in the order given: row → tokens to compute."""
        plan = self._plan(counts)
        plan.validate()
        self.table.apply(plan)
        self.table.check(plan)
        batch = self.runner.prepare(plan, self.table)
        self.table.advance(plan)
        logits = self.runner.forward(batch)
        result = self.runner.sample(logits, batch)
        assert (result.step, result.epoch) == (plan.step, plan.epoch)
        self.table.append_sampled(batch.inputs.sample_rows, result.token_ids)
        for i, row in enumerate(batch.inputs.sample_rows.tolist()):
            self.logits[row].append(logits[i])

    def decode(self, rows: Sequence[int], steps: int) -> None:
        """One token a row and step."""
        for _ in range(steps):
            self.step(dict.fromkeys(rows, 1))

    def _plan(self, counts: dict[int, int]) -> StepPlan:
        self._step += 1
        plan = StepPlan(
            step=self._step,
            epoch=0,
            freed=_ints(self._freed),
            admitted=self._admissions(counts),
            blocks=self._more_blocks({row: n for row, n in counts.items() if row not in self._new}),
            tokens=NO_WRITES,
            batch_rows=_ints(list(counts)),
            batch_counts=_ints(list(counts.values())),
        )
        self._new, self._freed = {}, []
        return plan

    def _admissions(self, counts: dict[int, int]) -> Admissions:
        n = len(self._new)
        ids = [ids for ids, _ in self._new.values()]
        sampling = np.zeros(n, dtype=SAMPLING_DTYPE)
        sampling["top_p"], sampling["repetition_penalty"], sampling["num_logprobs"] = 1, 1, -1
        return Admissions(
            rows=_ints(list(self._new)),
            serials=np.array([serial for _, serial in self._new.values()], dtype=np.int64),
            request_ids=[f"request {serial}" for _, serial in self._new.values()],
            num_prompt_tokens=_ints([len(one) for one in ids]),
            num_computed_tokens=np.zeros(n, dtype=np.int32),
            token_ids=Ragged.of(ids),
            block_ids=Ragged.of([self._take(counts.get(row, 0)) for row in self._new]),
            sampling=sampling,
            stop_ids=Ragged.of([[] for _ in ids]),
        )

    def _more_blocks(self, counts: dict[int, int]) -> Writes:
        have = {row: int(self.table.num_blocks[row]) for row in counts}
        ends = {row: int(self.table.num_computed_tokens[row]) + n for row, n in counts.items()}
        values = {row: self._take(ends[row] - have[row] * BLOCK_SIZE) for row in counts}
        rows = [row for row in counts if values[row]]
        return Writes(
            rows=_ints(rows),
            starts=_ints([have[row] for row in rows]),
            counts=_ints([len(values[row]) for row in rows]),
            values=_ints([block for row in rows for block in values[row]]),
        )

    def _take(self, tokens: int) -> list[int]:
        return [self.free_blocks.pop() for _ in range(-(-max(0, tokens) // BLOCK_SIZE))]


def _ints(values: Sequence[int]) -> Int32Array:
    return np.array(values, dtype=np.int32) if values else NO_ROWS


def loaded_runner(config: ModelConfig, state: dict[str, Tensor], dtype: str = "float32") -> TorchRunner:
    """A runner whose model holds these weights."""
    runner = TorchRunner(worker_spec(config, dtype))
    runner.model = build_model(config, DTYPES[dtype], "cpu")
    load_weights(runner.model, state.items())
    pack_weights(runner.model)
    return runner
