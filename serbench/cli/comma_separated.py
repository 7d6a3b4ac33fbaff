"""Options that take several values, as in ``--batch 1,16,64``. It does not know what they are values of."""

from typing import Any

import click


class Names(click.ParamType["tuple[str, ...]"]):
    """Names with commas in between, none twice."""

    name = "NAME,NAME,..."

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> tuple[str, ...]:
        """The names in the order given, or a usage error."""
        if isinstance(value, tuple):
            return value
        names = tuple(dict.fromkeys(name.strip() for name in str(value).split(",") if name.strip()))
        if not names:
            self.fail(f"{value!r} names nothing; write one, or several with commas in between", param, ctx)
        return names


class Numbers(click.ParamType["tuple[int, ...]"]):
    """Whole numbers of a range, with commas in between; sorted, none twice."""

    name = "N,N,..."

    def __init__(self, one: click.ParamType[int]) -> None:
        self._one = one

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> tuple[int, ...]:
        """The numbers, or a usage error."""
        if isinstance(value, tuple):
            return value
        return tuple(sorted({self._one.convert(part.strip(), param, ctx) for part in str(value).split(",")}))
