"""The runner of real models: weights, KV cache, attention and sampler on one device, four calls a step.

It does not know codecs, transports or architectures; what a plan means is inputs.py's business.
"""

import os
from typing import Final

import msgspec
import torch
import torch.nn.functional as F
from torch import Tensor

from serbench_codecs.plan import Int32Array, StepPlan, StepResult
from serbench_codecs.table import RequestTable, TableLimits
from serbench_engine.attention.base import Attend, CacheShape
from serbench_engine.attention.registry import make_attention
from serbench_engine.errors import ConfigError
from serbench_engine.executor.base import WorkerSpec
from serbench_engine.layers.packed import usual_rows
from serbench_engine.layers.rows import Angles
from serbench_engine.models.base import CausalLM, attention_shape
from serbench_engine.models.config import ModelConfig
from serbench_engine.models.loading import fill_dummy, load_weights, pack_weights, uses_onednn
from serbench_engine.models.memory import available_bytes, check_fits
from serbench_engine.models.registry import build_model
from serbench_engine.runner.allocator import keep_freed_memory
from serbench_engine.runner.inputs import InputPreparer, StepInputs
from serbench_engine.sampling.sampler import Sampler
from serbench_engine.weights.reader import iterate_weights

DTYPES: Final = {"float32": torch.float32, "bfloat16": torch.bfloat16, "float16": torch.float16}


class TorchBatch(msgspec.Struct, frozen=True, eq=False):
    """One prepared step of t tokens, after which s rows sample.

    ``token_ids``, ``positions`` int32[t]; ``last`` int32[s]: the last token of each row that samples, None where all
    tokens do. Each may be followed by others that stand for nothing. ``table`` is the worker's own, which the sampler
    reads once the step has been counted.
    """

    step: int
    epoch: int
    inputs: StepInputs
    table: RequestTable
    token_ids: Tensor
    positions: Tensor
    last: Tensor | None
    attend: Attend

    @property
    def sample_rows(self) -> Int32Array:
        """See runner.base.Batch."""
        return self.inputs.sample_rows


class TorchRunner:
    """A ModelRunner. Made once in a worker's life; ``open`` begins each session or epoch.

    Raises (when made):
        ConfigError: weights and KV cache do not fit in memory, or there is no such device.
        ModelError: the weights do not fit the configuration.
    """

    def __init__(self, spec: WorkerSpec) -> None:
        config = spec.model.config
        if not isinstance(config, ModelConfig):
            raise ConfigError(f"{spec.model.name} is simulated: the torch runner runs real models only")
        check_fits(config, spec.dtype, spec.block_size, spec.num_blocks, available_bytes())
        torch.set_num_threads(spec.threads or len(os.sched_getaffinity(0)))
        self._spec, self._config = spec, config
        self.device_ns = 0  # the phases tell its time: on a CPU the calls return when they are done
        dtype = DTYPES[spec.dtype]
        self._attention = make_attention(
            attention_shape(config), CacheShape(spec.num_blocks, spec.block_size, dtype, spec.device)
        )
        self.model = _loaded_model(spec, config, dtype)
        keep_freed_memory()  # from here on: what loading took goes back to the system
        self._pads = uses_onednn(self.model)
        self._sampler = Sampler(config.vocab_size)
        self._preparer = InputPreparer()

    def open(self, limits: TableLimits) -> None:
        """See ModelRunner.open."""
        _check_limits(limits, self._spec, self._config)
        self._preparer = InputPreparer()
        self._sampler.open()

    def prepare(self, plan: StepPlan, table: RequestTable) -> TorchBatch:
        """See ModelRunner.prepare."""
        inputs = self._preparer.prepare(plan, table)
        count = len(inputs.token_ids)
        last = inputs.query_starts[1:][inputs.samples] - 1
        with torch.inference_mode():
            return TorchBatch(
                step=plan.step,
                epoch=plan.epoch,
                inputs=inputs,
                table=table,
                token_ids=self._tensor(inputs.token_ids),
                positions=self._tensor(inputs.positions),
                last=None if len(last) == count else self._tensor(last),
                attend=_of_first(count, self._rows(count), self._attention.begin(inputs, table.block_table)),
            )

    def look_ahead(self, table: RequestTable) -> None:
        """See ModelRunner.look_ahead."""
        self._preparer.look_ahead(table)

    def _tensor(self, column: Int32Array) -> Tensor:
        """On the device, int32[n], and as many zeros after it as its rows are padded with."""
        missing = self._rows(len(column)) - len(column)
        return F.pad(torch.from_numpy(column), (0, missing)).to(self._spec.device)

    def _rows(self, count: int) -> int:
        return usual_rows(count) if self._pads else count

    @torch.inference_mode()
    def forward(self, batch: TorchBatch) -> Tensor:
        """Logits [s, vocab_size] of the rows that sample, in batch order."""
        hidden = self.model.forward(batch.token_ids, batch.positions, batch.attend, batch.last)
        return self.model.logits(hidden)[: len(batch.inputs.samples)]

    @torch.inference_mode()
    def sample(self, output: Tensor, batch: TorchBatch) -> StepResult:
        """See ModelRunner.sample."""
        token_ids, logprobs = self._sampler.sample(output, batch.table, batch.inputs.sample_rows)
        return StepResult(batch.step, batch.epoch, token_ids, logprobs)


def _of_first(count: int, rows: int, attend: Attend) -> Attend:
    """``attend`` for the first ``count`` of ``rows`` tokens; the others get zeros."""
    if rows == count:
        return attend

    def attend_padded(layer: int, stacked: Tensor, angles: Angles | None) -> Tensor:
        angles = (angles[0][:count], angles[1][:count]) if angles else None
        return F.pad(attend(layer, stacked[:count], angles), (0, 0, 0, rows - count))

    return attend_padded


def _loaded_model(spec: WorkerSpec, config: ModelConfig, dtype: torch.dtype) -> CausalLM:
    model = build_model(config, dtype, spec.device)
    if spec.model.weights.kind == "dummy":
        fill_dummy(model, config.init_std, spec.seed)
    else:
        load_weights(model, iterate_weights(spec.model.weights, config))
    pack_weights(model)
    return model


def _check_limits(limits: TableLimits, spec: WorkerSpec, config: ModelConfig) -> None:
    """A session's table must address nothing that the worker does not have."""
    for what, wanted, most in (
        ("blocks", limits.num_blocks, spec.num_blocks),
        ("tokens a request", limits.max_model_len, config.max_model_len),
        ("token ids", limits.vocab_size, config.vocab_size),
    ):
        if wanted > most:
            raise ConfigError(f"the session asks for {wanted} {what}, the worker has {most}")
    if limits.block_size != spec.block_size:
        raise ConfigError(f"the session has blocks of {limits.block_size} tokens, the worker of {spec.block_size}")
