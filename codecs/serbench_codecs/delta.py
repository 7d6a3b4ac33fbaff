"""The codec ``delta``: a request is sent whole once, then only its new token ids, new blocks and count, as structs.

It does not know what a worker's table holds: what changes says where it goes.
"""

import pickle
from collections.abc import Iterable
from itertools import repeat
from typing import Any, Literal, TypeAlias

import msgspec

from serbench_codecs.codec import Traits
from serbench_codecs.decoding import BAD_BYTES, BatchMemory, int32, malformed
from serbench_codecs.errors import MalformedPayloadError
from serbench_codecs.id_lists import writes_of, written
from serbench_codecs.new_requests import NewRequest, admissions, new_requests
from serbench_codecs.pickled import pickle_dumps
from serbench_codecs.plan import StepPlan
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
        requests = _deltas(plan)
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
        told = [one for one in requests if one.token_ids]
        tokens = writes_of(
            [one.row for one in told], [one.tokens_start for one in told], [one.token_ids for one in told]
        )
        grown = [one for one in requests if one.block_ids]
        blocks = writes_of(
            [one.row for one in grown], [one.blocks_start for one in grown], [one.block_ids for one in grown]
        )
        batch_rows, batch_counts = self._batch.running(
            [one.row for one in requests], [one.num_scheduled for one in requests]
        )
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


def _deltas(plan: StepPlan) -> list[RequestDelta]:
    """One for each request that runs, in batch order, then those that changed and don't run."""
    nothing: list[int] = []
    rows, tokens = plan.batch_rows.tolist(), written(plan.tokens)
    starts: Iterable[int] = repeat(0)
    ids: Iterable[list[int]] = repeat(nothing)
    if plan.tokens.rows.tobytes() == plan.batch_rows.tobytes() and tokens:  # a steady step: as quick as can be
        _, starts, ids = zip(*tokens, strict=True)
        tokens = []
    columns = (rows, plan.batch_counts.tolist(), starts, ids, repeat(0), repeat(nothing))
    deltas = list(map(RequestDelta, *columns))
    by_row = dict(zip(rows, deltas, strict=True))
    for row, start, values in written(plan.blocks):
        delta = by_row.get(row) or _idle(row, by_row, deltas)
        delta.blocks_start, delta.block_ids = start, values
    for row, start, values in tokens:
        delta = by_row.get(row) or _idle(row, by_row, deltas)
        delta.tokens_start, delta.token_ids = start, values
    return deltas


def _idle(row: int, by_row: dict[int, RequestDelta], deltas: list[RequestDelta]) -> RequestDelta:
    """A new delta for a row that changed but does not run."""
    delta = by_row[row] = RequestDelta(row, 0, 0, [], 0, [])
    deltas.append(delta)
    return delta
