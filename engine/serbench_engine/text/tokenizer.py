"""What a tokenizer is to the engine, and which one a folder asks for.

It does not know models; whether ids fit a model's vocabulary is checked where requests are added.
"""

from collections.abc import Sequence
from pathlib import Path
from typing import Protocol

from serbench_engine.errors import ModelError
from serbench_engine.text.bytes_tokenizer import BytesTokenizer
from serbench_engine.weights.files import paths_looked_at


class Tokenizer(Protocol):
    """Text to ids and back. ``decode`` of an output equals its ids' bytes joined and read as UTF-8."""

    @property
    def vocab_size(self) -> int:
        """Its ids are below it."""
        ...

    @property
    def bos_token_id(self) -> int | None:
        """The id that begins a text; None if it has none."""
        ...

    @property
    def eos_token_id(self) -> int | None:
        """The id that ends a text; None if it has none."""
        ...

    def encode(self, text: str, *, add_special_tokens: bool = True) -> list[int]:
        """The ids of ``text``, with what the tokenizer puts around a text unless ``add_special_tokens`` is off."""
        ...

    def decode(self, token_ids: Sequence[int]) -> str:
        """The text of ``token_ids`` without special tokens; bytes that are no UTF-8 become U+FFFD."""
        ...

    def id_to_bytes(self, token_id: int) -> bytes:
        """What the id adds to a text, which may be part of a character; nothing for special and unknown ids."""
        ...

    def id_to_text(self, token_id: int) -> str:
        """The id as shown beside a log-probability; special tokens by their name."""
        ...


def load_tokenizer(folder: str | None, *, vocab_size: int = 256) -> Tokenizer:
    """The tokenizer in ``folder``; for None bytes stand for tokens, folded below ``vocab_size`` where that is small.

    Raises:
        ModelError: a folder without a tokenizer, or with one that can't be read.
    """
    if folder is None:
        return BytesTokenizer(vocab_size)
    with paths_looked_at():
        check_tokenizer_folder(Path(folder))
        # Imported here: the simulated model needs no tokenizers package.
        from serbench_engine.text.library_tokenizer import read_folder

        return read_folder(Path(folder))


def has_tokenizer(folder: Path) -> bool:
    """Whether ``folder`` holds files that make a tokenizer."""
    return (
        (folder / "tokenizer.json").is_file()
        or ((folder / "vocab.json").is_file() and (folder / "merges.txt").is_file())
        or (folder / "tokenizer.model").is_file()
    )


def check_tokenizer_folder(folder: Path) -> None:
    """Refuse a folder that holds no tokenizer.

    Raises:
        ModelError: it does not exist, or lacks the files.
    """
    if not folder.is_dir():
        raise ModelError(f"there is no tokenizer folder {folder}")
    if not has_tokenizer(folder):
        raise ModelError(
            f"{folder} holds no tokenizer; it needs tokenizer.json, or vocab.json and merges.txt, or tokenizer.model"
        )
