"""Refuses text that has no UTF-8. It does not know tokenizers."""

from serbench_engine.errors import RequestError


def utf8(text: str) -> bytes:
    """The bytes of ``text``.

    Raises:
        RequestError: half a surrogate pair, which is no character; with its position.
    """
    try:
        return text.encode()
    except UnicodeEncodeError as error:
        code = ord(text[error.start])
        raise RequestError(f"character {error.start} of the prompt is half a surrogate pair (U+{code:04X})") from None
