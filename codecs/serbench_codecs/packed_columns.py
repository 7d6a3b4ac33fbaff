"""Reading columns out of bytes, and admissions as packed columns.

It does not know what else is in a payload. Nothing is allocated for a length that the bytes do not bear out.
"""

import struct
from itertools import accumulate, pairwise
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from serbench_codecs.plan import NO_ROWS, SAMPLING_DTYPE, Admissions, Int32Array, Ragged

INT32 = np.dtype(np.int32)
INT64 = np.dtype(np.int64)
BYTE = np.dtype(np.uint8)

_COUNT: Final = struct.Struct("<i")


class ColumnReader:
    """Takes columns off a copy of a body, one after the other; they are views of it, not to be written to."""

    def __init__(self, body: memoryview, offset: int) -> None:
        self._body = bytes(body)
        self._offset = offset

    def take(self, dtype: np.dtype[Any], count: int) -> npt.NDArray[Any]:
        """The next ``count`` items.

        Raises:
            ValueError: there are fewer.
        """
        if count <= 0:
            if count:
                raise ValueError(f"a column of {count} items")
            return np.empty(0, dtype=dtype)
        column = np.frombuffer(self._body, dtype, count, self._offset)
        self._offset += count * dtype.itemsize
        return column

    def take_int32(self, count: int) -> Int32Array:
        """The next ``count`` int32. Raises ValueError as ``take`` does."""
        return self.take(INT32, count) if count else NO_ROWS

    def take_strings(self, ends: list[int]) -> list[str]:
        """UTF-8 strings that follow one another; ``ends``: where each ends, counted from here; at least one.

        Raises:
            ValueError: there are fewer bytes, or they are no UTF-8.
        """
        joined = self.take(BYTE, ends[-1]).tobytes()
        return [joined[begin:end].decode() for begin, end in pairwise([0, *ends])]

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
    """The columns as bytes, to be joined: their number; those of one int32 an admission, where the ragged ones have
    their ends; serials and sampling parameters; request ids; the values of the ragged ones.
    """
    request_ids = [request_id.encode() for request_id in admitted.request_ids]
    tokens, blocks, stops = admitted.token_ids, admitted.block_ids, admitted.stop_ids
    return [
        len(admitted).to_bytes(4, "little"),
        admitted.rows.tobytes(),
        admitted.num_prompt_tokens.tobytes(),
        admitted.num_computed_tokens.tobytes(),
        np.array([*accumulate(map(len, request_ids))], dtype=np.int32).tobytes(),
        tokens.offsets[1:].tobytes(),
        blocks.offsets[1:].tobytes(),
        stops.offsets[1:].tobytes(),
        admitted.serials.tobytes(),
        admitted.sampling.tobytes(),
        *request_ids,
        tokens.values.tobytes(),
        blocks.values.tobytes(),
        stops.values.tobytes(),
    ]


def take_admissions(reader: ColumnReader) -> Admissions:
    """The admissions that ``pack_admissions`` packed.

    Raises:
        ValueError: it didn't pack these.
    """
    n = reader.take_count()
    if n < 1:
        raise ValueError(f"{n} admissions")
    columns = reader.take_int32(7 * n)
    serials, sampling = reader.take(INT64, n), reader.take(SAMPLING_DTYPE, n)
    request_ids = reader.take_strings(columns[3 * n : 4 * n].tolist())
    ends = columns[4 * n :].tolist()
    tokens, blocks, stops = ends[:n], ends[n : 2 * n], ends[2 * n :]
    offsets = np.array((0, *tokens, 0, *blocks, 0, *stops), INT32)
    return Admissions(
        rows=columns[:n],
        serials=serials,
        request_ids=request_ids,
        num_prompt_tokens=columns[n : 2 * n],
        num_computed_tokens=columns[2 * n : 3 * n],
        token_ids=Ragged(offsets[: n + 1], reader.take_int32(tokens[-1])),
        block_ids=Ragged(offsets[n + 1 : 2 * n + 2], reader.take_int32(blocks[-1])),
        sampling=sampling,
        stop_ids=Ragged(offsets[2 * n + 2 :], reader.take_int32(stops[-1])),
    )
