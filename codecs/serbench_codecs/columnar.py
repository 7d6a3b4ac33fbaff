"""The codec ``columnar``: a plan as a few packed arrays, and none for what a worker can tell itself.

It does not know how rows are chosen or blocks allocated. No object per request: a steady step costs bytes per event.

A body is a head and the sections that its flags announce, in this order (arrays little-endian, int32 unless said):
    freed       count, rows
    admitted    as packed_columns.pack_admissions has it
    blocks      APPEND_ONE: rows, ids · APPEND: rows, counts, ids · POSITIONAL: rows, counts, starts, ids
    batch       SAME: nothing · FORECAST: count, indices, counts (where the forecast's are wrong) ·
                WHOLE: count, rows, counts (16 bits each where the limits allow it)
A block's place is not sent where it is the row's next. Sampled ids are not sent: the worker has them.
"""

import struct
from typing import Final

import msgspec
import numpy as np

from serbench_codecs.batch_forecast import BatchForecast
from serbench_codecs.codec import Traits
from serbench_codecs.decoding import BAD_BYTES, malformed
from serbench_codecs.packed_columns import INT32, ColumnReader, pack_admissions, take_admissions
from serbench_codecs.plan import NO_ADMISSIONS, NO_ROWS, NO_WRITES, StepPlan, Writes
from serbench_codecs.table import RequestTable, TableLimits

_HEAD: Final = struct.Struct("<QIHH")  # step, number of block writes, epoch, flags

FREED: Final = 1
ADMITTED: Final = 2
APPEND_ONE: Final = 4
APPEND: Final = 8
POSITIONAL: Final = 12
BLOCKS: Final = 12
SAME: Final = 0
FORECAST: Final = 16
WHOLE: Final = 32
BATCH: Final = 48
ALL_FLAGS: Final = FREED | ADMITTED | BLOCKS | BATCH

UINT16: Final = np.dtype(np.uint16)


class ColumnarEncoder:
    """Packs what a decoder that saw the same plans can't tell itself."""

    def __init__(self, limits: TableLimits) -> None:
        self._forecast = BatchForecast(limits)
        self._row_type, self._count_type = _batch_types(limits)

    def adapt(self, plan: StepPlan, table: RequestTable) -> StepPlan:
        """The plan itself: columns are what is sent."""
        return plan

    def encode(self, objects: StepPlan) -> bytes:
        """The head and its sections."""
        plan = objects
        flags = 0
        parts = [b""]  # the head's place
        if len(plan.freed):
            flags |= FREED
            parts += [len(plan.freed).to_bytes(4, "little"), plan.freed.tobytes()]
        if len(plan.admitted):
            flags |= ADMITTED
            parts += pack_admissions(plan.admitted)
            self._forecast.admit(plan.admitted)
        num_writes = len(plan.blocks.rows)
        if num_writes:
            flags |= self._pack_blocks(plan.blocks, parts)
        if not self._forecast.is_last_batch(plan):
            flags |= self._pack_batch(plan, parts)
            self._forecast.ran(plan.batch_rows, plan.batch_counts)
        else:
            self._forecast.ran(self._forecast.rows, self._forecast.counts)
        parts[0] = _HEAD.pack(plan.step, num_writes, plan.epoch, flags)
        return b"".join(parts)

    def _pack_blocks(self, blocks: Writes, parts: list[bytes]) -> int:
        rows, held = blocks.rows, self._forecast.num_blocks
        are_next = held[rows].tobytes() == blocks.starts.tobytes()
        parts.append(rows.tobytes())
        if are_next and len(blocks.values) == len(rows):
            held[rows] = blocks.starts + 1
            parts.append(blocks.values.tobytes())
            return APPEND_ONE
        held[rows] = np.maximum(held[rows], blocks.starts + blocks.counts)
        parts.append(blocks.counts.tobytes())
        if not are_next:
            parts.append(blocks.starts.tobytes())
        parts.append(blocks.values.tobytes())
        return APPEND if are_next else POSITIONAL

    def _pack_batch(self, plan: StepPlan, parts: list[bytes]) -> int:
        rows, counts = self._forecast.expected(plan.freed, plan.admitted)
        if rows.tobytes() == plan.batch_rows.tobytes():
            wrong = np.flatnonzero(counts != plan.batch_counts).astype(np.int32)
            parts += [len(wrong).to_bytes(4, "little"), wrong.tobytes(), plan.batch_counts[wrong].tobytes()]
            return FORECAST
        parts += [
            len(plan.batch_rows).to_bytes(4, "little"),
            plan.batch_rows.astype(self._row_type).tobytes(),
            plan.batch_counts.astype(self._count_type).tobytes(),
        ]
        return WHOLE


class ColumnarDecoder:
    """Unpacks the sections and tells the rest from the plans before."""

    def __init__(self, limits: TableLimits) -> None:
        self._forecast = BatchForecast(limits)
        self._row_type, self._count_type = _batch_types(limits)

    def decode(self, payload: memoryview) -> StepPlan:
        """The plan.

        Raises:
            MalformedPayloadError: bytes that no encoder of this codec made.
        """
        try:
            step, num_writes, epoch, flags = _HEAD.unpack_from(payload)
            if flags == SAME | APPEND_ONE:
                blocks = self._appended(payload, num_writes)
                self._forecast.ran(self._forecast.rows, self._forecast.counts)
                return StepPlan(
                    step, epoch, NO_ROWS, NO_ADMISSIONS, blocks, NO_WRITES, self._forecast.rows, self._forecast.counts
                )
            return self._plan(payload, step, num_writes, epoch, flags)
        except BAD_BYTES as error:
            raise malformed("columnar", error) from error

    def adapt(self, objects: StepPlan) -> StepPlan:
        """The plan itself."""
        return objects

    def _plan(self, payload: memoryview, step: int, num_writes: int, epoch: int, flags: int) -> StepPlan:
        if flags & ~ALL_FLAGS or flags & BATCH == BATCH or bool(flags & BLOCKS) != bool(num_writes):
            raise ValueError(f"flags {flags:#x} with {num_writes} block writes")
        reader = ColumnReader(payload, _HEAD.size)
        freed = reader.take_int32(reader.take_count()) if flags & FREED else NO_ROWS
        admitted = NO_ADMISSIONS
        if flags & ADMITTED:
            admitted = take_admissions(reader)
            self._forecast.admit(admitted)
        blocks = self._blocks(reader, num_writes, flags & BLOCKS) if num_writes else NO_WRITES
        rows, counts = self._forecast.rows, self._forecast.counts
        if flags & BATCH == FORECAST:
            rows, counts = self._forecast.expected(freed, admitted)
            num_wrong = reader.take_count()
            wrong = reader.take_int32(num_wrong)
            counts[wrong] = reader.take_int32(num_wrong)
        elif flags & BATCH == WHOLE:
            num_rows = reader.take_count()
            rows = reader.take(self._row_type, num_rows).astype(np.int32)
            counts = reader.take(self._count_type, num_rows).astype(np.int32)
        reader.finish()
        self._forecast.ran(rows, counts)
        return StepPlan(step, epoch, freed, admitted, blocks, NO_WRITES, rows, counts)

    def _appended(self, payload: memoryview, num_writes: int) -> Writes:
        """The blocks of a steady step: rows, then ids, and nothing else."""
        if len(payload) != _HEAD.size + 8 * num_writes or not num_writes:
            raise ValueError(f"{len(payload)} bytes for {num_writes} blocks")
        both = np.frombuffer(payload, INT32, 2 * num_writes, _HEAD.size).copy()
        rows = both[:num_writes]
        starts = self._forecast.num_blocks[rows]
        ends = starts + 1
        self._forecast.num_blocks[rows] = ends
        return Writes(rows, starts, np.ones(num_writes, dtype=np.int32), both[num_writes:])

    def _blocks(self, reader: ColumnReader, num_writes: int, kind: int) -> Writes:
        held = self._forecast.num_blocks
        rows = reader.take_int32(num_writes)
        counts = np.ones(num_writes, dtype=np.int32) if kind == APPEND_ONE else reader.take_int32(num_writes)
        starts = reader.take_int32(num_writes) if kind == POSITIONAL else held[rows]
        values = reader.take_int32(int(counts.sum(dtype=np.int64)))
        held[rows] = np.maximum(held[rows], starts + counts)
        return Writes(rows, starts, counts, values)


class ColumnarCodec(msgspec.Struct, frozen=True):
    """Packed columns of what a worker can't tell itself."""

    name: str = "columnar"
    traits: Traits = Traits(
        sends="derived", sampled_ids_travel=False, remembers=True, trusted_only=False, result_format="packed"
    )

    def ends(self, limits: TableLimits) -> tuple[ColumnarEncoder, ColumnarDecoder]:
        """A new encoder and a new decoder."""
        return ColumnarEncoder(limits), ColumnarDecoder(limits)


def _batch_types(limits: TableLimits) -> tuple[np.dtype[np.unsignedinteger], np.dtype[np.unsignedinteger]]:
    """The narrowest types that hold a row and a count."""
    fits_rows, fits_counts = limits.max_num_seqs <= 1 << 16, limits.max_model_len < 1 << 16
    wide = np.dtype(np.uint32)
    return UINT16 if fits_rows else wide, UINT16 if fits_counts else wide
