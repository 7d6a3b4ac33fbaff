"""What decoders share: which exceptions mean bad bytes, and one batch object for as long as the batch stays the same.

It knows no codec and no layout.
"""

import pickle
import struct
from typing import Final

import msgspec
import numpy as np

from serbench_codecs.errors import MalformedPayloadError
from serbench_codecs.plan import NO_ROWS, Int32Array

BAD_BYTES: Final = (
    msgspec.MsgspecError,
    struct.error,
    pickle.UnpicklingError,
    ValueError,  # also UnicodeDecodeError
    TypeError,
    OverflowError,
    IndexError,
    KeyError,
    AttributeError,
)
"""What parsing bytes that no encoder made can raise: numpy and msgspec refuse with these."""


def malformed(name: str, error: Exception) -> MalformedPayloadError:
    """The error to raise in place of one of BAD_BYTES."""
    return MalformedPayloadError(f"{name}: the body can't be decoded: {type(error).__name__}: {error}")


def int32(values: list[int]) -> Int32Array:
    """``values`` as int32[len(values)].

    Raises:
        OverflowError: a value that int32 can't hold.
    """
    return np.array(values, dtype=np.int32)


class BatchMemory:
    """Hands out the previous batch's arrays while the batch is equal, so that identity can stand for equality."""

    def __init__(self) -> None:
        self._rows = NO_ROWS
        self._counts = NO_ROWS

    def same(self, rows: Int32Array, counts: Int32Array) -> tuple[Int32Array, Int32Array]:
        """The arrays to put into a plan for the batch ``rows`` and ``counts`` (int32[b] each)."""
        if rows.tobytes() != self._rows.tobytes() or counts.tobytes() != self._counts.tobytes():
            self._rows, self._counts = rows, counts
        return self._rows, self._counts
