"""A worker's end of the full-state codecs: whole request states in, a plan of what is new in them out.

It does not know how the states were serialized. It remembers only how much of each request the worker's table holds.
"""

from collections.abc import Sequence
from operator import attrgetter
from typing import Any, Protocol, TypeAlias

import numpy as np
import numpy.typing as npt

from serbench_codecs.decoding import BatchMemory, int32
from serbench_codecs.full_state import RequestState
from serbench_codecs.plan import (
    NO_ADMISSIONS,
    NO_ROWS,
    NO_WRITES,
    SAMPLING_DTYPE,
    Admissions,
    Int32Array,
    Ragged,
    StepPlan,
    Writes,
)
from serbench_codecs.table import TableLimits

Flags: TypeAlias = npt.NDArray[np.bool_]

_sampling_fields = attrgetter(*(SAMPLING_DTYPE.names or ()))


class StepState(Protocol):
    """A step in full: the rows freed since the last one, and every scheduled request, whole, in batch order."""

    @property
    def step(self) -> int: ...
    @property
    def epoch(self) -> int: ...
    @property
    def freed(self) -> list[int]: ...
    @property
    def requests(self) -> Sequence[RequestState]: ...


class IdFormat(Protocol):
    """How the states carry lists of ids."""

    def lengths(self, ids: list[Any]) -> Int32Array:
        """How many ids each of n lists has, int32[n]."""
        ...

    def tails(self, ids: list[Any], starts: list[int]) -> Int32Array:
        """The ids of n lists from their starts on, concatenated and copied, int32[sum]."""
        ...


class ListIds:
    """Ids as ``list[int]``."""

    def lengths(self, ids: list[list[int]]) -> Int32Array:
        """How many ids each list has."""
        return int32([len(one) for one in ids])

    def tails(self, ids: list[list[int]], starts: list[int]) -> Int32Array:
        """The ids from the starts on."""
        return int32([value for one, start in zip(ids, starts, strict=True) for value in one[start:]])


class PackedIds:
    """Ids as little-endian int32 in bytes or a memoryview of bytes."""

    def lengths(self, ids: list[bytes]) -> Int32Array:
        """How many ids each has; a part of an id is refused in ``tails``."""
        return int32([len(one) >> 2 for one in ids])

    def tails(self, ids: list[bytes], starts: list[int]) -> Int32Array:
        """The ids from the starts on.

        Raises:
            ValueError: bytes that don't end with a whole id.
        """
        joined = b"".join([one[4 * start :] for one, start in zip(ids, starts, strict=True)])
        return np.frombuffer(joined, dtype=np.int32)


class FullStateMirror:
    """Knows, for each row, which serial the worker's table holds and how far.

    A request that is not known as far as its state says is admitted again, whole: a lost payload does no lasting harm.
    """

    def __init__(self, limits: TableLimits, ids: IdFormat) -> None:
        self._ids = ids
        self._batch = BatchMemory()
        self._serial = np.zeros(limits.max_num_seqs, dtype=np.int64)
        self._num_tokens = np.zeros(limits.max_num_seqs, dtype=np.int32)
        self._num_blocks = np.zeros(limits.max_num_seqs, dtype=np.int32)
        self._num_computed = np.zeros(limits.max_num_seqs, dtype=np.int32)

    def plan(self, state: StepState) -> StepPlan:
        """What is new in ``state``, and the batch; the worker's table is taken to be updated with it.

        Raises:
            IndexError, OverflowError, ValueError: ``state`` can't have come from a scheduler with the same limits.
        """
        requests = state.requests
        freed, rows = int32(state.freed), int32([one.row for one in requests])
        self._serial[freed] = 0
        at = rows.astype(np.intp)  # indices of the machine's width are far quicker
        token_ids, block_ids = [one.token_ids for one in requests], [one.block_ids for one in requests]
        num_tokens, num_blocks = self._ids.lengths(token_ids), self._ids.lengths(block_ids)
        had_tokens, had_blocks = self._num_tokens[at], self._num_blocks[at]
        known = self._known(at, requests) & (had_tokens <= num_tokens) & (had_blocks <= num_blocks)
        blocks = self._news(rows, block_ids, had_blocks, num_blocks, known)
        tokens = self._news(rows, token_ids, had_tokens, num_tokens, known)
        admitted = self._admissions([requests[i] for i in np.flatnonzero(~known).tolist()])
        counts = int32([one.num_scheduled for one in requests])
        self._num_tokens[at] = num_tokens
        self._num_blocks[at] = num_blocks
        self._num_computed[at] += counts
        return StepPlan(state.step, state.epoch, freed, admitted, blocks, tokens, *self._batch.same(rows, counts))

    def _known(self, at: npt.NDArray[np.intp], requests: Sequence[RequestState]) -> Flags:
        """Which requests the rows ``at`` hold, computed as far; notes what they hold from now on."""
        serials = np.array([one.serial for one in requests], dtype=np.int64)
        computed = int32([one.num_computed_tokens for one in requests])
        known: Flags = (self._serial[at] == serials) & (self._num_computed[at] == computed)
        self._serial[at] = serials
        self._num_computed[at] = computed
        return known

    def _news(self, rows: Int32Array, ids: list[Any], have: Int32Array, now: Int32Array, known: Flags) -> Writes:
        """The ids past what the table has, for the known requests."""
        grown = np.flatnonzero(known & (now > have))
        if not len(grown):
            return NO_WRITES
        starts = have[grown]
        values = self._ids.tails([ids[i] for i in grown.tolist()], starts.tolist())
        return Writes(rows[grown], starts, now[grown] - starts, values)

    def _admissions(self, unknown: list[RequestState]) -> Admissions:
        if not unknown:
            return NO_ADMISSIONS
        with np.errstate(over="ignore"):  # a corrupt float may be too large for float32: that makes it infinite
            sampling = np.array([_sampling_fields(one.sampling) for one in unknown], dtype=SAMPLING_DTYPE)
        return Admissions(
            int32([one.row for one in unknown]),
            np.array([one.serial for one in unknown], dtype=np.int64),
            [one.request_id for one in unknown],
            int32([one.num_prompt_tokens for one in unknown]),
            int32([one.num_computed_tokens for one in unknown]),
            self._ragged([one.token_ids for one in unknown]),
            self._ragged([one.block_ids for one in unknown]),
            sampling,
            Ragged.of([one.stop_ids for one in unknown]),
        )

    def _ragged(self, ids: list[Any]) -> Ragged:
        offsets = np.zeros(len(ids) + 1, dtype=np.int32)
        np.cumsum(self._ids.lengths(ids), out=offsets[1:])
        return Ragged(offsets, self._ids.tails(ids, [0] * len(ids)) if ids else NO_ROWS)
