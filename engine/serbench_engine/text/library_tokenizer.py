"""A tokenizer of the ``tokenizers`` package, from any of the files that model folders hold. No transformers, no torch.

It does not know chat templates or stop strings.
"""

from collections.abc import Sequence
from pathlib import Path

from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers

from serbench_engine.errors import ModelError
from serbench_engine.text.encodable import utf8
from serbench_engine.text.sentencepiece import PieceKind, bpe_of_pieces, read_pieces
from serbench_engine.text.settings import AddedTokenSpec, TokenizerSettings, read_settings
from serbench_engine.text.token_bytes import TokenBytes
from serbench_engine.weights.files import check_file


class LibraryTokenizer:
    """Wraps a Tokenizer: adds BOS as the folder's settings have it, and knows what bytes each id stands for."""

    def __init__(self, tokenizer: Tokenizer, settings: TokenizerSettings) -> None:
        tokenizer.no_truncation()
        tokenizer.no_padding()
        self._tokenizer = tokenizer
        self._bytes = TokenBytes(tokenizer)
        self.vocab_size: int = tokenizer.get_vocab_size(with_added_tokens=True)
        self.bos_token_id = self._id_of(settings.text_of("bos_token"))
        self.eos_token_id = self._id_of(settings.text_of("eos_token"))
        begins_itself = self.bos_token_id is not None and tokenizer.encode("").ids[:1] == [self.bos_token_id]
        # The settings overrule the file, as the transformers library has it.
        self._post_process = not (begins_itself and settings.add_bos_token is False)
        put_before = settings.add_bos_token is True and not begins_itself and self.bos_token_id is not None
        self._prefix = [self.bos_token_id] if put_before and self.bos_token_id is not None else []

    def encode(self, text: str, *, add_special_tokens: bool = True) -> list[int]:
        """The ids of ``text``.

        Raises:
            RequestError: the text has no UTF-8.
        """
        utf8(text)
        post_process = add_special_tokens and self._post_process
        token_ids: list[int] = self._tokenizer.encode(text, add_special_tokens=post_process).ids
        return self._prefix + token_ids if add_special_tokens else token_ids

    def decode(self, token_ids: Sequence[int]) -> str:
        """The text of ``token_ids`` without special tokens."""
        text = b"".join(map(self._bytes.of, token_ids)).decode(errors="replace")
        return text.removeprefix(" ") if self._bytes.strips_first_space else text

    def id_to_bytes(self, token_id: int) -> bytes:
        """What the id adds to a text."""
        return self._bytes.of(token_id)

    def id_to_text(self, token_id: int) -> str:
        """The id as shown; special tokens by their name."""
        return self._bytes.name_of(token_id) or self._bytes.of(token_id).decode(errors="replace")

    def _id_of(self, token: str | None) -> int | None:
        found: int | None = None if token is None else self._tokenizer.token_to_id(token)
        return found


def read_folder(folder: Path) -> LibraryTokenizer:
    """The tokenizer of a folder that holds one: ``tokenizer.json``, else ``vocab.json`` and ``merges.txt``, else
    ``tokenizer.model``.

    Raises:
        ModelError: a file that can't be read as what its name says.
    """
    settings = read_settings(folder)
    if (folder / "tokenizer.json").is_file():
        return LibraryTokenizer(_from_json(folder / "tokenizer.json"), settings)
    if (folder / "vocab.json").is_file() and (folder / "merges.txt").is_file():
        return LibraryTokenizer(_from_vocab(folder, settings), settings)
    return LibraryTokenizer(_from_pieces(folder / "tokenizer.model", settings), settings)


def _from_json(path: Path) -> Tokenizer:
    check_file(path)
    try:
        return Tokenizer.from_file(str(path))
    except Exception as error:  # the library raises no narrower class
        raise ModelError(f"{path} can't be read as a tokenizer: {error}") from None


def _from_vocab(folder: Path, settings: TokenizerSettings) -> Tokenizer:
    vocab, merges = folder / "vocab.json", folder / "merges.txt"
    check_file(vocab)
    check_file(merges)
    try:
        tokenizer = Tokenizer(models.BPE.from_file(str(vocab), str(merges)))
    except Exception as error:  # the library raises no narrower class
        raise ModelError(f"{vocab} and {merges.name} can't be read as a tokenizer: {error}") from None
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    _add(tokenizer, settings)
    return tokenizer


def _from_pieces(path: Path, settings: TokenizerSettings) -> Tokenizer:
    check_file(path)
    pieces = read_pieces(path)
    tokenizer = bpe_of_pieces(pieces, "every" if settings.legacy else "first")
    control = [piece.text for piece in pieces if piece.kind in (PieceKind.CONTROL, PieceKind.UNKNOWN)]
    tokenizer.add_special_tokens([AddedToken(text, normalized=False, special=True) for text in control])
    _add(tokenizer, settings)
    return tokenizer


def _add(tokenizer: Tokenizer, settings: TokenizerSettings) -> None:
    """Those with ids of their own in the order of these, then the special ones; known ones keep their ids."""
    for spec in (*settings.added, *settings.special.values()):
        tokenizer.add_special_tokens([_library(spec)]) if spec.special else tokenizer.add_tokens([_library(spec)])


def _library(spec: AddedTokenSpec) -> AddedToken:
    return AddedToken(
        spec.content,
        single_word=spec.single_word,
        lstrip=spec.lstrip,
        rstrip=spec.rstrip,
        normalized=spec.normalized,
        special=spec.special,
    )
