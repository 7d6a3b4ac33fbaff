"""Shared by commands on the simulated model: the path as an experiment, and progress. It does not know what they do."""

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from serbench.experiment import Experiment
    from serbench.report.progress import SilentProgress, TerminalProgress


def path_experiment(options: Mapping[str, Any]) -> "Experiment":
    """The experiment that options of path and measuring describe; codec, workload and limits are left as they are.

    Raises:
        ExperimentError: a number out of range.
    """
    from serbench.experiment import Experiment

    same = {name: value for name, value in options.items() if name in Experiment.__struct_fields__}
    return Experiment(model="sim", step_timeout_s=options["step_timeout"], **same)


def progress_shown(quiet: bool) -> "TerminalProgress | SilentProgress":
    """A bar on the terminal, if there is one and it is wanted."""
    from serbench.report.console import error_console
    from serbench.report.progress import SilentProgress, TerminalProgress

    console = error_console()
    return TerminalProgress(console) if console.is_terminal and not quiet else SilentProgress()
