"""Reads files of prompts: ShareGPT JSON and JSON lines, told apart by content. It does not know tokens or models.

A file that can't be read is an error with its line; a row of the right format that has no usable prompt is counted
under its reason, never dropped silently.
"""

import json
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import msgspec

from serbench.errors import DatasetError

PROMPT_KEYS: Final = ("conversations", "messages", "turns", "prompt", "text")
"""What marks a row; the first one that it has is read."""

_FORMATS: Final = 'ShareGPT JSON ("conversations") or JSON lines with "prompt", "text", "messages" or "turns"'
_ASKING: Final = frozenset({"human", "user"})
_ANSWERING: Final = frozenset({"gpt", "chatgpt", "bing", "bard", "assistant", "model"})
_WHITESPACE: Final = " \t\n\r"


class Row(msgspec.Struct, frozen=True):
    """One usable row: what is asked, and the answer that the file has for it ("" if none)."""

    line: int
    prompt: str
    answer: str = ""


class Rows(msgspec.Struct, frozen=True):
    """A file's usable rows in order, and how many others there were, by reason."""

    rows: list[Row]
    left_out: dict[str, int]


class Unusable(Exception):
    """A row without a prompt; the message is the reason under which it is counted."""


def read_rows(path: Path) -> Rows:
    """Read all rows of ``path``.

    Raises:
        DatasetError: the file is missing, empty, not UTF-8, not JSON or of another format; with the line where there
        is one.
    """
    rows: list[Row] = []
    left_out: Counter[str] = Counter()
    items = 0
    for line, item in _items(path, _read_text(path)):
        items += 1
        if not isinstance(item, dict) or not any(key in item for key in PROMPT_KEYS):
            if items == 1:
                raise DatasetError(f"{path}:{line}: {_described(item)}; wanted {_FORMATS}")
            left_out["of another format"] += 1
            continue
        try:
            rows.append(_row(line, item))
        except Unusable as reason:
            left_out[str(reason)] += 1
    if not items:
        raise DatasetError(f"{path}: the list is empty; wanted {_FORMATS}")
    return Rows(rows, dict(left_out))


def _read_text(path: Path) -> str:
    try:
        data = path.read_bytes()
    except FileNotFoundError:
        raise DatasetError(f"{path}: there is no such file") from None
    except OSError as error:
        raise DatasetError(f"{path}: can't be read: {error.strerror}") from None
    try:
        text = data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = data.count(b"\n", 0, error.start) + 1
        raise DatasetError(
            f"{path}:{line}: not UTF-8 text (byte {data[error.start]:#04x}); wanted {_FORMATS}"
        ) from None
    if not text.strip():
        raise DatasetError(f"{path}: the file is empty; wanted {_FORMATS}")
    return text


# --- JSON with line numbers -------------------------------------------------------------------------------------------


def _items(path: Path, text: str) -> Iterator[tuple[int, Any]]:
    """Each row of a JSON list, of JSON lines, or the one object of the file, with the line it begins on."""
    start = len(text) - len(text.lstrip())
    try:
        if text[start] == "[":
            yield from _list_items(text, start)
        elif text[start] != "{":
            raise json.JSONDecodeError("Neither a list nor an object", text, start)
        elif _is_lines(text[start:]):
            yield from _line_items(text)
        else:
            yield text.count("\n", 0, start) + 1, json.loads(text)
    except json.JSONDecodeError as error:
        raise DatasetError(f"{path}:{error.lineno}: not JSON: {_lower(error.msg)} (column {error.colno})") from None
    except RecursionError:
        raise DatasetError(f"{path}: not a dataset: its JSON is nested too deeply") from None


def _is_lines(text: str) -> bool:
    """Whether the first line is an object by itself; a broken first line is JSON lines if more objects follow it."""
    first, _, rest = text.partition("\n")
    try:
        json.loads(first)
    except json.JSONDecodeError:
        return len(first) > 1 and rest.lstrip().startswith("{")
    return True


def _line_items(text: str) -> Iterator[tuple[int, Any]]:
    start = 0
    for number, line in enumerate(text.split("\n"), 1):
        if line.strip():
            try:
                yield number, json.loads(line)
            except json.JSONDecodeError as error:
                raise json.JSONDecodeError(error.msg, text, start + error.pos) from None
        start += len(line) + 1


def _list_items(text: str, start: int) -> Iterator[tuple[int, Any]]:
    decoder = json.JSONDecoder()
    position = _skip(text, start + 1)
    line, counted = 1, 0
    while text[position : position + 1] != "]":
        line, counted = line + text.count("\n", counted, position), position
        item, position = decoder.raw_decode(text, position)
        yield line, item
        position = _skip(text, position)
        if text[position : position + 1] == ",":
            position = _skip(text, position + 1)
        elif text[position : position + 1] != "]":
            raise json.JSONDecodeError("Expecting ',' or ']'", text, position)
    if text[position + 1 :].strip():
        raise json.JSONDecodeError("Extra data", text, _skip(text, position + 1))


def _skip(text: str, position: int) -> int:
    while position < len(text) and text[position] in _WHITESPACE:
        position += 1
    return position


def _lower(message: str) -> str:
    return message[:1].lower() + message[1:]


def _described(item: Any) -> str:
    if isinstance(item, dict):
        return f"an object with the keys {', '.join(map(str, list(item)[:5]))}" if item else "an object without keys"
    return f"a row that is no object but {json.dumps(item)[:40]}"


# --- one row ----------------------------------------------------------------------------------------------------------


def _row(line: int, item: dict[str, Any]) -> Row:
    key = next(key for key in PROMPT_KEYS if key in item)
    value = item[key]
    if key in ("conversations", "messages"):
        prompt, answer = _first_exchange(value)
    elif key == "turns":
        prompt, answer = _first_turn(value), ""
    else:
        prompt, answer = value, ""
    if not isinstance(prompt, str):
        raise Unusable(f"{key} is no text")
    if not prompt.strip():
        raise Unusable("prompt is empty")
    return Row(line, prompt, answer)


def _first_turn(turns: Any) -> Any:
    if not isinstance(turns, list) or not turns:
        raise Unusable("turns is no list of texts")
    return turns[0]


def _first_exchange(turns: Any) -> tuple[str, str]:
    """The first thing a person asks, and the answer that follows at once."""
    if not isinstance(turns, list) or not all(isinstance(turn, dict) for turn in turns):
        raise Unusable("the conversation is no list of turns")
    roles = [turn.get("from", turn.get("role")) for turn in turns]
    asked = next((i for i, role in enumerate(roles) if role in _ASKING), None)
    if asked is None:
        raise Unusable("nobody asks in the conversation")
    answered = asked + 1 < len(turns) and roles[asked + 1] in _ANSWERING
    return _text_of(turns[asked]), _text_of(turns[asked + 1]) if answered else ""


def _text_of(turn: dict[str, Any]) -> str:
    """A turn's text; of content in parts the texts among them."""
    content = turn.get("value", turn.get("content"))
    if isinstance(content, list):
        parts = [part.get("text") for part in content if isinstance(part, dict)]
        return "".join(part for part in parts if isinstance(part, str))
    return content if isinstance(content, str) else ""
