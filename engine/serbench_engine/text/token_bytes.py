"""The bytes that each id of a ``tokenizers`` Tokenizer stands for, so that text can be put together id by id.

It does not know requests. It covers byte-level vocabularies (GPT-2's alphabet) and SentencePiece's (▁ and <0x41>).
"""

import json
import re
from typing import Final

from tokenizers import Tokenizer

_BYTE_PIECE: Final = re.compile(r"<0x([0-9A-F]{2})>")


def _byte_alphabet() -> dict[str, int]:
    """GPT-2's characters for bytes: printable Latin-1 stands for itself, the rest for characters from U+0100 on."""
    itself = [*range(33, 127), *range(161, 173), *range(174, 256)]
    others = [byte for byte in range(256) if byte not in itself]
    return {chr(byte): byte for byte in itself} | {chr(256 + i): byte for i, byte in enumerate(others)}


_ALPHABET: Final = _byte_alphabet()


class TokenBytes:
    """Bytes by id, worked out when first asked for."""

    def __init__(self, tokenizer: Tokenizer) -> None:
        self._tokenizer = tokenizer
        self._special = {i: token.content for i, token in tokenizer.get_added_tokens_decoder().items() if token.special}
        self._known: dict[int, bytes] = {}
        steps = _decoder_steps(tokenizer)
        kinds = {step["type"] for step in steps}
        self._byte_level = "ByteLevel" in kinds
        self._pieces = not self._byte_level and bool(kinds & {"Metaspace", "ByteFallback", "Replace"})
        stripping = any(step["type"] == "Strip" and step.get("start") for step in steps)
        self.strips_first_space = stripping or any(_metaspace_strips(step) for step in steps)

    def of(self, token_id: int) -> bytes:
        """What the id adds to a text; nothing for special and unknown ids."""
        known = self._known.get(token_id)
        if known is None:
            known = self._known[token_id] = self._work_out(token_id)
        return known

    def name_of(self, token_id: int) -> str | None:
        """The name of a special token, None for other ids."""
        return self._special.get(token_id)

    def _work_out(self, token_id: int) -> bytes:
        token = self._tokenizer.id_to_token(token_id) if token_id >= 0 else None
        if token is None or token_id in self._special:
            return b""
        if self._byte_level:
            codes = [_ALPHABET.get(character) for character in token]
            mapped = [code for code in codes if code is not None]
            return bytes(mapped) if len(mapped) == len(codes) else token.encode()
        if self._pieces:
            byte = _BYTE_PIECE.fullmatch(token)
            return bytes([int(byte[1], 16)]) if byte else token.replace("▁", " ").encode()
        return str(self._tokenizer.decode([token_id])).encode()


def _decoder_steps(tokenizer: Tokenizer) -> list[dict[str, object]]:
    if tokenizer.decoder is None:
        return []
    state = json.loads(tokenizer.decoder.__getstate__())
    return state["decoders"] if state["type"] == "Sequence" else [state]


def _metaspace_strips(step: dict[str, object]) -> bool:
    return step["type"] == "Metaspace" and step.get("prepend_scheme") != "never"
