"""Which places of the grid a plot shows, and what it calls them. It does not know what it shows of them."""

from collections.abc import Callable, Sequence
from typing import Final, TypeVar

from serbench.report.figures import counted
from serbench.report.survey import Survey, model_label

MOST: Final = 3
"""Panels a row or column: more would be too small to read."""

Value = TypeVar("Value")
Other = TypeVar("Other")


def few(values: Sequence[Value]) -> list[Value]:
    """All of a few values; of more the first, one from the middle and the last."""
    if len(values) <= MOST:
        return list(values)
    return [values[0], values[len(values) // 2], values[-1]]


def filled(
    rows: Sequence[Value], columns: Sequence[Other], has: Callable[[Value, Other], bool]
) -> tuple[list[Value], list[Other]]:
    """A few of the rows and columns that have something at any place, since panels with nothing waste the page."""
    across = few([column for column in columns if any(has(row, column) for row in rows)])
    return few([row for row in rows if any(has(row, column) for column in across)]), across


def left_out(survey: Survey) -> str:
    """What plots with a panel for each place do not show; empty where they show all."""
    many = [
        f"{len(values)} {what}"
        for what, values in (("models", survey.models), ("contexts", survey.contexts), ("batch sizes", survey.batches))
        if len(values) > MOST
    ]
    return (
        f"plots have panels for at most {MOST} of the {' and of the '.join(many)}: the first, a middle one and the "
        "last that have something; the tables hold all"
        if many
        else ""
    )


def batch_words(survey: Survey, batch: int) -> str:
    """The batch, where there are several."""
    return f"{counted(batch, 'request')} at once" if len(survey.batches) > 1 else ""


def context_words(survey: Survey, context: int) -> str:
    """The context, where there are several."""
    return f"{context:,} prompt tokens" if len(survey.contexts) > 1 else ""


def model_words(survey: Survey, model: str) -> str:
    """The model, where there are several: a simulated one by the time of its step."""
    return model_label(model) if len(survey.models) > 1 else ""
