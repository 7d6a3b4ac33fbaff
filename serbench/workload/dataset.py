"""Draws requests from the texts of a file. It does not know file formats (formats.py) nor how tokens are made."""

import hashlib
from collections.abc import Sequence
from pathlib import Path

import msgspec
import numpy as np

from serbench.workload.base import Text, WorkRequest, forced, group_seed
from serbench.workload.content import read_text
from serbench.workload.formats import find_format
from serbench.workload.left_out import LeftOut
from serbench.workload.rows import TextRow
from serbench.workload.spec import DEFAULT_OUTPUT_LEN, Dataset


class DatasetWorkload:
    """``num_prompts`` rows a group, drawn without putting back; rows that don't fit are counted and replaced by others.

    Args:
        rows: all usable ones. left_out: what was left out so far.

    Raises:
        ExperimentError: no row can be used. DatasetError: ``strict``, and a row can't be.
    """

    def __init__(
        self,
        spec: Dataset,
        rows: Sequence[TextRow],
        left_out: LeftOut,
        *,
        seed: int,
        text: Text,
        max_model_len: int,
    ) -> None:
        self._spec = spec
        self._seed = seed
        self._text = text
        self._max_model_len = max_model_len
        self._rows = rows
        self._left_out = left_out
        self._fewest = spec.num_prompts
        if spec.strict:
            self._look_at_all()
        left_out.check(usable=len(self.requests(0)))

    def requests(self, group: int) -> list[WorkRequest]:
        """Up to ``num_prompts`` requests; fewer where the file has no more."""
        rng = np.random.default_rng(group_seed(self._seed, group))
        chosen: list[WorkRequest] = []
        for index in rng.permutation(len(self._rows)).tolist():
            if len(chosen) == self._spec.num_prompts:
                break
            request = self._request(len(chosen), index, rng)
            if request is not None:
                chosen.append(request)
        self._fewest = min(self._fewest, len(chosen))
        return chosen

    def notes(self) -> list[str]:
        """Rows left out, by reason, of those looked at so far; and fewer prompts than asked for."""
        return self._left_out.notes(self._fewest, self._spec.num_prompts)

    def _look_at_all(self) -> None:
        rng = np.random.default_rng(self._seed)
        for index in range(len(self._rows)):
            self._request(0, index, rng)

    def _request(self, number: int, index: int, rng: np.random.Generator) -> WorkRequest | None:
        row = self._rows[index]
        ids = np.asarray(self._text.encode(row.prompt), dtype=np.int32)
        tokens = self._output_len(row, rng)
        if not len(ids) or len(ids) + tokens > self._max_model_len:
            self._left_out.over_limit(index, row.line)
            return None
        return WorkRequest(f"request-{number}", ids, forced(tokens), row.prompt, tokens)

    def _output_len(self, row: TextRow, rng: np.random.Generator) -> int:
        if self._spec.output_len is not None:
            return int(rng.integers(self._spec.output_len.low, self._spec.output_len.high + 1))
        if row.output_tokens is not None:
            return row.output_tokens
        return max(1, self._text.answer_length(row.answer)) if row.answer.strip() else DEFAULT_OUTPUT_LEN


def looked_at(spec: Dataset) -> Dataset:
    """``spec`` with its format, and the digest of what the file holds, so that its results are not compared with those
    of another file.

    Raises:
        DatasetError: the file can't be read, or is in none of the formats.
    """
    form = spec.format or find_format(Path(spec.path), read_text(Path(spec.path)))
    return msgspec.structs.replace(spec, format=form, digest=file_digest(spec.path))


def file_digest(path: str) -> str:
    """Hex of the file's bytes.

    Raises:
        OSError: it can't be read.
    """
    return hashlib.blake2b(Path(path).read_bytes(), digest_size=16).hexdigest()
