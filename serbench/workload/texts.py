"""Turns one object of ShareGPT JSON, JSON lines or an OpenAI batch into a row of text. It does not read files."""

from collections.abc import Iterator, Sequence
from typing import Any, Final

from serbench.workload.rows import OTHER_FORMAT, TextRow, Unusable

CHAT_KEYS: Final = ("conversations", "messages")
PROMPT_KEYS: Final = (*CHAT_KEYS, "turns", "prompt", "text")
"""What marks a row; the first one that it has is read."""

_ASKING: Final = frozenset({"human", "user"})
_ANSWERING: Final = frozenset({"gpt", "chatgpt", "bing", "bard", "assistant", "model"})
_LIMITS: Final = ("max_completion_tokens", "max_tokens")


def prompt_row(line: int, item: dict[str, Any]) -> TextRow:
    """What is asked first, and the answer that follows at once.

    Raises:
        Unusable: the row has no prompt.
    """
    key = next((key for key in PROMPT_KEYS if key in item), None)
    if key is None:
        raise Unusable(OTHER_FORMAT)
    value = item[key]
    if key in CHAT_KEYS:
        prompt, answer = _first_exchange(value)
    elif key == "turns":
        prompt, answer = _first_turn(value), ""
    else:
        prompt, answer = value, ""
    if not isinstance(prompt, str):
        raise Unusable(f"{key} is no text")
    return TextRow(line, _not_empty(prompt), answer)


def batch_row(line: int, item: dict[str, Any]) -> TextRow:
    """One request of an OpenAI batch: all texts that it sends, and how many tokens it asks for.

    Raises:
        Unusable: it asks for no completion, or sends no text.
    """
    body = item.get("body")
    if not isinstance(body, dict):
        raise Unusable(OTHER_FORMAT)
    limit = next((body[key] for key in _LIMITS if body.get(key) is not None), None)
    if limit is not None and (not isinstance(limit, int) or isinstance(limit, bool) or limit < 1):
        raise Unusable("asks for no whole number of tokens above 0")
    if "messages" in body:
        prompt = "\n".join(filter(None, map(_text_of, _turns(body["messages"]))))
    elif isinstance(body.get("prompt"), str):
        prompt = body["prompt"]
    else:
        raise Unusable("asks for no completion of a text")
    return TextRow(line, _not_empty(prompt), "", limit)


def text_rows(text: str) -> Iterator[TextRow]:
    """One prompt a line of plain text; lines without a word are no rows."""
    for number, line in enumerate(text.split("\n"), 1):
        if line.strip():
            yield TextRow(number, line.rstrip("\r"))


def _not_empty(prompt: str) -> str:
    if not prompt.strip():
        raise Unusable("prompt is empty")
    try:
        prompt.encode()
    except UnicodeEncodeError:  # a lone surrogate, which JSON can hold and UTF-8 can't
        raise Unusable("prompt is no UTF-8 text") from None
    return prompt


def _first_turn(turns: Any) -> Any:
    if not isinstance(turns, list) or not turns:
        raise Unusable("turns is no list of texts")
    return turns[0]


def _first_exchange(value: Any) -> tuple[str, str]:
    turns = _turns(value)
    roles = [_role(turn) for turn in turns]
    asked = next((i for i, role in enumerate(roles) if role in _ASKING), None)
    if asked is None:
        raise Unusable("nobody asks in the conversation")
    answered = asked + 1 < len(turns) and roles[asked + 1] in _ANSWERING
    return _text_of(turns[asked]), _text_of(turns[asked + 1]) if answered else ""


def _turns(value: Any) -> Sequence[dict[str, Any]]:
    if not isinstance(value, list) or not all(isinstance(turn, dict) for turn in value):
        raise Unusable("the conversation is no list of turns")
    return value


def _role(turn: dict[str, Any]) -> str:
    role = turn.get("from", turn.get("role"))
    return role.strip().lower() if isinstance(role, str) else ""


def _text_of(turn: dict[str, Any]) -> str:
    """A turn's text; of content in parts the texts among them."""
    content = turn.get("value", turn.get("content"))
    if isinstance(content, list):
        parts = [part.get("text") for part in content if isinstance(part, dict)]
        return "".join(part for part in parts if isinstance(part, str))
    return content if isinstance(content, str) else ""
