"""Which places of the grid a plot shows, and what it calls them. It does not know what it shows of them."""

from collections.abc import Sequence
from typing import Final, TypeVar

from serbench.report.figures import counted
from serbench.report.survey import Survey, model_label

MOST: Final = 3
"""Panels a row or column: more would be too small to read."""

Value = TypeVar("Value")


def few(values: Sequence[Value]) -> list[Value]:
    """All of a few values; of more the first, one from the middle and the last."""
    if len(values) <= MOST:
        return list(values)
    return [values[0], values[len(values) // 2], values[-1]]


def left_out(survey: Survey) -> str:
    """What plots with a panel for each place do not show; empty where they show all."""
    lost = [
        f"{what} {', '.join(str(value) for value in values if value not in few(values))}"
        for what, values in (("models", survey.models), ("contexts", survey.contexts), ("batches", survey.batches))
        if len(values) > MOST
    ]
    return (
        f"panels are for three places an axis; not shown where an axis is one of panels: {'; '.join(lost)}"
        if lost
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
