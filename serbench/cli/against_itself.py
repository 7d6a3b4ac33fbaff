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

    Measurement = tuple[Sequence[Run], Comparison]

Show = Callable[["Sequence[Run]", "Comparison"], None]


def against_itself(ctx: click.Context, codec: str, choices: Choices, show: Show) -> int:
    """Measure and show; the exit code.

    Raises:
        UsageError: fewer repeats than a verdict needs. OutputsDifferError: the same codec gave two answers.
    """
    from serbench.against_itself import REPEATS, confirmed, shown, summary
    from serbench.report.console import error_console, tell
    from serbench.stats import MIN_PAIRS

    asked = ctx.get_parameter_source("repeats") is not ParameterSource.DEFAULT
    if asked and choices.repeats < MIN_PAIRS:
        raise click.UsageError(
            f"--aa with --repeats {choices.repeats} could show nothing; it needs at least {MIN_PAIRS}"
        )
    console = error_console()
    choices = choices if asked else msgspec.structs.replace(choices, repeats=REPEATS)
    measured = _measured(codec, choices, may_add=not asked)
    first, differs = measured[1], list[str]()
    if shown(first):
        where = " and ".join(shown(first))
        if not choices.quiet:
            tell(console, f"a difference was shown in {where}; measuring again to see whether it stays")
        measured = _measured(codec, choices, may_add=not asked)
        differs = confirmed(first, measured[1])
    show(*measured)
    for line in summary(measured[1]):
        tell(console, line)
    if differs:
        tell(
            console,
            f"{codec} differs from itself in {' and '.join(differs)}, twice: end other programs and try again before "
            "trusting any comparison on this machine",
        )
    return 1 if differs else 0


def _measured(codec: str, choices: Choices, *, may_add: bool) -> "Measurement":
    """Both with their comparison; where they scatter too much to tell, anew with as many repeats as that asks for."""
    from serbench.against_itself import repeats_to_settle
    from serbench.cli.measure import measure
    from serbench.comparison import compare_runs
    from serbench.report.console import error_console, tell

    runs = measure(experiments_of(choices, [codec, codec]), choices).runs
    comparison = compare_runs(runs)
    needed = repeats_to_settle(comparison)
    if not may_add or needed is None or needed <= choices.repeats:
        return runs, comparison
    if not choices.quiet:
        tell(error_console(), f"too noisy to tell after {choices.repeats} repeats; measuring again with {needed}")
    return _measured(codec, msgspec.structs.replace(choices, repeats=needed), may_add=False)
