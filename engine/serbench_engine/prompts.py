"""Reads prompts in all the ways that vLLM's offline API takes them. It does not know tokenizers or vocabularies."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final, TypeAlias

import msgspec
import numpy as np
import numpy.typing as npt

from serbench_engine.errors import RequestError

TokenIds: TypeAlias = Sequence[int] | npt.NDArray[np.integer]
Prompt: TypeAlias = str | TokenIds | Mapping[str, Any]
"""A text, token ids, or a dictionary that has one of them as ``prompt`` or ``prompt_token_ids``."""

_WANTED: Final = "a text, a list of token ids, or a dictionary with 'prompt' or 'prompt_token_ids'"
_KEYS: Final = frozenset({"prompt", "prompt_token_ids"})


class GivenPrompt(msgspec.Struct, frozen=True):
    """One prompt: its text if it has one, and its ids if it came with them; at least one of both."""

    text: str | None
    token_ids: TokenIds | None


def read_prompts(prompts: Prompt | Iterable[Prompt]) -> list[GivenPrompt]:
    """One prompt or several, in order.

    Raises:
        RequestError: something that is no prompt.
    """
    if isinstance(prompts, str | bytes | Mapping) or _is_ids(prompts):
        return [_read(prompts)]
    if _is_scalar(prompts) or not isinstance(prompts, Iterable):
        raise RequestError(f"the prompts are {_kind(prompts)}; give {_WANTED}, or a list of these")
    return [_read(one) for one in prompts]


def _is_ids(prompts: object) -> bool:
    """Whether it is one prompt's ids; whether they are good ones is seen later."""
    if isinstance(prompts, np.ndarray):
        return prompts.ndim == 1 and prompts.dtype.kind not in "OU"
    return isinstance(prompts, Sequence) and len(prompts) > 0 and isinstance(prompts[0], int | float | np.generic)


def _is_scalar(found: object) -> bool:
    """Whether it is an array that Python holds for iterable, although it can't be gone through."""
    return isinstance(found, np.ndarray) and found.ndim == 0


def _read(prompt: object) -> GivenPrompt:
    if isinstance(prompt, str):
        return GivenPrompt(prompt, None)
    if isinstance(prompt, Mapping):
        return _read_mapping(prompt)
    return GivenPrompt(None, _ids(prompt, "a prompt", _WANTED))


def _read_mapping(prompt: Mapping[str, Any]) -> GivenPrompt:
    if not prompt or prompt.keys() - _KEYS:
        keys = ", ".join(map(repr, prompt)) or "no key"
        raise RequestError(f"a prompt's dictionary has {keys}; it must have 'prompt' or 'prompt_token_ids', no others")
    text = prompt.get("prompt")
    if "prompt_token_ids" in prompt:
        ids = _ids(prompt["prompt_token_ids"], "a prompt's 'prompt_token_ids'", "a list of token ids")
        return GivenPrompt(text if isinstance(text, str) else None, ids)
    if not isinstance(text, str):
        raise RequestError(f"a prompt's 'prompt' is {_kind(text)}; it must be a text")
    return GivenPrompt(text, None)


def _ids(found: object, what: str, wanted: str) -> TokenIds:
    if isinstance(found, np.ndarray | Sequence) and not isinstance(found, str | bytes) and not _is_scalar(found):
        return found
    raise RequestError(f"{what} is {_kind(found)}; it must be {wanted}")


def _kind(found: object) -> str:
    if _is_scalar(found):
        return "an array without a dimension"
    return "None" if found is None else f"of type {type(found).__name__}"
