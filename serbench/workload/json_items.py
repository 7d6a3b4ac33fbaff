"""Takes JSON apart into rows with their lines: a list, JSON lines, or one object. It does not know what rows mean.

A broken line among JSON lines is a row that can't be used; a broken list can't be read at all.
"""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

from serbench.errors import DatasetError

_WHITESPACE: Final = " \t\n\r"


class NotJson:
    """Stands for a line that can't be read; ``why`` says what is wrong with it."""

    def __init__(self, why: str) -> None:
        self.why = why


def json_items(path: Path, text: str) -> Iterator[tuple[int, Any]]:
    """Each row with the line on which it begins; NotJson for a broken one.

    Raises:
        DatasetError: it is no JSON; with the line.
    """
    start = _skip(text, 0)
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
        raise DatasetError(f"{path}:{error.lineno}: not JSON: {_told(error)}") from None
    except (RecursionError, ValueError) as error:
        why = "its JSON is nested too deeply" if isinstance(error, RecursionError) else f"not JSON: {error}"
        raise DatasetError(f"{path}: {why}") from None


def _told(error: json.JSONDecodeError) -> str:
    return f"{error.msg[:1].lower()}{error.msg[1:]} (column {error.colno})"


def _is_lines(text: str) -> bool:
    """Whether the first line is an object by itself; a broken first line is JSON lines if more objects follow it."""
    first, _, rest = text.partition("\n")
    try:
        json.loads(first)
    except ValueError:
        return len(first.rstrip()) > 1 and rest.lstrip().startswith("{")
    return True


def _line_items(text: str) -> Iterator[tuple[int, Any]]:
    for number, line in enumerate(text.split("\n"), 1):
        if line.strip():
            try:
                yield number, json.loads(line)
            except json.JSONDecodeError as error:
                yield number, NotJson(_told(error))
            except (RecursionError, ValueError) as error:  # deep nesting, or a number of thousands of digits
                yield number, NotJson(str(error))


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
