"""Payloads that a worker refused: what is said of them, and that a command that met any has failed.

The engine recovers from each, so outputs are right and runs are kept; but what it cost is in the figures, and nothing
garbles payloads here: the codec or the transport is wrong. It does not know why a payload was refused.
"""

from collections.abc import Sequence
from typing import Final

from serbench.errors import FaultError
from serbench.report.figures import counted
from serbench.results import Run

WARNING: Final = "payloads were refused, and what ran was sent anew: the codec or the transport is wrong"
"""What a stored run says; ``recoveries`` and ``first_refusal`` of its repeats say the rest."""


def check_refusals(runs: Sequence[Run]) -> None:
    """That no payload was refused in any of them.

    Raises:
        FaultError: some were; with the codecs, how many and the first reason of each.
    """
    told = [line for run in runs if (line := _told(run))]
    if told:
        raise FaultError(f"{'; '.join(told)}. Nothing garbled them: the codec or the transport is wrong")


def _told(run: Run) -> str:
    refused = [repeat for repeat in run.repeats if repeat.recoveries]
    if not refused:
        return ""
    times = counted(sum(repeat.recoveries for repeat in refused), "payload")
    reason = refused[0].first_refusal
    first = f", first: {reason}" if reason else ""
    return f"codec {run.spec.codec} by {run.spec.transport}: {times} refused{first}"
