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

from serbench_codecs.codec import Traits
from serbench_codecs.decoding import BAD_BYTES, malformed
from serbench_codecs.forecast import Forecast
from serbench_codecs.packed_columns import INT32, ColumnReader, pack_admissions, take_admissions
from serbench_codecs.plan import NO_ADMISSIONS, NO_ROWS, NO_WRITES, Admissions, Int32Array, StepPlan, Writes
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

_NONE_WRONG: Final = bytes(4)

_FEW: Final = 8
"""Up to so many blocks are looked at one by one in less time than numpy needs to begin."""

_HEAD_AND_FEW: Final = [struct.Struct(f"{_HEAD.format}{2 * n}i") for n in range(_FEW + 1)]
"""A head, and the rows and ids of so many blocks."""


class ColumnarEncoder:
    """Packs what a decoder that saw the same plans can't tell itself."""

    def __init__(self, limits: TableLimits) -> None:
        self._forecast = Forecast(limits)
        self._ones = _ones(limits)
        self._row_type, self._count_type = _batch_types(limits)

    def adapt(self, plan: StepPlan, table: RequestTable) -> StepPlan:
        """The plan itself: columns are what is sent."""
        return plan

    def encode(self, objects: StepPlan) -> bytes:
        """The head and its sections."""
        plan, forecast = objects, self._forecast
        if len(plan.freed) or len(plan.admitted.rows) or not forecast.is_last_batch(plan):
            return self._encode_change(plan)
        forecast.ran_again()
        blocks = plan.blocks
        num_writes = len(blocks.rows)
        if len(blocks.values) == num_writes <= _FEW:
            rows = blocks.rows.tolist()
            if forecast.append(rows, blocks.starts.tolist()):
                flags = SAME | APPEND_ONE if num_writes else SAME
                return _HEAD_AND_FEW[num_writes].pack(
                    plan.step, num_writes, plan.epoch, flags, *rows, *blocks.values.tolist()
                )
        flags, packed = self._pack_blocks(blocks)
        return _HEAD.pack(plan.step, num_writes, plan.epoch, flags) + packed

    def _encode_change(self, plan: StepPlan) -> bytes:
        """Where requests come or go, or the batch is another one."""
        flags = 0
        sections = []
        if len(plan.freed):
            flags |= FREED
            sections += [len(plan.freed).to_bytes(4, "little"), plan.freed.tobytes()]
        if len(plan.admitted):
            flags |= ADMITTED
            sections += pack_admissions(plan.admitted)
            self._forecast.admit(plan.admitted)
        if len(plan.blocks):
            kind, blocks = self._pack_blocks(plan.blocks)
            flags |= kind
            sections.append(blocks)
        kind, batch = self._pack_batch(plan)
        return b"".join([_HEAD.pack(plan.step, len(plan.blocks), plan.epoch, flags | kind), *sections, *batch])

    def _pack_blocks(self, blocks: Writes) -> tuple[int, bytes]:
        num_writes = len(blocks.rows)
        if len(blocks.values) == num_writes <= _FEW and self._forecast.append(
            blocks.rows.tolist(), blocks.starts.tolist()
        ):
            return APPEND_ONE, blocks.rows.tobytes() + blocks.values.tobytes()
        rows, starts = blocks.rows.astype(np.intp), blocks.starts
        held = self._forecast.next_blocks(rows)
        are_next = held.tobytes() == starts.tobytes()
        if are_next and len(blocks.values) == len(rows):
            self._forecast.hold(rows, starts + self._ones[: len(rows)])
            return APPEND_ONE, blocks.rows.tobytes() + blocks.values.tobytes()
        ends = starts + blocks.counts
        rows_and_counts = blocks.rows.tobytes() + blocks.counts.tobytes()
        if are_next:
            self._forecast.hold(rows, ends)
            return APPEND, rows_and_counts + blocks.values.tobytes()
        self._forecast.hold(rows, np.maximum(held, ends))
        return POSITIONAL, rows_and_counts + starts.tobytes() + blocks.values.tobytes()

    def _pack_batch(self, plan: StepPlan) -> tuple[int, list[bytes]]:
        forecast = self._forecast
        if forecast.is_last_batch(plan):
            forecast.ran(plan.batch_rows, plan.batch_counts)
            return SAME, []
        rows, counts = forecast.batch(plan.freed, plan.admitted)
        as_forecast = rows.tobytes() == plan.batch_rows.tobytes()
        if as_forecast and counts.tobytes() == plan.batch_counts.tobytes():
            forecast.ran_as_forecast(plan.batch_rows, plan.batch_counts)
            return FORECAST, [_NONE_WRONG]
        forecast.ran(plan.batch_rows, plan.batch_counts)
        if as_forecast:
            wrong = np.flatnonzero(counts != plan.batch_counts).astype(np.int32)
            return FORECAST, [len(wrong).to_bytes(4, "little"), wrong.tobytes(), plan.batch_counts[wrong].tobytes()]
        return WHOLE, [
            len(plan.batch_rows).to_bytes(4, "little"),
            plan.batch_rows.astype(self._row_type).tobytes(),
            plan.batch_counts.astype(self._count_type).tobytes(),
        ]


class ColumnarDecoder:
    """Unpacks the sections and tells the rest from the plans before."""

    def __init__(self, limits: TableLimits) -> None:
        self._forecast = Forecast(limits)
        self._ones = _ones(limits)
        self._row_type, self._count_type = _batch_types(limits)

    def decode(self, payload: memoryview) -> StepPlan:
        """The plan.

        Raises:
            MalformedPayloadError: bytes that no encoder of this codec made.
        """
        try:
            step, num_writes, epoch, flags = _HEAD.unpack_from(payload)
            if flags != SAME | APPEND_ONE:
                return self._decode_change(payload, step, num_writes, epoch, flags)
            blocks = self._appended(payload, num_writes)
            forecast = self._forecast
            forecast.ran_again()
            rows, counts = forecast.rows, forecast.counts
            return StepPlan(step, epoch, NO_ROWS, NO_ADMISSIONS, blocks, NO_WRITES, rows, counts)
        except BAD_BYTES as error:
            raise malformed("columnar", error) from error

    def adapt(self, objects: StepPlan) -> StepPlan:
        """The plan itself."""
        return objects

    def _appended(self, payload: memoryview, num_writes: int) -> Writes:
        """A block for each of some rows, and nothing else: what a steady step is made of."""
        if not num_writes or len(payload) != _HEAD.size + 8 * num_writes:
            raise ValueError(f"{len(payload)} bytes for {num_writes} blocks")
        ones = self._ones[:num_writes]
        if num_writes <= _FEW:
            head_and_few = _HEAD_AND_FEW[num_writes].unpack_from(payload)
            places = self._forecast.append_next(head_and_few[4 : 4 + num_writes])
            few = np.array((*head_and_few[4:], *places), INT32)
            return Writes(few[:num_writes], few[2 * num_writes :], ones, few[num_writes : 2 * num_writes])
        columns = np.frombuffer(payload, INT32, 2 * num_writes, _HEAD.size).copy()
        rows = columns[:num_writes]
        index = rows.astype(np.intp)
        starts = self._forecast.next_blocks(index)
        self._forecast.hold(index, starts + ones)
        return Writes(rows, starts, ones, columns[num_writes:])

    def _decode_change(self, payload: memoryview, step: int, num_writes: int, epoch: int, flags: int) -> StepPlan:
        """Where requests come or go, or the batch is another one, or there is nothing at all."""
        if flags & ~ALL_FLAGS or flags & BATCH == BATCH or bool(flags & BLOCKS) != bool(num_writes):
            raise ValueError(f"flags {flags:#x} with {num_writes} block writes")
        forecast, reader = self._forecast, ColumnReader(payload, _HEAD.size)
        freed = reader.take_int32(reader.take_count()) if flags & FREED else NO_ROWS
        admitted = NO_ADMISSIONS
        if flags & ADMITTED:
            admitted = take_admissions(reader)
            forecast.admit(admitted)
        blocks = self._blocks(reader, num_writes, flags & BLOCKS) if num_writes else NO_WRITES
        self._take_batch(reader, flags & BATCH, freed, admitted)
        reader.finish()
        return StepPlan(step, epoch, freed, admitted, blocks, NO_WRITES, forecast.rows, forecast.counts)

    def _blocks(self, reader: ColumnReader, num_writes: int, kind: int) -> Writes:
        rows = reader.take_int32(num_writes)
        one_each = kind == APPEND_ONE
        if one_each and num_writes <= _FEW:
            starts = np.array(self._forecast.append_next(rows.tolist()), INT32)
            return Writes(rows, starts, self._ones[:num_writes], reader.take_int32(num_writes))
        index = rows.astype(np.intp)
        counts = self._ones[:num_writes] if one_each else reader.take_int32(num_writes)
        held = self._forecast.next_blocks(index)
        starts = reader.take_int32(num_writes) if kind == POSITIONAL else held
        values = reader.take_int32(num_writes if one_each else int(counts.sum(dtype=np.int64)))
        ends = starts + counts
        self._forecast.hold(index, np.maximum(held, ends) if kind == POSITIONAL else ends)
        return Writes(rows, starts, counts, values)

    def _take_batch(self, reader: ColumnReader, kind: int, freed: Int32Array, admitted: Admissions) -> None:
        forecast = self._forecast
        if kind == SAME:
            forecast.ran_again()
            return
        number = reader.take_count()
        if kind == WHOLE:
            rows, counts = reader.take(self._row_type, number), reader.take(self._count_type, number)
            forecast.ran(rows.astype(np.int32), counts.astype(np.int32))
            return
        rows, counts = forecast.batch(freed, admitted)
        if not number:
            forecast.ran_as_forecast(rows, counts)
            return
        wrong = reader.take_int32(number)
        counts[wrong] = reader.take_int32(number)
        forecast.ran(rows, counts)


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


def _ones(limits: TableLimits) -> Int32Array:
    """The counts of writes of one block each, to be sliced and never written to."""
    ones = np.ones(limits.max_num_seqs, dtype=np.int32)
    ones.flags.writeable = False
    return ones
