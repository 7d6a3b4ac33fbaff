"""SentencePiece BPE models as a ``tokenizers`` Tokenizer: from ``tokenizer.model``, or from pieces found elsewhere.

It needs neither the sentencepiece nor the protobuf package: of the file's fields three are read. It does not know
special tokens beyond the pieces' kinds.
"""

import enum
import struct
from collections.abc import Iterator
from pathlib import Path
from typing import Final, Literal, TypeAlias

import msgspec
from tokenizers import Tokenizer, decoders, models, normalizers, pre_tokenizers

from serbench_engine.errors import ModelError

SpacePrefix: TypeAlias = Literal["every", "first", "never"]

_BPE: Final = 2


class PieceKind(enum.IntEnum):
    """What a piece is; the numbers are SentencePiece's and GGUF's."""

    NORMAL = 1
    UNKNOWN = 2
    CONTROL = 3
    USER_DEFINED = 4
    UNUSED = 5
    BYTE = 6


class Piece(msgspec.Struct, frozen=True):
    """One entry of the vocabulary; pieces of higher score are merged first."""

    text: str
    score: float
    kind: PieceKind


def read_pieces(path: Path) -> list[Piece]:
    """The pieces of a ``tokenizer.model``, in the order of their ids.

    Raises:
        ModelError: no such file, or a model of another kind than BPE.
    """
    try:
        pieces: list[Piece] = []
        model_type = 1  # unigram, where the file doesn't say
        for number, value in _fields(path.read_bytes()):
            if number == 1 and isinstance(value, bytes):
                pieces.append(_piece(value))
            elif number == 2 and isinstance(value, bytes):
                model_type = dict(_fields(value)).get(3, model_type)  # type: ignore[assignment]
    except (ValueError, IndexError, struct.error) as error:
        raise ModelError(f"{path} is no SentencePiece model: {error}") from None
    if not pieces:
        raise ModelError(f"{path} is no SentencePiece model: it holds no pieces")
    if model_type != _BPE:
        raise ModelError(f"{path} is a SentencePiece model of type {model_type}; BPE (type {_BPE}) is supported")
    return pieces


def bpe_of_pieces(pieces: list[Piece], prefix: SpacePrefix = "every") -> Tokenizer:
    """A tokenizer that splits as SentencePiece does: joins the pair whose union has the highest score, again and again.

    ``prefix``: where a space is put before the text. ``every`` part of it between special tokens, as SentencePiece and
    GGUF have it; the ``first`` part unless it starts with one, as the transformers library has it where a folder's
    settings say ``legacy: false``; or ``never``.
    """
    vocab = {piece.text: i for i, piece in enumerate(pieces)}
    unknown = next((piece.text for piece in pieces if piece.kind == PieceKind.UNKNOWN), None)
    model = models.BPE(vocab=vocab, merges=_merges(pieces, vocab), unk_token=unknown, fuse_unk=True, byte_fallback=True)
    tokenizer = Tokenizer(model)
    if prefix == "every":
        tokenizer.normalizer = normalizers.Sequence([normalizers.Prepend("▁"), normalizers.Replace(" ", "▁")])
    else:
        tokenizer.pre_tokenizer = pre_tokenizers.Metaspace(replacement="▁", prepend_scheme=prefix, split=False)
    steps = [decoders.Replace("▁", " "), decoders.ByteFallback(), decoders.Fuse()]
    if prefix != "never":
        steps.append(decoders.Strip(content=" ", left=1))
    tokenizer.decoder = decoders.Sequence(steps)
    return tokenizer


def _merges(pieces: list[Piece], vocab: dict[str, int]) -> list[tuple[str, str]]:
    """Every pair of pieces that joins to a third, those that join to the highest score first."""
    joins = PieceKind.NORMAL, PieceKind.USER_DEFINED, PieceKind.UNUSED
    ranked: list[tuple[float, int, int, str, str]] = []
    for i, piece in enumerate(pieces):
        if piece.kind not in joins:
            continue
        for cut in range(1, len(piece.text)):
            left, right = piece.text[:cut], piece.text[cut:]
            if left in vocab and right in vocab:
                ranked.append((-piece.score, i, vocab[left], left, right))
    ranked.sort()
    return [(left, right) for *_, left, right in ranked]


def _piece(data: bytes) -> Piece:
    fields = dict(_fields(data))
    text, score = fields.get(1, b""), fields.get(2, b"\0\0\0\0")
    if not isinstance(text, bytes) or not isinstance(score, bytes):
        raise ValueError("a piece's text or score has another type")
    kind = fields.get(3, 1)
    return Piece(text.decode(), struct.unpack("<f", score)[0], PieceKind(int(kind)))


def _fields(data: bytes) -> Iterator[tuple[int, int | bytes]]:
    """(number, value) of each field of a protobuf message: an int for varints, bytes for everything else."""
    at = 0
    while at < len(data):
        key, at = _varint(data, at)
        number, wire = key >> 3, key & 7
        if wire == 0:
            value, at = _varint(data, at)
            yield number, value
            continue
        if wire == 2:
            length, at = _varint(data, at)
        elif wire in (1, 5):
            length = 8 if wire == 1 else 4
        else:
            raise ValueError(f"wire type {wire} at byte {at}")
        if at + length > len(data):
            raise ValueError(f"it ends within a field at byte {at}")
        yield number, data[at : at + length]
        at += length


def _varint(data: bytes, at: int) -> tuple[int, int]:
    value = shift = 0
    while True:
        byte = data[at]
        value |= (byte & 127) << shift
        at += 1
        if byte < 128:
            return value, at
        shift += 7
        if shift > 63:
            raise ValueError(f"a number of more than 64 bits at byte {at}")
