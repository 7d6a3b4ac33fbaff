"""`serbench compare --aa`: a codec against itself, twice where a difference shows. It does not know how that is judged.

Its exit code is 1 only where two measurements in a row show a difference in the same direction: of a single one, five
in a hundred do by chance.
"""

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

import click
import msgspec
from click.core import ParameterSource

from serbench.cli.options import Choices, experiments_of

if TYPE_CHECKING:
    from serbench.comparison import Comparison
    from serbench.results import Run

Show = Callable[["Sequence[Run]", "Comparison"], None]


def against_itself(ctx: click.Context, codec: str, choices: Choices, show: Show) -> int:
    """Measure and show; the exit code.

    Raises:
        UsageError: fewer repeats than a verdict needs. OutputsDifferError: the same codec gave two answers.
    """
    from serbench.against_itself import REPEATS, confirmed, shown, summary
    from serbench.report.console import error_console, tell
    from serbench.stats import MIN_PAIRS

    if ctx.get_parameter_source("repeats") is ParameterSource.DEFAULT:
        choices = msgspec.structs.replace(choices, repeats=REPEATS)
    if choices.repeats < MIN_PAIRS:
        raise click.UsageError(
            f"--aa with --repeats {choices.repeats} could show nothing; at least {MIN_PAIRS} are needed"
        )
    console = error_console()
    runs, comparison = _measured(codec, choices)
    first = comparison
    if shown(first):
        tell(
            console, f"a difference was shown in {' and '.join(shown(first))}; measuring again to see whether it stays"
        )
        runs, comparison = _measured(codec, choices)
    show(runs, comparison)
    for line in summary(comparison):
        tell(console, line)
    differs = confirmed(first, comparison) if shown(first) else []
    if differs:
        tell(
            console,
            f"{codec} differs from itself in {' and '.join(differs)}, twice: end other programs and try again before "
            "trusting any comparison on this machine",
        )
    return 1 if differs else 0


def _measured(codec: str, choices: Choices) -> "tuple[list[Run], Comparison]":
    from serbench.cli.measure import measure
    from serbench.comparison import compare_runs

    runs = measure(experiments_of(choices, [codec, codec]), choices).runs
    return runs, compare_runs(runs)
