"""The header of a payload: what is in it, what is refused, and that it is told apart from the one due."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from serbench_codecs.codec import (
    END,
    HEADER_BYTES,
    MAX_BODY_BYTES,
    PLAN,
    RESULT,
    Header,
    check_header,
    codec_id,
    expect_header,
    pack_header,
    parse_header,
)
from serbench_codecs.errors import CodecError, MalformedPayloadError, OutOfOrderError, WrongEpochError
from serbench_codecs.plan import NO_ADMISSIONS, NO_ROWS, NO_WRITES, StepPlan, StepResult
from serbench_codecs.registry import RESULT_FORMATS, get_codec
from tests.codecs.variants import SPECS


@given(
    kind=st.sampled_from([PLAN, RESULT, END]),
    codec=st.integers(0, 2**32 - 1),
    epoch=st.integers(0, 2**16 - 1),
    step=st.integers(0, 2**64 - 1),
    body=st.binary(max_size=20),
)
def test_a_header_comes_out_as_it_went_in(kind: int, codec: int, epoch: int, step: int, body: bytes) -> None:
    header = pack_header(kind, codec, epoch, step, body)  # type: ignore[arg-type]
    assert len(header) == HEADER_BYTES == 24
    assert parse_header(header + body) == Header(kind, epoch, codec, step, len(body))
    assert parse_header(header, body_bytes=len(body)) == Header(kind, epoch, codec, step, len(body))


def test_a_body_that_stays_in_its_process_has_no_length() -> None:
    plan = StepPlan(3, 0, NO_ROWS, NO_ADMISSIONS, NO_WRITES, NO_WRITES, NO_ROWS, NO_ROWS)
    for body in (plan, StepResult(3, 0, np.empty(0, dtype=np.int32))):
        assert parse_header(pack_header(PLAN, 1, 0, 3, body)).body_bytes == 0


def test_an_oversized_body_is_refused() -> None:
    class Huge(bytes):
        def __len__(self) -> int:
            return MAX_BODY_BYTES + 1

    with pytest.raises(MalformedPayloadError, match=f"more than {MAX_BODY_BYTES}"):
        pack_header(PLAN, 1, 0, 0, Huge())


@pytest.mark.parametrize(("body", "found"), [(None, "None"), (5, "a int"), ([b"x"], "a list"), ("text", "a str")])
def test_what_is_no_body_is_refused(body: object, found: str) -> None:
    with pytest.raises(MalformedPayloadError, match=f"encode returned {found}; it must return bytes"):
        pack_header(PLAN, 1, 0, 0, body)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("at", "value", "says"),
    [(0, b"x", "starts with"), (3, b"\x02", "format version 2"), (4, b"\x09", "unknown kind 9")],
)
def test_another_magic_version_or_kind_is_refused(at: int, value: bytes, says: str) -> None:
    header = bytearray(pack_header(PLAN, 1, 0, 0, b""))
    header[at : at + 1] = value
    with pytest.raises(MalformedPayloadError, match=says):
        parse_header(header)


@given(st.binary(max_size=64))
def test_garbage_is_refused(garbage: bytes) -> None:
    with pytest.raises(CodecError):
        check_header(parse_header(garbage), PLAN, codec_id("delta"), 0, 0)


def test_every_length_but_the_right_one_is_refused() -> None:
    payload = pack_header(PLAN, 1, 0, 0, b"12345") + b"12345"
    for length in [*range(len(payload)), len(payload) + 1]:
        with pytest.raises(MalformedPayloadError):
            parse_header((payload + b"6")[:length])


@pytest.mark.parametrize(
    ("header", "error", "says"),
    [
        (Header(RESULT, 2, 7, 5, 0), MalformedPayloadError, "kind 2 where 1 was due"),
        (Header(PLAN, 2, 8, 5, 0), MalformedPayloadError, "codec id 0x8 where 0x7 was agreed"),
        (Header(PLAN, 1, 7, 5, 0), WrongEpochError, "epoch 1 during epoch 2"),
        (Header(PLAN, 3, 7, 5, 0), WrongEpochError, "epoch 3 during epoch 2"),
        (Header(PLAN, 2, 7, 7, 0), OutOfOrderError, "step 7 while step 5 is due: 2 lost"),
        (Header(PLAN, 2, 7, 4, 0), OutOfOrderError, "step 4 while step 5 is due: repeated or late"),
    ],
)
def test_another_payload_than_the_one_due_is_refused(header: Header, error: type[CodecError], says: str) -> None:
    with pytest.raises(error, match=says):
        check_header(header, PLAN, 7, 2, 5)
    with pytest.raises(error, match=says):
        expect_header(pack_header(header.kind, header.codec_id, header.epoch, header.step, b""), 0, PLAN, 7, 2, 5)  # type: ignore[arg-type]
    check_header(Header(PLAN, 2, 7, 5, 0), PLAN, 7, 2, 5)
    expect_header(pack_header(PLAN, 7, 2, 5, b"12"), 2, PLAN, 7, 2, 5)
    with pytest.raises(MalformedPayloadError, match="3 bytes of body where the header says 2"):
        expect_header(pack_header(PLAN, 7, 2, 5, b"12"), 3, PLAN, 7, 2, 5)


def test_names_have_ids_of_their_own() -> None:
    names = [get_codec(spec).name for spec in SPECS]
    assert len({codec_id(name) for name in names}) == len(SPECS)
    assert len({codec_id(name) for name in RESULT_FORMATS}) == len(RESULT_FORMATS)
