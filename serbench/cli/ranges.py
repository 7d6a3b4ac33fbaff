"""How small and large the numbers on the command line may be: what is beyond is a slip. It does not know their options.

What is within them may still not fit together, or the machine: that is refused where both are known.
"""

from typing import Any, Final

import click

MOST: Final = (1 << 31) - 1
"""Of what is counted in int32."""


class Whole(click.ParamType[int]):
    """A whole number from ``least`` to ``most``."""

    name = "integer"

    def __init__(self, least: int, most: int) -> None:
        self._least = least
        self._most = most

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> int:
        """The number, or a usage error."""
        wanted = f"write a whole number from {self._least} to {self._most}"
        try:
            number = int(str(value))  # a grid file may have true
        except ValueError:
            self.fail(f"{value!r} is no whole number; {wanted}", param, ctx)
        if not self._least <= number <= self._most:
            self.fail(f"{number} is out of range; {wanted}", param, ctx)
        return number


class Real(click.ParamType[float]):
    """A number from ``least`` to ``most``; without ``least`` above 0."""

    name = "float"

    def __init__(self, most: float, least: float = 0) -> None:
        self._least = least
        self._most = most

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> float:
        """The number, or a usage error; not-a-number is in no range."""
        above = f"from {self._least:,} to" if self._least else "above 0 and at most"
        wanted = f"write one {above} {self._most:,}"
        try:
            number = float(str(value))
        except ValueError:
            self.fail(f"{value!r} is no number; {wanted}", param, ctx)
        if not (number > 0 and self._least <= number <= self._most):
            self.fail(f"{value} is out of range; {wanted}", param, ctx)
        return number


PASSES: Final = Whole(1, 100_000)
WARM_UPS: Final = Whole(0, 100_000)
SEEDS: Final = Whole(0, (1 << 63) - 1)
REQUESTS: Final = Whole(1, 1_000_000)
ROWS: Final = Whole(1, MOST)
WORKERS: Final = Whole(1, 64)
TOKENS: Final = Whole(1, 1 << 24)
CONTEXTS: Final = Whole(2, 1 << 24)
BLOCKS: Final = Whole(1, MOST)
STEPS: Final = Whole(1, MOST)
DECODE_STEPS: Final = Whole(8, 100_000)
SECONDS: Final = Real(86_400)
SHARES: Final = Real(1)
RATES: Final = Real(1_000_000, least=0.001)
"""A second; one that waits longer than a quarter of an hour for the next request is a slip."""
TIME_SCALES: Final = Real(1000)
