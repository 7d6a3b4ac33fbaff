"""Has the simulated model decode steadily: a batch that stays, a token for each request in every step, nothing else.

It does not know in which order things are measured, nor what is made of the steps' times.

Prompts are staggered over a block's size, so that in each step one request in ``block_size`` gets a block, as in a
batch that has long been running. Prefill is not looked at, nor are the first steps after it.
"""

from collections.abc import Sequence
from typing import Final

import msgspec
import numpy as np

from serbench.errors import FaultError
from serbench.experiment import Experiment, settled
from serbench.garbage import swept
from serbench.prepared import Prepared
from serbench.text import ModelText
from serbench.workload.base import WorkRequest, forced, group_seed
from serbench.workload.spec import LengthRange, Synthetic
from serbench_engine.engine import Engine
from serbench_engine.models.catalogue import resolve_model
from serbench_engine.models.config import ResolvedModel, SimConfig
from serbench_engine.phases import Float64Array, Int64Matrix

DROPPED_STEPS: Final = 4
"""Steps after the last prefill that are not looked at: they settle into the steady state."""

PREFILL_TOKENS: Final = 1 << 18
"""Prompt tokens of one prefill step, so that long contexts are computed in pieces of bounded memory."""


class SteadyBatch(msgspec.Struct, frozen=True, kw_only=True):
    """``batch`` requests, the longest with ``context`` tokens when the first of ``steps`` steps to look at is near."""

    batch: int
    context: int
    steps: int
    block_size: int = 16

    @property
    def ids(self) -> int:
        """Token ids of the whole state."""
        return self.batch * self.context

    @property
    def max_model_len(self) -> int:
        """Room for the context and for what is decoded, during the others' prefill too."""
        prefills = -(-self.ids // PREFILL_TOKENS)
        return self.context + prefills + DROPPED_STEPS + self.steps + 3

    @property
    def num_blocks(self) -> int:
        """Blocks of KV cache, enough for everybody: nobody is preempted."""
        return self.batch * -(-self.max_model_len // self.block_size)


class SteadyRequests:
    """The requests of a steady batch; implements Workload."""

    def __init__(self, steady: SteadyBatch, *, vocab_size: int, seed: int) -> None:
        self._steady = steady
        self._vocab_size = vocab_size
        self._seed = seed

    def requests(self, group: int) -> list[WorkRequest]:
        """Random prompts that differ in length by less than a block."""
        steady = self._steady
        rng = np.random.default_rng(group_seed(self._seed, group))
        ids = rng.integers(self._vocab_size, size=(steady.batch, steady.context), dtype=np.int32)
        tokens = steady.max_model_len - steady.context
        shorter = [i % min(steady.block_size, steady.context) for i in range(steady.batch)]
        return [WorkRequest(f"request-{i}", ids[i, less:], forced(tokens)) for i, less in enumerate(shorter)]

    def notes(self) -> list[str]:
        """Nothing is left out."""
        return []


class SteadySteps(msgspec.Struct, frozen=True, eq=False):
    """The steps looked at: µs and bytes, each float64[steps] or int64[steps]; ``device_us`` as realised, ``ahead_us``
    beside the steps (see SessionReport).
    """

    phases_us: dict[str, Float64Array]
    step_us: Float64Array
    host_us: Float64Array
    device_us: Float64Array
    ahead_us: Float64Array
    plan_bytes: Int64Matrix
    result_bytes: Int64Matrix


def simulated(name: str, longest: int) -> ResolvedModel:
    """The simulated model of this name, for contexts of ``longest`` tokens.

    Raises:
        ModelError: a name it doesn't have.
    """
    model = resolve_model(name)
    assert isinstance(model.config, SimConfig), "weights take no part in this"
    config = msgspec.structs.replace(model.config, max_model_len=max(longest, model.config.max_model_len))
    return msgspec.structs.replace(model, config=config)


def prepare_steady(base: Experiment, steady: SteadyBatch, model: ResolvedModel) -> Prepared:
    """``base`` (its codec, path, repeats and seed) with a steady batch as its workload.

    Raises:
        ExperimentError: no such codec, or options that can't go together.
    """
    lengths = LengthRange(max(1, steady.context - steady.block_size + 1), steady.context)
    tokens = steady.max_model_len - steady.context
    experiment = msgspec.structs.replace(
        base,
        workload=Synthetic(num_prompts=steady.batch, input_len=lengths, output_len=LengthRange(tokens, tokens)),
        max_num_seqs=steady.batch,
        max_num_batched_tokens=max(steady.batch, min(steady.ids, PREFILL_TOKENS)),
        max_model_len=steady.max_model_len,
        block_size=steady.block_size,
        num_blocks=steady.num_blocks,
    )
    requests = SteadyRequests(steady, vocab_size=model.config.vocab_size, seed=base.seed)
    return Prepared(settled(experiment), model, ModelText(model), requests)


def decode_steadily(engine: Engine, requests: Sequence[WorkRequest], steps: int) -> SteadySteps:
    """Prefill, settle, decode ``steps`` steps and end the session; the requests need not have ended.

    Raises:
        EngineError: whatever the engine raises. FaultError: the steps were no steady decode.
    """
    with swept():
        for request in requests:
            engine.add_request(request.request_id, request.prompt_token_ids, request.params)
        while engine.has_unfinished and len(engine.step().rows) < len(requests):
            pass
        for _ in range(DROPPED_STEPS + steps + 1):  # the gap after a step is known only when the next one has begun
            engine.step()
    report = engine.close()
    window = slice(-steps - 1, -1)
    sizes, tokens = report.batch_sizes[window], report.num_tokens[window]
    if len(sizes) != steps or (sizes != len(requests)).any() or (tokens != len(requests)).any():
        raise FaultError(f"{len(requests)} requests that decode did not all get one token in each of {steps} steps")
    return SteadySteps(
        {name: us[window] for name, us in report.phases_us.items()},
        report.step_us[window],
        report.host_us[window],
        report.device_us[window],
        report.ahead_us[window],
        report.plan_bytes[window],
        report.result_bytes[window],
    )
