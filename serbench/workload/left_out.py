"""Keeps count of a file's rows that can't be used, by reason. It does not know how they are found."""

from collections.abc import Mapping, Sequence

from serbench.errors import DatasetError, ExperimentError
from serbench.report.figures import counted
from serbench.workload.rows import counted_reasons


class LeftOut:
    """Rows of ``path`` left out, by reason, with their lines; more come in as rows are looked at."""

    def __init__(self, path: str, left_out: Mapping[str, Sequence[int]], *, strict: bool, max_model_len: int) -> None:
        self._path = path
        self._strict = strict
        self._too_long = f"longer than the limit of {max_model_len:,} tokens"
        self._unreadable = left_out
        self._over_limit: dict[int, int] = {}

    def over_limit(self, row: int, line: int) -> None:
        """Count a row, by its number, whose prompt and output don't fit; once, however often it is looked at."""
        self._over_limit[row] = line

    def check(self, usable: int) -> None:
        """Refuse a file with no usable row and, if strict, one with a row that isn't.

        Raises:
            DatasetError: strict; with the lines. ExperimentError: none of the rows can be used; with the reasons.
        """
        reasons = self.by_reason()
        if self._strict and reasons:
            raise DatasetError(f"{self._path}: --strict, and rows can't be used: {counted_reasons(reasons)}")
        if not usable:
            why = counted_reasons(reasons) or "no rows"
            raise ExperimentError(f"{self._path}: none of its rows can be used: {why}")

    def notes(self, given: int, asked: int) -> list[str]:
        """What was left out, and that fewer prompts were ``given`` than ``asked`` for."""
        notes = [f"{self._path} gave {counted(given, 'prompt')}, not the {asked:,} asked for"] if given < asked else []
        reasons = counted_reasons(self.by_reason())
        return [*notes, f"{self._path}: rows left out: {reasons}"] if reasons else notes

    def by_reason(self) -> dict[str, Sequence[int]]:
        """The lines of all rows left out so far."""
        too_long = {self._too_long: sorted(self._over_limit.values())} if self._over_limit else {}
        return {**self._unreadable, **too_long}
