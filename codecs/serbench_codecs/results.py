"""The encodings of what a step sampled: ``none``, ``pickle``, ``cloudpickle``, ``msgspec`` and ``packed``.

It does not know which requests the ids belong to: that follows from the plan that a result answers.
"""

import pickle
import struct
from collections.abc import Callable
from typing import Any, Final, Literal

import msgspec
import numpy as np

from serbench_codecs.decoding import BAD_BYTES, int32, malformed
from serbench_codecs.errors import MalformedPayloadError
from serbench_codecs.extent import all_below
from serbench_codecs.pickled import cloudpickle_dumps, pickle_dumps
from serbench_codecs.plan import FAILED_ROW, Int32Array, Logprobs, StepResult
from serbench_codecs.table import TableLimits


class LogprobLists(msgspec.Struct, array_like=True, gc=False, frozen=True):
    """:class:`serbench_codecs.plan.Logprobs` as Python lists."""

    counts: list[int]
    token_ids: list[int]
    values: list[float]
    ranks: list[int]


class ResultLists(msgspec.Struct, array_like=True, gc=False, frozen=True):
    """A result as Python lists, one id for each sampled row."""

    token_ids: list[int]
    logprobs: LogprobLists | None


class ListsEncoder:
    """Serializes lists by ``dumps``."""

    def __init__(self, dumps: Callable[[Any], bytes]) -> None:
        self._dumps = dumps

    def adapt(self, result: StepResult) -> ResultLists:
        """The columns as lists."""
        logprobs = result.logprobs
        if logprobs is None:
            return ResultLists(result.token_ids.tolist(), None)
        columns = (logprobs.counts, logprobs.token_ids, logprobs.values, logprobs.ranks)
        return ResultLists(result.token_ids.tolist(), LogprobLists(*(column.tolist() for column in columns)))

    def encode(self, objects: ResultLists) -> bytes:
        """The lists, serialized."""
        return self._dumps(objects)


class ListsDecoder:
    """Deserializes lists by ``loads``."""

    def __init__(self, name: str, loads: Callable[[memoryview], Any], limits: TableLimits) -> None:
        self._name = name
        self._loads = loads
        self._limits = limits

    def decode(self, payload: memoryview) -> ResultLists:
        """The lists.

        Raises:
            MalformedPayloadError: bytes that no encoder of this format made.
        """
        try:
            result = self._loads(payload)
        except Exception as error:  # unpickling can raise anything; msgspec only raises what is in BAD_BYTES
            raise malformed(self._name, error) from error
        if not isinstance(result, ResultLists):
            raise MalformedPayloadError(f"{self._name}: a {type(result).__name__} where a ResultLists was due")
        return result

    def adapt(self, objects: ResultLists, step: int, epoch: int) -> StepResult:
        """The lists as columns.

        Raises:
            MalformedPayloadError: columns that fit neither each other nor the limits.
        """
        try:
            logprobs = None if objects.logprobs is None else _logprob_columns(objects.logprobs)
            result = StepResult(step, epoch, int32(objects.token_ids), logprobs)
        except BAD_BYTES as error:
            raise malformed(self._name, error) from error
        return _checked(self._name, result, self._limits)


_PACKED: Final = struct.Struct("<I?")  # sampled rows, whether logprobs follow
_NARROW: Final = np.dtype("<u2")
_NARROW_FAILED: Final = 0xFFFF
_WIDE: Final = np.dtype(np.int32)


class PackedEncoder:
    """Columns as raw bytes: sampled ids, then, where asked for, counts, ids, values and ranks of the logprobs.

    Sampled ids take two bytes each where the vocabulary allows it, else four.
    """

    def __init__(self, limits: TableLimits) -> None:
        self._id_type = _id_type(limits)

    def adapt(self, result: StepResult) -> StepResult:
        """The result itself."""
        return result

    def encode(self, objects: StepResult) -> bytes:
        """Five bytes and two or four for each id; with logprobs, four more for each row and twelve for each entry."""
        logprobs = objects.logprobs
        head = _PACKED.pack(len(objects.token_ids), logprobs is not None)
        ids = objects.token_ids.astype(self._id_type).tobytes()
        if logprobs is None:
            return head + ids
        columns = (logprobs.counts, logprobs.token_ids, logprobs.values, logprobs.ranks)
        return head + ids + b"".join([column.tobytes() for column in columns])


class PackedDecoder:
    """Reads the columns out of the bytes."""

    def __init__(self, limits: TableLimits) -> None:
        self._limits = limits
        self._max_rows = limits.max_num_seqs
        self._vocab_size = limits.vocab_size
        self._id_type = _id_type(limits)

    def decode(self, payload: memoryview) -> tuple[Int32Array, Logprobs | None]:
        """The columns, copied.

        Raises:
            MalformedPayloadError: a length that does not fit, or ids outside the limits.
        """
        try:
            num_rows, has_logprobs = _PACKED.unpack_from(payload)
            ids = np.frombuffer(payload, self._id_type, num_rows, _PACKED.size).astype(_WIDE)
            end = _PACKED.size + num_rows * self._id_type.itemsize
            logprobs = _packed_logprobs(payload[end:], num_rows) if has_logprobs else None
            if not has_logprobs and len(payload) != end:
                raise ValueError(f"{len(payload)} bytes where {num_rows} ids end at {end}")
        except BAD_BYTES as error:
            raise malformed("packed", error) from error
        if num_rows > self._max_rows or not all_below(ids, self._vocab_size):
            if self._id_type is _NARROW:
                ids[ids == _NARROW_FAILED] = FAILED_ROW
            _check_ids("packed", ids, self._limits)
        return ids, logprobs

    def adapt(self, objects: tuple[Int32Array, Logprobs | None], step: int, epoch: int) -> StepResult:
        """The columns with their step.

        Raises:
            MalformedPayloadError: logprobs that fit neither the ids nor the limits.
        """
        ids, logprobs = objects
        if logprobs is not None:
            _check_logprobs("packed", logprobs, len(ids), self._limits)
        return StepResult(step, epoch, ids, logprobs)


class ReferenceResultEncoder:
    """Passes the result on."""

    def adapt(self, result: StepResult) -> StepResult:
        """The result itself."""
        return result

    def encode(self, objects: StepResult) -> StepResult:
        """The result itself: it never leaves its process."""
        return objects


class ReferenceResultDecoder:
    """Takes the result."""

    def decode(self, payload: object) -> StepResult:
        """The result itself.

        Raises:
            MalformedPayloadError: anything else, such as bytes.
        """
        if not isinstance(payload, StepResult):
            raise MalformedPayloadError(f"none: {type(payload).__name__} where a StepResult of this process was due")
        return payload

    def adapt(self, objects: StepResult, step: int, epoch: int) -> StepResult:
        """The result itself."""
        return objects


class ReferenceResults(msgspec.Struct, frozen=True):
    """Results by reference; same process only."""

    name: str = "none"
    trusted_only: bool = False

    def ends(self, limits: TableLimits) -> tuple[ReferenceResultEncoder, ReferenceResultDecoder]:
        """A new encoder and a new decoder."""
        return ReferenceResultEncoder(), ReferenceResultDecoder()


class ListResults(msgspec.Struct, frozen=True):
    """Results as lists of Python numbers, by the library of this name."""

    name: Literal["pickle", "cloudpickle", "msgspec"]

    @property
    def trusted_only(self) -> bool:
        """Unpickling can execute code."""
        return self.name != "msgspec"

    def ends(self, limits: TableLimits) -> tuple[ListsEncoder, ListsDecoder]:
        """A new encoder and a new decoder."""
        if self.name == "msgspec":
            loads = msgspec.msgpack.Decoder(ResultLists).decode
            return ListsEncoder(msgspec.msgpack.Encoder().encode), ListsDecoder(self.name, loads, limits)
        dumps = pickle_dumps if self.name == "pickle" else cloudpickle_dumps()
        return ListsEncoder(dumps), ListsDecoder(self.name, pickle.loads, limits)


class PackedResults(msgspec.Struct, frozen=True):
    """Results as raw columns."""

    name: str = "packed"
    trusted_only: bool = False

    def ends(self, limits: TableLimits) -> tuple[PackedEncoder, PackedDecoder]:
        """A new encoder and a new decoder."""
        return PackedEncoder(limits), PackedDecoder(limits)


def _logprob_columns(lists: LogprobLists) -> Logprobs:
    with np.errstate(over="ignore"):  # a corrupt float may be too large for float32: that makes it infinite
        values = np.array(lists.values, dtype=np.float32)
    return Logprobs(int32(lists.counts), int32(lists.token_ids), values, int32(lists.ranks))


def _id_type(limits: TableLimits) -> np.dtype[Any]:
    """The narrowest type for a sampled id and FAILED_ROW, which is its highest value where that is unsigned."""
    return _NARROW if limits.vocab_size <= _NARROW_FAILED else _WIDE


def _packed_logprobs(body: memoryview, num_rows: int) -> Logprobs:
    num_entries, rest = divmod(len(body) - 4 * num_rows, 12)
    if num_entries < 0 or rest:
        raise ValueError(f"{len(body)} bytes for the logprobs of {num_rows} rows")
    columns = np.frombuffer(body, dtype=np.int32).copy()
    counts, entries = columns[:num_rows], columns[num_rows:]
    token_ids, values, ranks = entries[:num_entries], entries[num_entries : 2 * num_entries], entries[2 * num_entries :]
    return Logprobs(counts, token_ids, values.view(np.float32), ranks)


def _checked(name: str, result: StepResult, limits: TableLimits) -> StepResult:
    """Refuse what a scheduler could stumble over."""
    _check_ids(name, result.token_ids, limits)
    if result.logprobs is not None:
        _check_logprobs(name, result.logprobs, len(result.token_ids), limits)
    return result


def _check_ids(name: str, ids: Int32Array, limits: TableLimits) -> None:
    if len(ids) > limits.max_num_seqs:
        raise MalformedPayloadError(f"{name}: {len(ids)} ids, where at most {limits.max_num_seqs} rows run")
    if not all_below(ids, limits.vocab_size) and not all_below(ids[ids != FAILED_ROW], limits.vocab_size):
        raise MalformedPayloadError(f"{name}: an id outside 0 … {limits.vocab_size - 1} that is not {FAILED_ROW}")


def _check_logprobs(name: str, logprobs: Logprobs, num_rows: int, limits: TableLimits) -> None:
    counts, num_entries = logprobs.counts, len(logprobs.token_ids)
    if len(counts) != num_rows or len(logprobs.values) != num_entries or len(logprobs.ranks) != num_entries:
        raise MalformedPayloadError(f"{name}: columns of the logprobs differ in length")
    if len(counts) and (int(counts.min()) < 0 or int(counts.sum(dtype=np.int64)) != num_entries):
        raise MalformedPayloadError(f"{name}: {num_entries} logprobs do not fit the rows' counts")
    if num_entries and not 0 <= int(logprobs.token_ids.min()) <= int(logprobs.token_ids.max()) < limits.vocab_size:
        raise MalformedPayloadError(f"{name}: a logprob of an id outside 0 … {limits.vocab_size - 1}")
