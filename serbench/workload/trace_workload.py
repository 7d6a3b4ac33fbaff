"""Makes requests of a trace's lengths and times. It does not know its format, nor what a model makes of the ids.

Requests are always the first rows that can be used, in the order of their times, so that repeats are alike; their
token ids are another group's own. Blocks that the trace gives one name get the same ids, so prefixes are really shared.
"""

from collections.abc import Sequence

import numpy as np

from serbench.workload.base import WorkRequest, forced, group_seed
from serbench.workload.left_out import LeftOut
from serbench.workload.rows import BLOCK_TOKENS, TraceRow
from serbench.workload.spec import Dataset
from serbench_codecs.plan import Int32Array

_BLOCKS, _SINGLE = 1, 2
"""Streams of random numbers: of named blocks, and of rows without names."""


class TraceWorkload:
    """``num_prompts`` requests a group, each at its time on the trace's clock.

    Args:
        rows: all usable ones, by time. left_out: what was left out so far. ids: int32[n], of which prompts are made.

    Raises:
        ExperimentError: no row can be used. DatasetError: ``strict``, and a row can't be.
    """

    def __init__(
        self,
        spec: Dataset,
        rows: Sequence[TraceRow],
        left_out: LeftOut,
        *,
        seed: int,
        ids: Int32Array,
        max_model_len: int,
    ) -> None:
        self._spec = spec
        self._seed = seed
        self._ids = ids
        self._left_out = left_out
        self._rows: list[TraceRow] = []
        for i, row in enumerate(rows):
            enough = len(self._rows) == spec.num_prompts
            if enough and not spec.strict:
                break
            longest = row.output_tokens if spec.output_len is None else spec.output_len.high
            if row.input_tokens + longest > max_model_len:
                left_out.over_limit(i, row.line)
            elif not enough:
                self._rows.append(row)
        left_out.check(usable=len(self._rows))

    def requests(self, group: int) -> list[WorkRequest]:
        """The same lengths and times for every group, with other token ids."""
        seed = group_seed(self._seed, group)
        rng = np.random.default_rng(seed)
        return [self._request(i, row, seed, rng) for i, row in enumerate(self._rows)]

    @property
    def rows(self) -> Sequence[TraceRow]:
        """The rows that become requests, by time."""
        return self._rows

    def notes(self) -> list[str]:
        """Rows left out, by reason, of those looked at; and fewer requests than asked for."""
        return self._left_out.notes(len(self._rows), self._spec.num_prompts)

    def _request(self, i: int, row: TraceRow, seed: list[int], rng: np.random.Generator) -> WorkRequest:
        lengths = self._spec.output_len
        tokens = row.output_tokens if lengths is None else int(rng.integers(lengths.low, lengths.high + 1))
        if row.block_ids:
            blocks = [self._random([*seed, _BLOCKS, block % (1 << 64)], BLOCK_TOKENS) for block in row.block_ids]
            ids = np.concatenate(blocks)[: row.input_tokens]
        else:
            ids = self._random([*seed, _SINGLE, row.line], row.input_tokens)
        return WorkRequest(f"request-{i}", ids, forced(tokens), None, tokens, row.arrival_ns)

    def _random(self, seed: list[int], count: int) -> Int32Array:
        return self._ids[np.random.default_rng(seed).integers(len(self._ids), size=count)]
