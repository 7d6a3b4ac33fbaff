"""Incremental text and stop strings: never half a character, the same however the text is cut into tokens."""

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from serbench_engine.text.bytes_tokenizer import BytesTokenizer
from serbench_engine.text.detokenizer import Detokenizer


class PieceTokenizer(BytesTokenizer):
    """Tokens of any bytes: id i stands for piece i."""

    def __init__(self, pieces: list[bytes]) -> None:
        super().__init__()
        self._pieces = pieces

    def id_to_bytes(self, token_id: int) -> bytes:
        return self._pieces[token_id]


def cut(data: bytes, places: list[int]) -> list[bytes]:
    ends = sorted({place % (len(data) + 1) for place in places} | {len(data)})
    return [data[start:end] for start, end in zip([0, *ends], ends, strict=False)]


def run(pieces: list[bytes], stop: tuple[str, ...] = (), include: bool = False) -> tuple[str, str | None]:
    """The text and the stop string after all pieces, or after the one that stops."""
    detokenizer = Detokenizer(PieceTokenizer(pieces), stop, include_stop_str_in_output=include)
    for i in range(len(pieces)):
        found = detokenizer.append(i)
        if found is not None:
            return detokenizer.text, found
    found = detokenizer.finish()
    return detokenizer.text, found


@given(text=st.text(), places=st.lists(st.integers(0, 1000)))
def test_a_text_comes_out_whole_however_it_is_cut(text: str, places: list[int]) -> None:
    pieces = cut(text.encode(errors="replace"), places)
    assert run(pieces) == (text.encode(errors="replace").decode(), None)


@given(data=st.binary(max_size=30), places=st.lists(st.integers(0, 1000)))
def test_any_bytes_read_as_they_would_at_once(data: bytes, places: list[int]) -> None:
    assert run(cut(data, places))[0] == data.decode(errors="replace")


def test_a_character_appears_only_when_it_is_complete() -> None:
    detokenizer = Detokenizer(BytesTokenizer())
    seen = []
    for byte in "aé🎉".encode():
        detokenizer.append(byte)
        seen.append(detokenizer.text)
    assert seen == ["a", "a", "aé", "aé", "aé", "aé", "aé🎉"]


def test_an_output_that_ends_within_a_character_says_so_at_its_end() -> None:
    detokenizer = Detokenizer(BytesTokenizer())
    for byte in "a🎉".encode()[:-1]:
        detokenizer.append(byte)
    assert detokenizer.text == "a"
    assert detokenizer.finish() is None
    assert detokenizer.text == "a�"


def reference(text: str, stop: tuple[str, ...], include: bool) -> tuple[str, str | None]:
    """Character by character: the first place where the text so far ends with a stop string, the longest of those."""
    for end in range(1, len(text) + 1):
        ending = sorted((one for one in stop if text[:end].endswith(one)), key=len, reverse=True)
        if ending:
            return text[:end] if include else text[: end - len(ending[0])], ending[0]
    return text, None


@given(
    text=st.text(alphabet="abé", max_size=40),
    stop=st.lists(st.text(alphabet="abé", min_size=1, max_size=4), max_size=3).map(tuple),
    places=st.lists(st.integers(0, 1000), max_size=20),
    include=st.booleans(),
)
def test_stop_strings_are_found_however_the_text_is_cut(
    text: str, stop: tuple[str, ...], places: list[int], include: bool
) -> None:
    expected = reference(text, stop, include)
    data = text.encode()
    assert run(cut(data, places), stop, include) == expected
    assert run([data], stop, include) == expected
    assert run([bytes([byte]) for byte in data], stop, include) == expected


@pytest.mark.parametrize(("include", "text"), [(False, "one"), (True, "one\n\n")])
def test_a_stop_string_over_two_tokens_is_cut_with_what_follows(include: bool, text: str) -> None:
    assert run([b"one\n", b"\ntwo"], ("\n\n",), include) == (text, "\n\n")


def test_a_stop_string_that_may_not_come_yet_stays_in_the_text() -> None:
    detokenizer = Detokenizer(BytesTokenizer(), ("x",))
    assert detokenizer.append(ord("x"), may_stop=False) is None
    assert detokenizer.append(ord("y")) is None
    assert detokenizer.append(ord("x")) == "x"
    assert detokenizer.text == "xy"


def test_a_stop_string_may_begin_before_it_may_come() -> None:
    detokenizer = Detokenizer(BytesTokenizer(), ("ab",))
    assert detokenizer.append(ord("a"), may_stop=False) is None
    assert detokenizer.append(ord("b")) == "ab"
    assert detokenizer.text == ""


def test_the_time_of_a_token_does_not_grow_with_the_text() -> None:
    """Counted, not clocked: what is searched is never longer than the stop string and the token."""
    searched = 0

    detokenizer = Detokenizer(BytesTokenizer(), ("zzzz",))
    for _ in range(5000):
        detokenizer.append(ord("a"))
        searched = max(searched, len(detokenizer._tail))
    assert searched == 3
    assert re.fullmatch("a{5000}", detokenizer.text)
