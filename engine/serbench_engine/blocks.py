"""The pool of KV cache blocks: who holds which, which are free, which free ones can still be found by their content.

It does not know requests or rows; the scheduler says what to take and what to give back.
"""

from collections import OrderedDict
from hashlib import blake2b

import numpy as np

from serbench_codecs.plan import NO_ROWS, Int32Array


def chain_hash(parent: bytes, token_ids: Int32Array) -> bytes:
    """The 128-bit hash of a full block, over its ids and all ids before it (through ``parent``, empty at the start)."""
    return blake2b(parent + token_ids.tobytes(), digest_size=16).digest()


class BlockPool:
    """Reference-counted blocks. Free ones are handed out least recently used first, and stay findable until then."""

    def __init__(self, num_blocks: int) -> None:
        self._references = np.zeros(num_blocks, dtype=np.int32)
        self._free: OrderedDict[int, None] = OrderedDict.fromkeys(range(num_blocks))
        self._block_of: dict[bytes, int] = {}
        self._hash_of: dict[int, bytes] = {}

    @property
    def num_free(self) -> int:
        return len(self._free)

    def allocate(self, count: int) -> Int32Array:
        """Take ``count`` of the free blocks, int32[count]; what they held can't be found any more."""
        if not count:
            return NO_ROWS
        blocks = [self._free.popitem(last=False)[0] for _ in range(count)]
        if self._hash_of:
            for block in blocks:
                self._forget(block)
        taken = np.array(blocks, dtype=np.int32)
        self._references[taken] = 1
        return taken

    def release(self, blocks: Int32Array) -> None:
        """Give up one reference to each block (unique ids), the end of the sequence first to be reused."""
        self._references[blocks] -= 1
        idle = blocks[self._references[blocks] == 0]
        self._free.update(dict.fromkeys(idle[::-1].tolist()))

    def find(self, hashes: list[bytes]) -> list[int]:
        """The blocks of the longest findable prefix of ``hashes``."""
        found: list[int] = []
        for one in hashes:
            block = self._block_of.get(one)
            if block is None:
                break
            found.append(block)
        return found

    def count_idle(self, blocks: list[int]) -> int:
        """How many of ``blocks`` are free now, so that holding them takes from ``num_free``."""
        return sum(block in self._free for block in blocks)

    def hold(self, blocks: list[int]) -> None:
        """Add one reference to each found block."""
        for block in blocks:
            self._free.pop(block, None)
            self._references[block] += 1

    def publish(self, block: int, content: bytes) -> None:
        """Make a written block findable; the first of several with the same content stays the one."""
        if content not in self._block_of and block not in self._hash_of:
            self._block_of[content] = block
            self._hash_of[block] = content

    def forget_all(self) -> None:
        """Nothing can be found any more (a recovery: nobody knows what the workers wrote)."""
        self._block_of.clear()
        self._hash_of.clear()

    def _forget(self, block: int) -> None:
        content = self._hash_of.pop(block, None)
        if content is not None:
            del self._block_of[content]
