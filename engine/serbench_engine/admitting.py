"""What a plan says of the requests that it admits: columns, made of tracked requests.

It does not know why these were taken, nor the table that they enter.
"""

import msgspec
import numpy as np

from serbench_codecs.plan import SAMPLING_DTYPE, Admissions, Int32Array, Ragged
from serbench_engine.tracked import TrackedRequest


class Taken(msgspec.Struct, frozen=True, eq=False):
    """A request that was given a row: ``blocks`` int32[n], the first of which hold ``num_computed`` tokens already."""

    row: int
    request: TrackedRequest
    blocks: Int32Array
    num_computed: int


def admissions_of(taken: list[Taken]) -> Admissions:
    """The plan's part; each request's ids must be current, its serial that of the row."""
    requests = [one.request for one in taken]
    return Admissions(
        rows=np.array([one.row for one in taken], dtype=np.int32),
        serials=np.array([request.serial for request in requests], dtype=np.int64),
        request_ids=[request.request_id for request in requests],
        num_prompt_tokens=np.array([request.num_prompt_tokens for request in requests], dtype=np.int32),
        num_computed_tokens=np.array([one.num_computed for one in taken], dtype=np.int32),
        token_ids=Ragged.of([request.token_ids for request in requests]),
        block_ids=Ragged.of([one.blocks for one in taken]),
        sampling=np.frombuffer(b"".join([request.sampling.tobytes() for request in requests]), SAMPLING_DTYPE),
        stop_ids=Ragged.of([request.stop_ids for request in requests]),
    )
