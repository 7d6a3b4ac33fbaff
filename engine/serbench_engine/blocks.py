"""The pool of KV cache blocks: who holds which, which are free, which free ones can still be found by their content.

It does not know requests or rows; the scheduler says what to take and what to give back.
"""

from collections import deque
from hashlib import blake2b

import numpy as np

from serbench_codecs.plan import NO_ROWS, Int32Array


def chain_hash(parent: bytes, token_ids: Int32Array) -> bytes:
    """The 128-bit hash of a full block, over its ids and all ids before it (through ``parent``, empty at the start)."""
    return blake2b(parent + token_ids.tobytes(), digest_size=16).digest()


class BlockPool:
    """Reference-counted blocks. Free ones are handed out least recently used first, and stay findable until then.

    A free block that is held again leaves its entry in the queue, which counts as stale: of several entries of a block
    only the last may be true. The queue is cleared of them when it has more than two entries a block.
    """

    def __init__(self, num_blocks: int) -> None:
        self._references = np.zeros(num_blocks, dtype=np.int32)
        self._free = deque(range(num_blocks))
        self._stale: dict[int, int] = {}  # how many entries of a block in the queue are
        self._num_free = num_blocks
        self._block_of: dict[bytes, int] = {}
        self._hash_of: dict[int, bytes] = {}
        self._watched: frozenset[bytes] = frozenset()
        self.watched_changed = False  # cleared by whoever looks
        self._to_forget: list[int] = []  # of the blocks that were taken last, those that are still findable

    @property
    def num_free(self) -> int:
        return self._num_free

    def allocate(self, count: int) -> Int32Array:
        """Take ``count`` of the free blocks, int32[count]; what they held can't be found any more."""
        taken = self.take(count)
        self.forget_taken()
        return taken

    def take(self, count: int) -> Int32Array:
        """Take ``count`` of the free blocks, int32[count]; ``forget_taken`` or ``put_back`` must follow.

        What they held stays findable until then, so that nothing published meanwhile takes its place.
        """
        if not count:
            return NO_ROWS
        pop = self._pop if self._stale else self._free.popleft
        blocks = [pop() for _ in range(count)]
        self._num_free -= count
        self._to_forget = [block for block in blocks if block in self._hash_of]
        taken = np.array(blocks, dtype=np.int32)
        self._references[taken] = 1
        return taken

    def forget_taken(self) -> None:
        """What the blocks taken last held can't be found any more: they are to be written."""
        for block in self._to_forget:
            content = self._hash_of.pop(block)
            del self._block_of[content]
            self.watched_changed |= content in self._watched
        self._to_forget = []

    def put_back(self, blocks: Int32Array) -> None:
        """Undo ``take``, which gave ``blocks``: they are the next again."""
        self._free.extendleft(blocks[::-1].tolist())
        self._num_free += len(blocks)
        self._references[blocks] = 0
        self._to_forget = []

    def release(self, blocks: Int32Array) -> None:
        """Give up one reference to each block (unique ids), the end of the sequence first to be reused."""
        left = self._references[blocks] - 1
        self._references[blocks] = left
        idle = blocks[left == 0] if np.count_nonzero(left) else blocks
        self._free.extend(idle[::-1].tolist())
        self._num_free += len(idle)
        if len(self._free) > 2 * len(self._references):
            self._free = deque([self._pop() for _ in range(self._num_free)])
            self._stale.clear()

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
        return len(blocks) - int(np.count_nonzero(self._references[blocks])) if blocks else 0

    def hold(self, blocks: list[int]) -> None:
        """Add one reference to each found block."""
        for block in blocks:
            if not self._references[block]:
                self._stale[block] = self._stale.get(block, 0) + 1
                self._num_free -= 1
            self._references[block] += 1

    def publish(self, blocks: list[int], hashes: list[bytes]) -> None:
        """Make written blocks findable; the first of several with the same content stays the one."""
        for block, content in zip(blocks, hashes, strict=True):
            if content not in self._block_of and block not in self._hash_of:
                self._block_of[content] = block
                self._hash_of[block] = content
                self.watched_changed |= content in self._watched

    def forget_all(self) -> None:
        """Nothing can be found any more (a recovery: nobody knows what the workers wrote)."""
        self._block_of.clear()
        self._hash_of.clear()
        self.watched_changed = True

    def watch(self, contents: frozenset[bytes]) -> None:
        """From now on ``watched_changed`` is set when one of ``contents`` becomes findable, or is so no longer."""
        self._watched = contents

    def _pop(self) -> int:
        """The next free block, past stale entries."""
        while stale := self._stale.get(block := self._free.popleft()):
            if stale == 1:
                del self._stale[block]
            else:
                self._stale[block] = stale - 1
        return block
