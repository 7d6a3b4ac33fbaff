"""The codec ``cached``: ``delta`` without the sampled token ids, because the worker keeps what it sampled.

It does not know the ids of running requests at all: only an admission carries ids.
"""

from itertools import repeat

import msgspec

from serbench_codecs.codec import Traits
from serbench_codecs.decoding import BAD_BYTES, BatchMemory, int32, malformed
from serbench_codecs.id_lists import writes_of, written
from serbench_codecs.new_requests import NewRequest, admissions, new_requests
from serbench_codecs.plan import NO_WRITES, StepPlan
from serbench_codecs.table import RequestTable, TableLimits


class RequestChange(msgspec.Struct, array_like=True, gc=False):
    """What changed for one request; ``num_scheduled`` is 0 for a request that changed but does not run."""

    row: int
    num_scheduled: int
    blocks_start: int
    block_ids: list[int]


class StepChanges(msgspec.Struct, array_like=True, gc=False, frozen=True):
    """A step: rows freed, requests admitted, and a change for each request that runs (in batch order) or got blocks."""

    step: int
    epoch: int
    freed: list[int]
    admitted: list[NewRequest]
    requests: list[RequestChange]


class CachedEncoder:
    """Makes structs of a plan; keeps nothing."""

    def __init__(self) -> None:
        self._encoder = msgspec.msgpack.Encoder()

    def adapt(self, plan: StepPlan, table: RequestTable) -> StepChanges:
        """The plan as structs, one for each request."""
        rows = plan.batch_rows.tolist()
        nothing: list[int] = []
        requests = list(map(RequestChange, rows, plan.batch_counts.tolist(), repeat(0), repeat(nothing)))
        if len(plan.blocks):
            by_row = dict(zip(rows, requests, strict=True))
            for row, start, values in written(plan.blocks):
                change = by_row.get(row)
                if change is None:
                    requests.append(RequestChange(row, 0, start, values))
                else:
                    change.blocks_start, change.block_ids = start, values
        return StepChanges(plan.step, plan.epoch, plan.freed.tolist(), new_requests(plan.admitted), requests)

    def encode(self, objects: StepChanges) -> bytes:
        """The structs in MessagePack."""
        return self._encoder.encode(objects)


class CachedDecoder:
    """Makes a plan of structs; remembers the batch, to hand out the same arrays for the same one."""

    def __init__(self) -> None:
        self._decoder = msgspec.msgpack.Decoder(StepChanges)
        self._batch = BatchMemory()

    def decode(self, payload: memoryview) -> StepChanges:
        """The structs.

        Raises:
            MalformedPayloadError: bytes that no encoder of this codec made.
        """
        try:
            return self._decoder.decode(payload)
        except BAD_BYTES as error:
            raise malformed("cached", error) from error

    def adapt(self, objects: StepChanges) -> StepPlan:
        """The structs as columns.

        Raises:
            MalformedPayloadError: numbers that no plan can hold.
        """
        try:
            return self._plan(objects)
        except BAD_BYTES as error:
            raise malformed("cached", error) from error

    def _plan(self, changes: StepChanges) -> StepPlan:
        requests = changes.requests
        grown = [one for one in requests if one.block_ids]
        blocks = writes_of(
            [one.row for one in grown], [one.blocks_start for one in grown], [one.block_ids for one in grown]
        )
        batch_rows, batch_counts = self._batch.running(
            [one.row for one in requests], [one.num_scheduled for one in requests]
        )
        return StepPlan(
            changes.step,
            changes.epoch,
            int32(changes.freed),
            admissions(changes.admitted),
            blocks,
            NO_WRITES,
            batch_rows,
            batch_counts,
        )


class CachedCodec(msgspec.Struct, frozen=True):
    """Changes only, without the ids that the worker sampled itself."""

    name: str = "cached"
    traits: Traits = Traits(
        sends="derived", sampled_ids_travel=False, remembers=True, trusted_only=False, result_format="msgspec"
    )

    def ends(self, limits: TableLimits) -> tuple[CachedEncoder, CachedDecoder]:
        """A new encoder and a new decoder."""
        return CachedEncoder(), CachedDecoder()
