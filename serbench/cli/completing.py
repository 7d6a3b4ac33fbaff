"""What the shell offers for names and files when tab is pressed. It does not know how a shell asks for it."""

from collections.abc import Callable

import click
from click.shell_completion import CompletionItem

Complete = Callable[[click.Context, click.Parameter, str], list[CompletionItem]]


def codecs(ctx: click.Context, param: click.Parameter, incomplete: str) -> list[CompletionItem]:
    """Codecs, plug-ins too; their options once a colon is typed. After a comma the next one of a list."""
    from serbench_codecs.registry import list_codecs

    before, comma, last = incomplete.rpartition(",")
    found = list_codecs()
    names = [(codec.name, codec.description) for codec in found]
    if ":" in last:
        names = [
            (f"{codec.name}:{key}={value}", codec.description)
            for codec in found
            for key, values in codec.options.items()
            for value in values
        ]
    return _starting(last, names, before + comma)


def result_formats(ctx: click.Context, param: click.Parameter, incomplete: str) -> list[CompletionItem]:
    """Encodings of results."""
    from serbench_codecs.registry import RESULT_FORMATS

    return _starting(incomplete, [(name, "") for name in RESULT_FORMATS])


def models(ctx: click.Context, param: click.Parameter, incomplete: str) -> list[CompletionItem]:
    """Models known by name, and folders."""
    from serbench_engine.models.known import KNOWN_MODELS

    known = _starting(incomplete, [(model.name, model.source) for model in KNOWN_MODELS])
    return known or [CompletionItem(incomplete, type="dir")]


def files(ctx: click.Context, param: click.Parameter, incomplete: str) -> list[CompletionItem]:
    """Whatever the shell finds."""
    return [CompletionItem(incomplete, type="file")]


def folders(ctx: click.Context, param: click.Parameter, incomplete: str) -> list[CompletionItem]:
    """Whatever folders the shell finds."""
    return [CompletionItem(incomplete, type="dir")]


def _starting(incomplete: str, names: list[tuple[str, str]], before: str = "") -> list[CompletionItem]:
    return [CompletionItem(before + name, help=told or None) for name, told in names if name.startswith(incomplete)]
