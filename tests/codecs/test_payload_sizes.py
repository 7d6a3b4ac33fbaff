"""Bytes of a steady decode step: which codec sends how many, of what they consist, and on what they don't depend."""

import statistics
from collections.abc import Iterator
from typing import Any

import msgspec
import pytest

from serbench_codecs.cached import RequestChange, StepChanges
from serbench_codecs.codec import HEADER_BYTES, Decoder
from serbench_codecs.conformance import EVENTFUL
from serbench_codecs.conformance.reference_worker import Sent, fingerprint
from serbench_codecs.delta import RequestDelta, StepDelta
from serbench_codecs.errors import CodecError
from serbench_codecs.msgspec_full import Sampling, StructRequest, StructStep
from serbench_codecs.new_requests import NewRequest
from serbench_codecs.registry import get_codec
from tests.codecs.variants import Step, played, steady_decode

BATCHES = [16, 64, 256]


def steady_bytes(spec: str, batch: int, context: int) -> list[int]:
    return [step.payload_bytes for step in played(get_codec(spec), steady_decode(batch, context))[2:]]


@pytest.mark.parametrize("batch", BATCHES)
def test_columnar_sends_bytes_for_events_only(batch: int) -> None:
    for step in played(get_codec("columnar"), steady_decode(batch, 80))[2:]:
        events = len(step.plan.blocks)
        assert events == batch // 16
        assert step.payload_bytes == HEADER_BYTES + 16 + 8 * events
        assert step.payload_bytes < 100 + 8 * events


@pytest.mark.parametrize("batch", BATCHES)
def test_each_codec_sends_less_than_the_one_before(batch: int) -> None:
    sizes = [statistics.median(steady_bytes(spec, batch, 80)) for spec in ("pickle", "delta", "cached", "columnar")]
    assert sizes == sorted(sizes, reverse=True)
    assert len(set(sizes)) == len(sizes)


@pytest.mark.parametrize("spec", ["delta", "delta:format=pickle", "cached", "columnar"])
def test_changes_do_not_grow_with_the_context(spec: str) -> None:
    assert steady_bytes(spec, 16, 300) == steady_bytes(spec, 16, 600)


@pytest.mark.parametrize(("spec", "at_least"), [("msgspec", 4), ("pickle:ids=packed", 4), ("msgspec:ids=list", 1)])
def test_whole_states_grow_with_the_context(spec: str, at_least: int) -> None:
    longer, shorter = steady_bytes(spec, 16, 600), steady_bytes(spec, 16, 300)
    assert min(longer) - min(shorter) >= 16 * 300 * at_least


def test_a_delta_is_a_few_integers() -> None:
    # Per request: its struct, row, count, start, [id], start, []; where a block comes, its start and 3 bytes of id.
    # Rows 0 … 15, starts 300 … 400 in 3 bytes; a block's start (19 …) in 1.
    step = 5  # array, step, epoch, freed, admitted
    assert set(steady_bytes("delta", 16, 300)) == {HEADER_BYTES + step + 3 + 16 * (1 + 1 + 1 + 3 + 2 + 1 + 1) + 3}
    assert set(steady_bytes("cached", 16, 300)) == {HEADER_BYTES + step + 3 + 16 * (1 + 1 + 1 + 1 + 1) + 3}


# --- every field that travels is read: changing it changes the plan, or is refused ------------------------------------

LAST = 6  # a step of EVENTFUL with blocks, tokens and three requests


def _altered(value: Any) -> Any:
    """Another value of the same kind."""
    match value:
        case int() | float():
            return value + 1
        case str():
            return value + "x"
        case bytes():
            return bytes([value[0] ^ 1]) + value[1:] if value else b"\1\0\0\0"
        case list():
            return [*value, 1] if not value or isinstance(value[0], int) else value[:-1]
        case msgspec.Struct():
            first = value.__struct_fields__[0]
            return msgspec.structs.replace(value, **{first: _altered(getattr(value, first))})
    raise TypeError(f"no other {type(value).__name__}")


def _outcome(decoder: Decoder, body: bytes) -> Any:
    try:
        return fingerprint(decoder.adapt(decoder.decode(memoryview(body))))
    except CodecError as error:
        return type(error)


def _decoder_at(spec: str, recorded: list[Step], step: int) -> Decoder:
    decoder = get_codec(spec).ends(EVENTFUL.limits)[1]
    for earlier in recorded[:step]:
        decoder.adapt(decoder.decode(memoryview(_body(earlier.sent))))
    return decoder


def _body(sent: Sent) -> bytes:
    assert isinstance(sent.body, bytes)
    return sent.body


def _alterations(objects: Any, kind: type, field: str) -> Iterator[Any]:
    """``objects`` (nested structs) with ``field`` altered in one struct of ``kind``, for each of them."""
    if isinstance(objects, msgspec.Struct) and type(objects) is kind:
        yield msgspec.structs.replace(objects, **{field: _altered(getattr(objects, field))})
    elif isinstance(objects, list):
        for i, one in enumerate(objects):
            yield from ([*objects[:i], other, *objects[i + 1 :]] for other in _alterations(one, kind, field))
    elif isinstance(objects, msgspec.Struct):
        for name in objects.__struct_fields__:
            others = _alterations(getattr(objects, name), kind, field)
            yield from (msgspec.structs.replace(objects, **{name: other}) for other in others)


def _fields(spec: str, step: int, *kinds: type[msgspec.Struct]) -> list[Any]:
    return [
        pytest.param(spec, step, kind, field, id=f"{spec}-{kind.__name__}.{field}")
        for kind in kinds
        for field in kind.__struct_fields__
    ]


@pytest.mark.parametrize(
    ("spec", "step", "kind", "field"),
    [
        *_fields("delta", 0, NewRequest),
        *_fields("delta", LAST, StepDelta, RequestDelta),
        *_fields("cached", 0, NewRequest),
        *_fields("cached", LAST, StepChanges, RequestChange),
        *_fields("msgspec:ids=list", 0, StructStep, StructRequest, Sampling),
    ],
)
def test_every_field_is_read(spec: str, step: int, kind: type, field: str) -> None:
    recorded = played(get_codec(spec), EVENTFUL)
    body = _body(recorded[step].sent)
    before = _outcome(_decoder_at(spec, recorded, step), body)
    assert isinstance(before, bytes)
    objects = _decoder_at(spec, recorded, step).decode(memoryview(body))
    bodies = [msgspec.msgpack.encode(altered) for altered in _alterations(objects, kind, field)]
    assert bodies
    assert any(_outcome(_decoder_at(spec, recorded, step), altered) != before for altered in bodies)
