"""Writes the tokenizer that a GGUF file describes as the files of a tokenizer folder: tokenizer.json and its settings.

It does not know how such a folder is used, and is given the metadata by key.
"""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers

from serbench_engine.text.sentencepiece import Piece, PieceKind, bpe_of_pieces

Metadata = Callable[[str], Any]

_CONTROL: Final = 3
_USER_DEFINED: Final = 4

_PRE_TOKENIZERS: Final[dict[str, Callable[[], pre_tokenizers.PreTokenizer]]] = {
    "gpt-2": lambda: pre_tokenizers.ByteLevel(add_prefix_space=False),
    # SmolLM's splits digits off one by one before everything else.
    "smollm": lambda: pre_tokenizers.Sequence(
        [pre_tokenizers.Digits(individual_digits=True), pre_tokenizers.ByteLevel(add_prefix_space=False)]
    ),
}
"""Of byte-level tokenizers, by the name that GGUF gives them."""


def has_tokenizer(metadata: Metadata) -> bool:
    """Whether the file holds a tokenizer of a kind that can be written."""
    kind = metadata("tokenizer.ggml.model")
    return kind == "llama" or (kind == "gpt2" and metadata("tokenizer.ggml.pre") in _PRE_TOKENIZERS)


def write_tokenizer(metadata: Metadata, folder: Path) -> None:
    """Write ``tokenizer.json`` and ``tokenizer_config.json`` (special tokens, chat template) into ``folder``."""
    tokens = metadata("tokenizer.ggml.tokens")
    kinds = metadata("tokenizer.ggml.token_type") or [1] * len(tokens)
    tokenizer = _byte_level(metadata, tokens) if metadata("tokenizer.ggml.model") == "gpt2" else _pieces(metadata)
    special = [
        AddedToken(t, normalized=False, special=True) for t, k in zip(tokens, kinds, strict=True) if k == _CONTROL
    ]
    added = [AddedToken(t, normalized=False) for t, k in zip(tokens, kinds, strict=True) if k == _USER_DEFINED]
    tokenizer.add_special_tokens(special)
    tokenizer.add_tokens(added)
    tokenizer.save(str(folder / "tokenizer.json"), pretty=False)
    settings = {
        "tokenizer_class": "PreTrainedTokenizerFast",
        "add_bos_token": _adds_bos(metadata),
        "chat_template": metadata("tokenizer.chat_template"),
    }
    for name in ("bos", "eos", "unknown", "padding"):
        token_id = metadata(f"tokenizer.ggml.{name}_token_id")
        key = {"unknown": "unk", "padding": "pad"}.get(name, name)
        settings[f"{key}_token"] = None if token_id is None else tokens[token_id]
    text = json.dumps({k: v for k, v in settings.items() if v is not None}, indent=2, ensure_ascii=False)
    (folder / "tokenizer_config.json").write_text(text + "\n", encoding="utf-8")


def _adds_bos(metadata: Metadata) -> bool:
    """Where the file doesn't say, GGUF's default holds: yes for SentencePiece's kind, no for byte-level ones."""
    said = metadata("tokenizer.ggml.add_bos_token")
    return metadata("tokenizer.ggml.model") == "llama" if said is None else bool(said)


def _byte_level(metadata: Metadata, tokens: list[str]) -> Tokenizer:
    vocab = {token: i for i, token in enumerate(tokens)}
    merges = [(left, right) for left, _, right in (m.partition(" ") for m in metadata("tokenizer.ggml.merges"))]
    tokenizer = Tokenizer(models.BPE(vocab=vocab, merges=merges))
    tokenizer.pre_tokenizer = _PRE_TOKENIZERS[metadata("tokenizer.ggml.pre")]()
    tokenizer.decoder = decoders.ByteLevel()
    return tokenizer


def _pieces(metadata: Metadata) -> Tokenizer:
    kinds = metadata("tokenizer.ggml.token_type")
    columns = (metadata("tokenizer.ggml.tokens"), metadata("tokenizer.ggml.scores"), kinds)
    prefix = metadata("tokenizer.ggml.add_space_prefix")
    pieces = [Piece(text, score, PieceKind(kind)) for text, score, kind in zip(*columns, strict=True)]
    return bpe_of_pieces(pieces, "never" if prefix is False else "every")
