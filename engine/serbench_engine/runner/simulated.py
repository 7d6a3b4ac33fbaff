"""The simulated model: no weights, but honest about state and time. It imports no torch.

It does not know the codec: whatever ids, blocks and counts reach the table, its outputs follow from them, so a wrong
one anywhere changes what is sampled.

State: one uint64 per KV slot, a hash chain along each sequence, read and written through the block table:
``kv[slot(p)] = A · kv[slot(p − 1)] + mix(token[p], p)`` modulo 2⁶⁴. That recurrence is affine, so a whole prompt
chunk is one cumulative sum: with A odd, ``Σ A^(j−i) f_i = A^j · Σ A^(−i) f_i``. The sampled id is a hash of the
request's seed, its output index, the last slot and one pseudo-random earlier slot.

Time: a device timeline. Launching returns at once; the result is there at max(now, device free) + step + tokens ·
token.
"""

import time
from typing import TypeAlias

import msgspec
import numpy as np
import numpy.typing as npt

from serbench_codecs.plan import Int32Array, StepPlan, StepResult
from serbench_codecs.table import RequestTable, TableLimits
from serbench_engine.models.config import SimConfig
from serbench_engine.runner.inputs import InputPreparer, StepInputs

UInt64Array: TypeAlias = npt.NDArray[np.uint64]

_A = np.uint64(0x9E3779B97F4A7C15)  # odd, so it has an inverse
_A_INVERSE = np.uint64(pow(int(_A), -1, 1 << 64))
_SPIN_NS = 100_000
_SEED_SALT = np.uint64(0xD1B54A32D192ED03)


class SimulatedBatch(msgspec.Struct, frozen=True, eq=False):
    """A step's inputs, and the table through which the hash reads slots (its blocks and ids stay as they are)."""

    step: int
    epoch: int
    inputs: StepInputs
    table: RequestTable

    @property
    def sample_rows(self) -> Int32Array:
        return self.inputs.sample_rows


class SimulatedRunner:
    """Implements ModelRunner. ``num_slots`` = blocks · block size."""

    def __init__(self, config: SimConfig, num_slots: int) -> None:
        self._config = config
        self._kv: UInt64Array = np.zeros(num_slots, dtype=np.uint64)
        self._powers: UInt64Array = np.ones(1, dtype=np.uint64)
        self._inverse_powers: UInt64Array = np.ones(1, dtype=np.uint64)
        self._inputs = InputPreparer()
        self._device_free_ns = 0
        self.device_ns = 0

    def open(self, limits: TableLimits) -> None:
        """KV is kept, as a device's memory would be; what is keyed by batch is forgotten."""
        self._inputs = InputPreparer()

    def prepare(self, plan: StepPlan, table: RequestTable) -> SimulatedBatch:
        """The columns that a real model would get."""
        return SimulatedBatch(plan.step, plan.epoch, self._inputs.prepare(plan, table), table)

    def forward(self, batch: SimulatedBatch) -> int:
        """Launch: when the device starts (CLOCK_MONOTONIC, ns). The hashing overlaps the device's time."""
        start = max(time.monotonic_ns(), self._device_free_ns)
        busy_us = self._config.step_us + self._config.token_us * len(batch.inputs.token_ids)
        self._device_free_ns = start + int(busy_us * 1e3)
        inputs = batch.inputs
        self._write_state(inputs, _slots(batch.table, inputs.rows, np.maximum(inputs.starts - 1, 0)))
        return start

    def sample(self, output: int, batch: SimulatedBatch) -> StepResult:
        """Hash the sampled ids, then wait for the device."""
        inputs, table, rows = batch.inputs, batch.table, batch.inputs.sample_rows
        num_outputs = (table.num_tokens[rows] - table.num_prompt_tokens[rows]).astype(np.uint64)
        seeds = mix(table.sampling["seed"][rows] + _SEED_SALT * num_outputs)
        earlier = (seeds % inputs.seq_lens[inputs.samples].astype(np.uint64)).astype(np.int32)
        last = self._kv[inputs.slots[inputs.query_starts[1:][inputs.samples] - 1]]
        value = mix(seeds ^ mix(last) ^ (mix(self._kv[_slots(table, rows, earlier)]) >> np.uint64(1)))
        ids = (value % np.uint64(self._config.vocab_size)).astype(np.int32)
        _wait_until(self._device_free_ns)
        self.device_ns = max(time.monotonic_ns(), self._device_free_ns) - output
        return StepResult(batch.step, batch.epoch, ids)

    def look_ahead(self, table: RequestTable) -> None:
        """See ModelRunner.look_ahead."""
        self._inputs.look_ahead(table)

    def _write_state(self, inputs: StepInputs, previous_slots: npt.NDArray[np.int64]) -> None:
        before = np.where(inputs.starts > 0, self._kv[previous_slots], np.uint64(0))
        positions = inputs.positions.astype(np.uint64)
        fresh = mix(inputs.token_ids.astype(np.uint64) + (positions << np.uint64(32)))
        if inputs.decode_only:
            self._kv[inputs.slots] = _A * before + fresh
            return
        self._grow_powers(int(inputs.counts.max()) + 1)
        first = np.repeat(inputs.query_starts[:-1], inputs.counts)
        within = np.arange(len(fresh), dtype=np.int32) - first  # j of each token in its chunk
        sums = np.cumsum(self._inverse_powers[within] * fresh)
        base = np.concatenate([np.zeros(1, dtype=np.uint64), sums])[inputs.query_starts[:-1]]
        chain = self._powers[within] * (sums - np.repeat(base, inputs.counts))
        self._kv[inputs.slots] = chain + self._powers[within + 1] * np.repeat(before, inputs.counts)

    def _grow_powers(self, size: int) -> None:
        if len(self._powers) < size:
            size = max(size, 2 * len(self._powers))
            self._powers = _power_table(_A, size)
            self._inverse_powers = _power_table(_A_INVERSE, size)


def mix(values: UInt64Array) -> UInt64Array:
    """splitmix64's finalizer (Steele, Lea, Flood: "Fast splittable pseudorandom number generators", 2014)."""
    values = (values ^ (values >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    values = (values ^ (values >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return values ^ (values >> np.uint64(31))


def _power_table(base: np.uint64, size: int) -> UInt64Array:
    powers = np.full(size, base, dtype=np.uint64)
    powers[0] = 1
    return np.cumprod(powers, dtype=np.uint64)


def _slots(table: RequestTable, rows: Int32Array, positions: Int32Array) -> npt.NDArray[np.int64]:
    size = np.int32(table.limits.block_size)
    blocks, offsets = np.divmod(positions, size)
    slots = table.block_table[rows, blocks].astype(np.int64)
    slots *= size
    slots += offsets
    return slots


def _wait_until(deadline_ns: int) -> None:
    """Sleep, then spin the last 0.1 ms: sleeping alone overshoots by as much."""
    left = deadline_ns - time.monotonic_ns()
    if left > _SPIN_NS:
        time.sleep((left - _SPIN_NS) / 1e9)
    while time.monotonic_ns() < deadline_ns:
        pass
