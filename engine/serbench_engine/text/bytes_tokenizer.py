"""Bytes as tokens, for models without a tokenizer at hand: id b is the byte b of the text's UTF-8.

It does not know that a model's own ids mean something else: its outputs are shown as they are.
"""

from collections.abc import Sequence
from typing import Final

from serbench_engine.text.encodable import utf8

_BYTES: Final = 256


class BytesTokenizer:
    """Ids 0 … 255 are bytes; any id above, which only a model can produce, reads ``<id>``.

    A vocabulary of fewer than 256 ids gets byte b as id b modulo its size: such a text can't be read back.
    """

    bos_token_id: None = None
    eos_token_id: None = None

    def __init__(self, vocab_size: int = _BYTES) -> None:
        self.vocab_size = min(vocab_size, _BYTES)

    def encode(self, text: str, *, add_special_tokens: bool = True) -> list[int]:
        """One id a byte; there are no special tokens to add."""
        return [byte % self.vocab_size for byte in utf8(text)]

    def decode(self, token_ids: Sequence[int]) -> str:
        """The text of ``token_ids``."""
        return b"".join(map(self.id_to_bytes, token_ids)).decode(errors="replace")

    def id_to_bytes(self, token_id: int) -> bytes:
        """The byte, or ``<id>`` for other ids."""
        return bytes([token_id]) if 0 <= token_id < _BYTES else f"<{token_id}>".encode()

    def id_to_text(self, token_id: int) -> str:
        """The byte as a character if it is one."""
        return self.id_to_bytes(token_id).decode(errors="replace")
