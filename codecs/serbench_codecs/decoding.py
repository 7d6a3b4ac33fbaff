"""What decoders share: which exceptions mean bad bytes, and one batch object for as long as the batch stays the same.

It knows no codec and no layout.
"""

import pickle
import struct
from collections.abc import Sequence
from itertools import compress
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


def int32(values: Sequence[int]) -> Int32Array:
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

    def running(self, rows: Sequence[int], counts: Sequence[int]) -> tuple[Int32Array, Int32Array]:
        """The arrays for the batch of those ``rows`` whose count is not 0.

        Raises:
            OverflowError: a number that int32 can't hold.
        """
        if not all(counts):
            rows, counts = list(compress(rows, counts)), list(filter(None, counts))
        return self.same(int32(rows), int32(counts))

    def same(self, rows: Int32Array, counts: Int32Array) -> tuple[Int32Array, Int32Array]:
        """The arrays to put into a plan for the batch ``rows`` and ``counts`` (int32[b] each)."""
        if rows.tobytes() != self._rows.tobytes() or counts.tobytes() != self._counts.tobytes():
            self._rows, self._counts = rows, counts
        return self._rows, self._counts
