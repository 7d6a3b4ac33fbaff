"""Decodes JSON that a user can hand in: all that is malformed is told alike. It does not know what is in it."""

from typing import Any, TypeVar, overload

import msgspec

T = TypeVar("T")


@overload
def decode_json(data: bytes | memoryview) -> Any: ...
@overload
def decode_json(data: bytes | memoryview, kind: type[T]) -> T: ...
def decode_json(data: bytes | memoryview, kind: Any = Any) -> Any:
    """The value that ``data`` holds.

    Raises:
        msgspec.DecodeError: no JSON, JSON nested more deeply than Python can follow, or (ValidationError) no ``kind``.
        UnicodeDecodeError: no UTF-8.
    """
    try:
        return msgspec.json.decode(data, type=kind)
    except RecursionError:
        raise msgspec.DecodeError("JSON is nested too deeply") from None
