"""Turns a conversation into a prompt by the model's own chat template, in Jinja's sandbox.

It does not know tokenizers: the prompt it makes holds its special tokens as text.
"""

import json
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, NoReturn

from serbench_engine.errors import ModelError, RequestError
from serbench_engine.text.settings import read_settings
from serbench_engine.weights.files import paths_looked_at


class ChatTemplate:
    """A folder's chat template. Encode what it makes without adding special tokens: it holds them."""

    def __init__(self, source: str, special: Mapping[str, str]) -> None:
        """``source`` is the template, ``special`` the special tokens by role (``bos_token``, …).

        Raises:
            ModelError: a template that Jinja can't read, with the line.
        """
        # Imported here: completions need no templates.
        from jinja2 import TemplateSyntaxError
        from jinja2.sandbox import ImmutableSandboxedEnvironment

        environment = ImmutableSandboxedEnvironment(
            trim_blocks=True, lstrip_blocks=True, extensions=["jinja2.ext.loopcontrols"]
        )
        environment.filters["tojson"] = _to_json
        environment.globals["raise_exception"] = _refuse
        environment.globals["strftime_now"] = _now
        try:
            self._template = environment.from_string(source)
        except TemplateSyntaxError as error:
            raise ModelError(f"the chat template is broken, line {error.lineno}: {error.message}") from None
        self._special = dict(special)

    def render(self, messages: Sequence[Mapping[str, Any]], *, add_generation_prompt: bool = True) -> str:
        """The prompt for ``messages``, each with ``role`` and ``content``; by default up to where the answer begins.

        Raises:
            RequestError: messages that the template refuses or can't render.
        """
        from jinja2 import TemplateError

        try:
            return self._template.render(
                messages=list(messages), add_generation_prompt=add_generation_prompt, **self._special
            )
        except (TemplateError, TypeError, ValueError, KeyError) as error:
            raise RequestError(f"the chat template can't render these messages: {error}") from None


def load_chat_template(folder: str | None) -> ChatTemplate | None:
    """The chat template of a tokenizer folder; None if it has none.

    Raises:
        ModelError: broken settings or a broken template.
    """
    if folder is None:
        return None
    with paths_looked_at():
        settings = read_settings(Path(folder))
    if settings.chat_template is None:
        return None
    return ChatTemplate(settings.chat_template, {role: spec.content for role, spec in settings.special.items()})


def _to_json(value: Any, ensure_ascii: bool = False, indent: int | None = None) -> str:
    return json.dumps(value, ensure_ascii=ensure_ascii, indent=indent)


def _refuse(message: str) -> NoReturn:
    raise RequestError(f"the chat template refuses these messages: {message}")


def _now(form: str) -> str:
    return datetime.now(UTC).astimezone().strftime(form)
