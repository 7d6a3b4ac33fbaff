"""Finds figures in a stored document that nothing can have measured. It does not know what they are figures of.

Whoever calculates with what was read relies on it: ratios, their logarithms and intervals of them stay finite.
"""

from collections.abc import Iterator
from typing import Final

LEAST: Final = 1e-15
MOST: Final = 1e24
"""Between these, and 0, lies all that is counted or clocked, in whatever unit."""


def implausible(value: object, name: str) -> Iterator[tuple[str, object]]:
    """The numbers in ``value``, JSON as Python has it, that can't be, each with where it is."""
    if isinstance(value, dict):
        for key, inner in value.items():
            yield from implausible(inner, f"{name}.{key}")
    elif isinstance(value, list):
        for i, inner in enumerate(value):
            yield from implausible(inner, f"{name}[{i}]")
    elif isinstance(value, int | float) and value != 0 and not LEAST <= value <= MOST:
        yield name, value
