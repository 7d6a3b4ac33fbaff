"""Positional writes as Python lists of ids, and back: what codecs with an object for each request are made of.

It does not know whether the ids are tokens or blocks.
"""

from collections.abc import Sequence
from itertools import chain

import numpy as np

from serbench_codecs.decoding import int32
from serbench_codecs.plan import NO_WRITES, Writes


def written(writes: Writes) -> list[tuple[int, int, list[int]]]:
    """Row, start and ids of each write, as Python integers."""
    values = writes.values.tolist()
    if len(values) == len(writes.rows):
        ids = [[value] for value in values]
    else:
        ends = np.cumsum(writes.counts).tolist()
        ids = [values[end - count : end] for end, count in zip(ends, writes.counts.tolist(), strict=True)]
    return list(zip(writes.rows.tolist(), writes.starts.tolist(), ids, strict=True))


def writes_of(rows: Sequence[int], starts: Sequence[int], ids: Sequence[list[int]]) -> Writes:
    """The write of a list of ids into each row, none of them empty.

    Raises:
        OverflowError: a number that int32 can't hold.
    """
    if not rows:
        return NO_WRITES
    counts = int32([len(one) for one in ids])
    return Writes(int32(rows), int32(starts), counts, int32(list(chain.from_iterable(ids))))
