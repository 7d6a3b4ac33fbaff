"""The codec ``delta``: a request is sent whole once, then only its new token ids, new blocks and count, as structs.

It does not know what a worker's table holds: what changes says where it goes.
"""

import pickle
from typing import Any, Literal, TypeAlias

import msgspec
import numpy as np

from serbench_codecs.codec import Traits
from serbench_codecs.decoding import BAD_BYTES, BatchMemory, int32, malformed
from serbench_codecs.errors import MalformedPayloadError
from serbench_codecs.full_state import written
from serbench_codecs.new_requests import NewRequest, admissions, new_requests
from serbench_codecs.pickled import pickle_dumps
from serbench_codecs.plan import NO_WRITES, StepPlan, Writes
from serbench_codecs.table import RequestTable, TableLimits

Format: TypeAlias = Literal["msgspec", "pickle"]


class RequestDelta(msgspec.Struct, array_like=True, gc=False):
    """What changed for one request; ``num_scheduled`` is 0 for a request that changed but does not run."""

    row: int
    num_scheduled: int
    tokens_start: int
    token_ids: list[int]
    blocks_start: int
    block_ids: list[int]


class StepDelta(msgspec.Struct, array_like=True, gc=False, frozen=True):
    """A step: rows freed, requests admitted, and a delta for each request that runs (in batch order) or changed."""

    step: int
    epoch: int
    freed: list[int]
    admitted: list[NewRequest]
    requests: list[RequestDelta]


class DeltaEncoder:
    """Makes structs of a plan; keeps nothing."""

    def __init__(self, dumps: Any) -> None:
        self._dumps = dumps

    def adapt(self, plan: StepPlan, table: RequestTable) -> StepDelta:
        """The plan as structs, one for each request."""
        rows = plan.batch_rows.tolist()
        requests = [
            RequestDelta(row, count, 0, [], 0, []) for row, count in zip(rows, plan.batch_counts.tolist(), strict=True)
        ]
        by_row = dict(zip(rows, requests, strict=True))
        for row, start, values in written(plan.blocks):
            delta = by_row.get(row) or _idle(row, by_row, requests)
            delta.blocks_start, delta.block_ids = start, values
        for row, start, values in written(plan.tokens):
            delta = by_row.get(row) or _idle(row, by_row, requests)
            delta.tokens_start, delta.token_ids = start, values
        return StepDelta(plan.step, plan.epoch, plan.freed.tolist(), new_requests(plan.admitted), requests)

    def encode(self, objects: StepDelta) -> bytes:
        """The structs, in the codec's wire format."""
        packed: bytes = self._dumps(objects)
        return packed


class DeltaDecoder:
    """Makes a plan of structs; remembers the batch, to hand out the same arrays for the same one."""

    def __init__(self, name: str, loads: Any) -> None:
        self._name = name
        self._loads = loads
        self._batch = BatchMemory()

    def decode(self, payload: memoryview) -> StepDelta:
        """The structs.

        Raises:
            MalformedPayloadError: bytes that no encoder of this codec made.
        """
        try:
            delta = self._loads(payload)
        except Exception as error:  # unpickling can raise anything; msgspec only raises what is in BAD_BYTES
            raise malformed(self._name, error) from error
        if not isinstance(delta, StepDelta):
            raise MalformedPayloadError(f"{self._name}: a {type(delta).__name__} where a StepDelta was due")
        return delta

    def adapt(self, objects: StepDelta) -> StepPlan:
        """The structs as columns.

        Raises:
            MalformedPayloadError: numbers that no plan can hold.
        """
        try:
            return self._plan(objects)
        except BAD_BYTES as error:
            raise malformed(self._name, error) from error

    def _plan(self, delta: StepDelta) -> StepPlan:
        requests = delta.requests
        rows = int32([one.row for one in requests])
        counts = int32([one.num_scheduled for one in requests])
        blocks = _writes([(one.row, one.blocks_start, one.block_ids) for one in requests if one.block_ids])
        tokens = _writes([(one.row, one.tokens_start, one.token_ids) for one in requests if one.token_ids])
        if len(counts) and int(counts.min()) == 0:
            rows, counts = rows[counts != 0], counts[counts != 0]
        batch_rows, batch_counts = self._batch.same(rows, counts)
        return StepPlan(
            delta.step,
            delta.epoch,
            int32(delta.freed),
            admissions(delta.admitted),
            blocks,
            tokens,
            batch_rows,
            batch_counts,
        )


class DeltaCodec(msgspec.Struct, frozen=True):
    """Changes only, sampled ids among them; ``format`` is the wire format of the structs."""

    format: Format = "msgspec"

    @property
    def name(self) -> str:
        """``delta``, and the format where it is not msgspec."""
        return "delta" if self.format == "msgspec" else f"delta:format={self.format}"

    @property
    def traits(self) -> Traits:
        """A change means nothing without the ones before it."""
        return Traits(
            sends="delta",
            sampled_ids_travel=True,
            remembers=True,
            trusted_only=self.format == "pickle",
            result_format=self.format,
        )

    def ends(self, limits: TableLimits) -> tuple[DeltaEncoder, DeltaDecoder]:
        """A new encoder and a new decoder."""
        if self.format == "pickle":
            return DeltaEncoder(pickle_dumps), DeltaDecoder(self.name, pickle.loads)
        return DeltaEncoder(msgspec.msgpack.Encoder().encode), DeltaDecoder(
            self.name, msgspec.msgpack.Decoder(StepDelta).decode
        )


def _idle(row: int, by_row: dict[int, RequestDelta], requests: list[RequestDelta]) -> RequestDelta:
    """A new delta for a row that changed but does not run."""
    delta = by_row[row] = RequestDelta(row, 0, 0, [], 0, [])
    requests.append(delta)
    return delta


def _writes(parts: list[tuple[int, int, list[int]]]) -> Writes:
    if not parts:
        return NO_WRITES
    rows, starts, values = zip(*parts, strict=True)
    counts = int32([len(one) for one in values])
    return Writes(
        np.array(rows, dtype=np.int32),
        np.array(starts, dtype=np.int32),
        counts,
        int32([value for one in values for value in one]),
    )
