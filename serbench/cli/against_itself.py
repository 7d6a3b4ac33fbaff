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
    from serbench.against_itself import REPEATS, repeats_to_settle
    from serbench.report.console import error_console, tell
    from serbench.stats import MIN_PAIRS

    asked = ctx.get_parameter_source("repeats") is not ParameterSource.DEFAULT
    if asked and choices.repeats < MIN_PAIRS:
        raise click.UsageError(
            f"--aa with --repeats {choices.repeats} could show nothing; it needs at least {MIN_PAIRS}"
        )
    choices = choices if asked else msgspec.structs.replace(choices, repeats=REPEATS)
    measured = _measured(codec, choices)
    needed = repeats_to_settle(measured[1])
    if needed is not None and needed > choices.repeats and not asked:
        tell(error_console(), f"too noisy to tell after {choices.repeats} repeats; measuring again with {needed}")
        choices = msgspec.structs.replace(choices, repeats=needed)
        measured = _measured(codec, choices)
    return _confirmed(measured, codec, choices, show)


def _confirmed(measured: "Measurement", codec: str, choices: Choices, show: Show) -> int:
    """Show what was measured; where it shows a difference, what a second measurement says."""
    from serbench.against_itself import confirmed, shown, summary
    from serbench.report.console import error_console, tell

    console = error_console()
    first, differs = measured[1], list[str]()
    if shown(first):
        tell(
            console, f"a difference was shown in {' and '.join(shown(first))}; measuring again to see whether it stays"
        )
        measured = _measured(codec, choices)
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


def _measured(codec: str, choices: Choices) -> "Measurement":
    from serbench.cli.measure import measure
    from serbench.comparison import compare_runs

    runs = measure(experiments_of(choices, [codec, codec]), choices).runs
    return runs, compare_runs(runs)
