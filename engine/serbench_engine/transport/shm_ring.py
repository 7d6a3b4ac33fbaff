"""Lays payloads out in a ring of bytes, the same way for its writer and its readers. It moves and waits for nothing.

Positions only rise; position p lies at offset p modulo the ring's size. A record is a prefix with two lengths, header
and body, at a multiple of ALIGNMENT. A record of at most half the ring is *whole*: it never wraps (it skips to the
ring's start instead), so that readers can be handed views of it. A larger one is carried in pieces, which may wrap.
"""

import struct
from typing import Final

import msgspec

ALIGNMENT: Final = 8
PREFIX: Final = struct.Struct("<II")  # header length, body length
SMALLEST_RING: Final = 64
LARGEST_RING: Final = 1 << 30


class Layout(msgspec.Struct, frozen=True):
    """The rule for a ring of ``ring_bytes``.

    Raises:
        ValueError: not between SMALLEST_RING and LARGEST_RING, or no multiple of ALIGNMENT.
    """

    ring_bytes: int

    def __post_init__(self) -> None:
        if not SMALLEST_RING <= self.ring_bytes <= LARGEST_RING or self.ring_bytes % ALIGNMENT:
            raise ValueError(
                f"a ring of {self.ring_bytes} bytes; it must have {SMALLEST_RING} to {LARGEST_RING}, "
                f"in multiples of {ALIGNMENT}"
            )

    def most_whole(self) -> int:
        """Header and body of the largest record that is laid out whole."""
        return self.ring_bytes // 2 - PREFIX.size

    def piece(self) -> int:
        """How much of a larger record is written before it is published: readers copy while the writer goes on."""
        return self.ring_bytes // 4


def padded(size: int) -> int:
    """``size`` with what follows up to the next record."""
    return (size + ALIGNMENT - 1) & -ALIGNMENT


def place(position: int, size: int, ring_bytes: int) -> tuple[int, int]:
    """Where a whole record whose prefix is at ``position`` has its ``size`` bytes, and what the record takes in all.

    Returns:
        The offset of the header, and the bytes from the prefix to the next record.
    """
    at = (position + PREFIX.size) % ring_bytes
    to_end = ring_bytes - at
    if size <= to_end:
        return at, PREFIX.size + padded(size)
    return 0, PREFIX.size + to_end + padded(size)
