"""How the codecs that send changes send an admission: one struct a request, whole, ids packed.

It does not know what else is in a payload.
"""

import msgspec
import numpy as np

from serbench_codecs.decoding import int32
from serbench_codecs.plan import NO_ADMISSIONS, SAMPLING_DTYPE, Admissions, Int32Array, Ragged


class NewRequest(msgspec.Struct, array_like=True, gc=False, frozen=True):
    """One request as it enters a row. ``bytes`` hold little-endian int32 ids, or one record of SAMPLING_DTYPE."""

    row: int
    serial: int
    request_id: str
    num_prompt_tokens: int
    num_computed_tokens: int
    token_ids: bytes
    block_ids: bytes
    sampling: bytes
    stop_ids: bytes


def new_requests(admitted: Admissions) -> list[NewRequest]:
    """A struct for each admission, in order."""
    return [
        NewRequest(
            row=int(admitted.rows[i]),
            serial=int(admitted.serials[i]),
            request_id=admitted.request_ids[i],
            num_prompt_tokens=int(admitted.num_prompt_tokens[i]),
            num_computed_tokens=int(admitted.num_computed_tokens[i]),
            token_ids=admitted.token_ids[i].tobytes(),
            block_ids=admitted.block_ids[i].tobytes(),
            sampling=admitted.sampling[i : i + 1].tobytes(),
            stop_ids=admitted.stop_ids[i].tobytes(),
        )
        for i in range(len(admitted))
    ]


def admissions(requests: list[NewRequest]) -> Admissions:
    """The columns of ``requests``; nothing in them is a view of a payload.

    Raises:
        ValueError, OverflowError: no encoder made these.
    """
    if not requests:
        return NO_ADMISSIONS
    sampling = np.frombuffer(b"".join([one.sampling for one in requests]), dtype=SAMPLING_DTYPE)
    return Admissions(
        int32([one.row for one in requests]),
        np.array([one.serial for one in requests], dtype=np.int64),
        [one.request_id for one in requests],
        int32([one.num_prompt_tokens for one in requests]),
        int32([one.num_computed_tokens for one in requests]),
        Ragged.of([_ids(one.token_ids) for one in requests]),
        Ragged.of([_ids(one.block_ids) for one in requests]),
        sampling,
        Ragged.of([_ids(one.stop_ids) for one in requests]),
    )


def _ids(packed: bytes) -> Int32Array:
    return np.frombuffer(packed, dtype=np.int32)
