"""Reading columns out of bytes, and admissions as packed columns.

It does not know what else is in a payload. Nothing is allocated for a length that the bytes do not bear out.
"""

import struct
from itertools import accumulate, pairwise
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from serbench_codecs.plan import SAMPLING_DTYPE, Admissions, Int32Array, Ragged

INT32 = np.dtype(np.int32)
INT64 = np.dtype(np.int64)

_COUNT: Final = struct.Struct("<i")


class ColumnReader:
    """Takes columns off a body, one after the other; every one is a copy, not to be written to."""

    def __init__(self, body: memoryview, offset: int) -> None:
        self._body = body
        self._offset = offset

    def take(self, dtype: np.dtype[Any], count: int) -> npt.NDArray[Any]:
        """The next ``count`` items.

        Raises:
            ValueError: there are fewer.
        """
        if count == 0:
            return np.empty(0, dtype=dtype)
        if count < 0:
            raise ValueError(f"a column of {count} items")
        end = self._offset + count * dtype.itemsize
        column = np.frombuffer(bytes(self._body[self._offset : end]), dtype, count)
        self._offset = end
        return column

    def take_int32(self, count: int) -> Int32Array:
        """The next ``count`` int32. Raises ValueError as ``take`` does."""
        return self.take(INT32, count)

    def take_count(self) -> int:
        """The next int32, as a count. Raises struct.error where there is none."""
        (count,) = _COUNT.unpack_from(self._body, self._offset)
        self._offset += _COUNT.size
        return count  # type: ignore[no-any-return]

    def finish(self) -> None:
        """All must have been taken.

        Raises:
            ValueError: there are bytes left.
        """
        if self._offset != len(self._body):
            raise ValueError(f"{len(self._body)} bytes, of which {self._offset} mean something")


def pack_admissions(admitted: Admissions) -> list[bytes]:
    """The columns as bytes, to be joined: their number, then each column. Ragged ones as ends and values."""
    request_ids = [request_id.encode() for request_id in admitted.request_ids]
    id_ends = np.array([*accumulate(map(len, request_ids))], dtype=np.int32)
    return [
        len(admitted).to_bytes(4, "little"),
        admitted.rows.tobytes(),
        admitted.serials.tobytes(),
        admitted.num_prompt_tokens.tobytes(),
        admitted.num_computed_tokens.tobytes(),
        admitted.sampling.tobytes(),
        id_ends.tobytes(),
        *request_ids,
        *_pack_ragged(admitted.token_ids),
        *_pack_ragged(admitted.block_ids),
        *_pack_ragged(admitted.stop_ids),
    ]


def take_admissions(reader: ColumnReader) -> Admissions:
    """The admissions that ``pack_admissions`` packed.

    Raises:
        ValueError: it didn't pack these.
    """
    n = reader.take_count()
    return Admissions(
        rows=reader.take_int32(n),
        serials=reader.take(INT64, n),
        num_prompt_tokens=reader.take_int32(n),
        num_computed_tokens=reader.take_int32(n),
        sampling=reader.take(SAMPLING_DTYPE, n),
        request_ids=_take_strings(reader, n),
        token_ids=_take_ragged(reader, n),
        block_ids=_take_ragged(reader, n),
        stop_ids=_take_ragged(reader, n),
    )


def _pack_ragged(ragged: Ragged) -> tuple[bytes, bytes]:
    return ragged.offsets[1:].tobytes(), ragged.values.tobytes()


def _take_ragged(reader: ColumnReader, n: int) -> Ragged:
    offsets = np.zeros(n + 1, dtype=np.int32)
    offsets[1:] = reader.take_int32(n)
    return Ragged(offsets, reader.take_int32(int(offsets[-1])))


def _take_strings(reader: ColumnReader, n: int) -> list[str]:
    ends = [0, *reader.take_int32(n).tolist()]
    joined = reader.take(np.dtype(np.uint8), ends[-1]).tobytes()
    return [joined[begin:end].decode() for begin, end in pairwise(ends)]
