"""What a tokenizer folder says beside the tokenizer itself: special tokens, BOS, chat template.

It does not know what the settings are used for.
"""

from pathlib import Path
from typing import Any, Final

import msgspec

from serbench_engine.errors import ModelError
from serbench_engine.models.json_file import read_json

_SPECIAL: Final = ("bos_token", "eos_token", "unk_token", "pad_token")


class AddedTokenSpec(msgspec.Struct, frozen=True):
    """A token that is found in a text before anything else is; the flags are the tokenizers library's."""

    content: str
    special: bool = True
    normalized: bool = False
    single_word: bool = False
    lstrip: bool = False
    rstrip: bool = False


class TokenizerSettings(msgspec.Struct, frozen=True):
    """``special`` has the special tokens by role; ``added`` those that the folder lists by id, in the ids' order.

    ``add_bos_token`` None: as the tokenizer's own post-processing has it. ``chat_template`` is a Jinja template;
    ``legacy`` says how SentencePiece models put spaces before texts.
    """

    special: dict[str, AddedTokenSpec]
    added: tuple[AddedTokenSpec, ...]
    add_bos_token: bool | None
    chat_template: str | None
    legacy: bool

    def text_of(self, role: str) -> str | None:
        """The special token of a role such as ``bos_token``."""
        token = self.special.get(role)
        return token.content if token else None


def read_settings(folder: Path) -> TokenizerSettings:
    """Read ``tokenizer_config.json``, ``special_tokens_map.json`` and ``chat_template.jinja``, as far as they exist.

    Raises:
        ModelError: one of them is broken, with the line.
    """
    raw: dict[str, Any] = {}
    for name in ("special_tokens_map.json", "tokenizer_config.json"):  # the latter wins
        if (folder / name).is_file():
            raw |= {key: value for key, value in read_json(folder / name).items() if value is not None}
    special = {role: spec for role in _SPECIAL if (spec := _spec(raw.get(role)))}
    by_id = raw.get("added_tokens_decoder") or {}
    if not isinstance(by_id, dict):
        raise ModelError(f"{folder}: added_tokens_decoder is {by_id!r}; it must be an object, tokens by their ids")
    added = [spec for key in sorted(by_id, key=_number) if (spec := _spec(by_id[key]))]
    said = raw.get("add_bos_token")
    return TokenizerSettings(
        special=special,
        added=tuple(added),
        add_bos_token=said if isinstance(said, bool) else None,
        chat_template=_chat_template(folder, raw.get("chat_template")),
        legacy=raw.get("legacy") is not False,
    )


def _number(key: str) -> int:
    return int(key) if key.isdecimal() else 0


def _spec(value: object) -> AddedTokenSpec | None:
    if isinstance(value, str):
        return AddedTokenSpec(value)
    if not isinstance(value, dict) or not isinstance(value.get("content"), str):
        return None
    flags = {name: bool(value[name]) for name in AddedTokenSpec.__struct_fields__[1:] if name in value}
    return AddedTokenSpec(value["content"], **flags)


def _chat_template(folder: Path, said: object) -> str | None:
    own = folder / "chat_template.jinja"
    if own.is_file():
        try:
            return own.read_text(encoding="utf-8")
        except UnicodeDecodeError as error:
            raise ModelError(f"{own} is no text: byte {error.start} is not UTF-8") from None
    if isinstance(said, list):  # several, by name
        said = {one.get("name"): one.get("template") for one in said if isinstance(one, dict)}.get("default")
    return said if isinstance(said, str) else None
