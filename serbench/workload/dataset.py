"""Draws requests from the rows of a file. It does not know file formats (rows.py) nor how tokens are made."""

import hashlib
from collections import Counter
from pathlib import Path

import numpy as np

from serbench.errors import ExperimentError
from serbench.workload.base import Text, WorkRequest, forced, group_seed
from serbench.workload.rows import Row, read_rows
from serbench.workload.spec import DEFAULT_OUTPUT_LEN, Dataset


class DatasetWorkload:
    """``num_prompts`` rows a group, drawn without putting back; rows that don't fit are counted and replaced by others.

    Raises:
        DatasetError: the file can't be read. ExperimentError: none of its rows can be used.
    """

    def __init__(
        self,
        spec: Dataset,
        *,
        seed: int,
        text: Text,
        max_model_len: int,
    ) -> None:
        found = read_rows(Path(spec.path))
        self._spec = spec
        self._seed = seed
        self._text = text
        self._max_model_len = max_model_len
        self._rows = found.rows
        self._left_out = Counter(found.left_out)
        self._over_limit: set[int] = set()
        self._fewest = spec.num_prompts
        if not self.requests(0):
            reasons = _counted(self._reasons()) or "no rows"
            raise ExperimentError(f"{spec.path}: none of its rows can be used: {reasons}")

    def requests(self, group: int) -> list[WorkRequest]:
        """Up to ``num_prompts`` requests; fewer where the file has no more."""
        rng = np.random.default_rng(group_seed(self._seed, group))
        chosen: list[WorkRequest] = []
        for index in rng.permutation(len(self._rows)).tolist():
            if len(chosen) == self._spec.num_prompts:
                break
            request = self._request(len(chosen), self._rows[index], rng)
            if request is None:
                self._over_limit.add(index)
            else:
                chosen.append(request)
        self._fewest = min(self._fewest, len(chosen))
        return chosen

    def notes(self) -> list[str]:
        """Rows left out, by reason, of those looked at so far; and fewer prompts than asked for."""
        notes = []
        if self._fewest < self._spec.num_prompts:
            notes.append(f"{self._spec.path} gave {self._fewest} prompts, not the {self._spec.num_prompts} asked for")
        reasons = _counted(self._reasons())
        return [*notes, f"{self._spec.path}: rows left out: {reasons}"] if reasons else notes

    def _reasons(self) -> Counter[str]:
        reasons = Counter(self._left_out)
        if self._over_limit:
            reasons[f"longer than the limit of {self._max_model_len} tokens"] = len(self._over_limit)
        return reasons

    def _request(self, number: int, row: Row, rng: np.random.Generator) -> WorkRequest | None:
        ids = np.asarray(self._text.encode(row.prompt), dtype=np.int32)
        tokens = self._output_len(row, rng)
        if not len(ids) or len(ids) + tokens > self._max_model_len:
            return None
        return WorkRequest(f"request-{number}", ids, forced(tokens), row.prompt, tokens)

    def _output_len(self, row: Row, rng: np.random.Generator) -> int:
        if self._spec.output_len is not None:
            return int(rng.integers(self._spec.output_len.low, self._spec.output_len.high + 1))
        return max(1, self._text.answer_length(row.answer)) if row.answer.strip() else DEFAULT_OUTPUT_LEN


def file_digest(path: str) -> str:
    """Hex of what the file holds, so that its results are not compared with those of another file.

    Raises:
        OSError: it can't be read.
    """
    return hashlib.blake2b(Path(path).read_bytes(), digest_size=16).hexdigest()


def _counted(reasons: Counter[str]) -> str:
    return ", ".join(f"{count} {reason}" for reason, count in sorted(reasons.items()))
