"""The contract of a codec: two ends made anew for every session, their traits, and the header of every payload.

It knows no codec (registry.py lists them) and no transport.

A payload is a header of HEADER_BYTES and a body. The body is the codec's; the header is the same for all of them and is
written and checked outside of them, so that a plug-in codec gets the checks for free.
"""

import struct
import zlib
from typing import Any, Final, Literal, Protocol, TypeAlias

import msgspec

from serbench_codecs.errors import MalformedPayloadError, OutOfOrderError, WrongEpochError
from serbench_codecs.plan import StepPlan, StepResult
from serbench_codecs.table import RequestTable, TableLimits

Buffer: TypeAlias = bytes | bytearray | memoryview
"""What travels between processes."""

_BUFFERS: Final = (bytes, bytearray, memoryview)

Body: TypeAlias = Buffer | StepPlan | StepResult
"""What an encoder makes: bytes, or (codec ``none``) the thing itself, which stays in its process."""


def body_bytes(body: object) -> int:
    """The length of a body in bytes; 0 for one that never leaves its process."""
    return len(body) if isinstance(body, _BUFFERS) else 0


class Traits(msgspec.Struct, frozen=True):
    """What one may rely on, and must take care of, with a codec.

    ``sends``: ``reference`` (no bytes), ``full`` (whole state every step), ``delta`` (changes), ``derived`` (less than
    the changes: the worker derives the rest). ``sampled_ids_travel``: if not, a worker writes its own samples into its
    table. ``remembers``: its ends keep state, so payloads must arrive once and in order. ``trusted_only``: decoding may
    execute code, so only our own processes may ever write to the transport. ``result_format``: the default encoding of
    results, a name in ``registry.RESULT_FORMATS``.
    """

    sends: Literal["reference", "full", "delta", "derived"]
    sampled_ids_travel: bool
    remembers: bool
    trusted_only: bool
    result_format: str


class Encoder(Protocol):
    """The scheduler's end. Both calls are made once a step, in this order; they are clocked apart."""

    def adapt(self, plan: StepPlan, table: RequestTable) -> Any:
        """Turn columns into whatever this codec serializes; upkeep of kept objects belongs here (phase ``adapt``).

        ``table`` is the scheduler's, after scheduling and before ``advance``. Codecs that serialize the columns
        themselves return the plan.
        """
        ...

    def encode(self, objects: Any) -> Body:
        """Serialize (phase ``encode``). A returned buffer is valid until the next ``encode``."""
        ...


class Decoder(Protocol):
    """A worker's end: the same two calls the other way round. It keeps no views of a payload."""

    def decode(self, payload: memoryview) -> Any:
        """Deserialize a body (phase ``decode``).

        Raises:
            CodecError: for bytes that no encoder of this codec made, unless the codec is ``trusted_only``.
        """
        ...

    def adapt(self, objects: Any) -> StepPlan:
        """Turn the objects into a plan (phase ``adapt``). Its arrays must not be views of the payload.

        Raises:
            CodecError: the objects can't be a plan.
        """
        ...


class ResultEncoder(Protocol):
    """A worker's end of a result format."""

    def adapt(self, result: StepResult) -> Any:
        """Turn the columns of a result into what is serialized."""
        ...

    def encode(self, objects: Any) -> Body:
        """Serialize. A returned buffer is valid until the next ``encode``."""
        ...


class ResultDecoder(Protocol):
    """The scheduler's end of a result format."""

    def decode(self, payload: memoryview) -> Any:
        """Deserialize. Raises CodecError as ``Decoder.decode`` does."""
        ...

    def adapt(self, objects: Any, step: int, epoch: int) -> StepResult:
        """Turn the objects into a result; ``step`` and ``epoch`` come from the header."""
        ...


class Codec(Protocol):
    """A way to keep the workers' tables equal to the scheduler's. Stateless itself: its ends remember."""

    @property
    def name(self) -> str:
        """The full name with its options that are not the default, e.g. ``pickle:ids=packed``."""
        ...

    @property
    def traits(self) -> Traits: ...

    def ends(self, limits: TableLimits) -> tuple[Encoder, Decoder]:
        """A new encoder and a new decoder, for one session and one epoch."""
        ...


class ResultFormat(Protocol):
    """An encoding of results; stateless itself. ``trusted_only``: decoding may execute code, as in ``Traits``."""

    @property
    def name(self) -> str: ...

    @property
    def trusted_only(self) -> bool: ...

    def ends(self, limits: TableLimits) -> tuple[ResultEncoder, ResultDecoder]: ...


# --- header -----------------------------------------------------------------------------------------------------------

MAGIC: Final = b"srb"
FORMAT_VERSION: Final = 1
_HEADER: Final = struct.Struct("<3sBBxHIQI")  # magic, version, kind, -, epoch, codec id, step, body length
HEADER_BYTES: Final = _HEADER.size
MAX_BODY_BYTES: Final = 1 << 30

PLAN: Final = 1
RESULT: Final = 2
END: Final = 3
"""Kinds of payload. END has no body: the session is over."""

Kind: TypeAlias = Literal[1, 2, 3]


class Header(msgspec.Struct, frozen=True):
    """The parsed header of a payload; ``body_bytes`` follow it."""

    kind: int
    epoch: int
    codec_id: int
    step: int
    body_bytes: int


def codec_id(name: str) -> int:
    """32 bits that tell one codec (or result format) from another in a header."""
    return zlib.crc32(name.encode())


def pack_header(kind: Kind, codec_id: int, epoch: int, step: int, body: Body) -> bytes:
    """The header for ``body``; a body that never leaves its process has length 0.

    Raises:
        MalformedPayloadError: the body is over MAX_BODY_BYTES, or nothing that can be sent.
    """
    length = len(body) if isinstance(body, _BUFFERS) else _length_of_none(body)
    if length > MAX_BODY_BYTES:
        raise MalformedPayloadError(f"body of {length} bytes, more than {MAX_BODY_BYTES}")
    return _HEADER.pack(MAGIC, FORMAT_VERSION, kind, epoch, codec_id, step, length)


def _length_of_none(body: object) -> int:
    """0 for what never leaves its process."""
    if not isinstance(body, StepPlan | StepResult):
        found = "None" if body is None else f"a {type(body).__name__}"
        raise MalformedPayloadError(f"encode returned {found}; it must return bytes, a bytearray or a memoryview")
    return 0


def parse_header(payload: Buffer, body_bytes: int | None = None) -> Header:
    """Read the header of ``payload``; ``body_bytes`` is what follows it, by default what is in ``payload``.

    Raises:
        MalformedPayloadError: no header, another magic, version or kind, or a length that is not there.
    """
    if len(payload) < HEADER_BYTES:
        raise MalformedPayloadError(f"{len(payload)} bytes, fewer than a header's {HEADER_BYTES}")
    magic, version, kind, epoch, codec, step, length = _HEADER.unpack_from(payload)
    if magic != MAGIC:
        raise MalformedPayloadError(f"starts with {bytes(magic)!r}, not {MAGIC!r}")
    if version != FORMAT_VERSION:
        raise MalformedPayloadError(f"format version {version}, this side speaks {FORMAT_VERSION}")
    if kind not in (PLAN, RESULT, END):
        raise MalformedPayloadError(f"unknown kind {kind}")
    there = len(payload) - HEADER_BYTES if body_bytes is None else body_bytes
    if there != length:
        raise MalformedPayloadError(f"{there} bytes of body where the header says {length}")
    return Header(kind, epoch, codec, step, length)


def is_due(header: Buffer, body_bytes: int, kind: Kind, codec_id: int, epoch: int, step: int) -> bool:
    """Whether ``header``, which ``body_bytes`` follow, is the one due; quicker than reading it."""
    return header == _HEADER.pack(MAGIC, FORMAT_VERSION, kind, epoch, codec_id, step, body_bytes)


def expect_header(header: Buffer, body_bytes: int, kind: Kind, codec_id: int, epoch: int, step: int) -> None:
    """Refuse a payload whose ``header``, which ``body_bytes`` follow, is not the one due.

    Raises:
        MalformedPayloadError, WrongEpochError, OutOfOrderError: as ``parse_header`` and ``check_header`` do.
    """
    if not is_due(header, body_bytes, kind, codec_id, epoch, step):
        check_header(parse_header(header, body_bytes), kind, codec_id, epoch, step)


def check_header(header: Header, kind: Kind, codec_id: int, epoch: int, step: int) -> None:
    """Refuse a payload that is not the one due.

    Raises:
        MalformedPayloadError: another kind or codec. WrongEpochError: another epoch. OutOfOrderError: another step.
    """
    if header.kind != kind:
        raise MalformedPayloadError(f"kind {header.kind} where {kind} was due")
    if header.codec_id != codec_id:
        raise MalformedPayloadError(f"codec id {header.codec_id:#x} where {codec_id:#x} was agreed")
    if header.epoch != epoch:
        raise WrongEpochError(f"epoch {header.epoch} during epoch {epoch}")
    if header.step > step:
        raise OutOfOrderError(f"step {header.step} while step {step} is due: {header.step - step} lost")
    if header.step < step:
        raise OutOfOrderError(f"step {header.step} while step {step} is due: repeated or late")
