"""The codec ``cached``: ``delta`` without the sampled token ids, because the worker keeps what it sampled.

It does not know the ids of running requests at all: only an admission carries ids.
"""

import msgspec

from serbench_codecs.codec import Traits
from serbench_codecs.decoding import BAD_BYTES, BatchMemory, int32, malformed
from serbench_codecs.full_state import written
from serbench_codecs.new_requests import NewRequest, admissions, new_requests
from serbench_codecs.plan import NO_WRITES, StepPlan, Writes
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
        requests = [
            RequestChange(row, count, 0, []) for row, count in zip(rows, plan.batch_counts.tolist(), strict=True)
        ]
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
        rows = int32([one.row for one in requests])
        counts = int32([one.num_scheduled for one in requests])
        blocks = _block_writes([one for one in requests if one.block_ids])
        if len(counts) and int(counts.min()) == 0:
            rows, counts = rows[counts != 0], counts[counts != 0]
        batch_rows, batch_counts = self._batch.same(rows, counts)
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


def _block_writes(changed: list[RequestChange]) -> Writes:
    if not changed:
        return NO_WRITES
    return Writes(
        int32([one.row for one in changed]),
        int32([one.blocks_start for one in changed]),
        int32([len(one.block_ids) for one in changed]),
        int32([block for one in changed for block in one.block_ids]),
    )
