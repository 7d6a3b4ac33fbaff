"""Chooses each due row's next id from its logits: a pure function of logits, the row's ids, its seed and output index.

It does not know models, plans or codecs. Nothing it keeps can change what it answers: only which rows need what.
"""

from typing import Final

import msgspec
import numpy as np
import torch

from serbench_codecs.plan import FAILED_ROW, SAMPLING_DTYPE, Int32Array, Int64Array, Logprobs, SamplingArray
from serbench_codecs.table import RequestTable
from serbench_engine.layers.rows import kernels_for
from serbench_engine.sampling.adjust import forbid_early_stop, penalize
from serbench_engine.sampling.draw import DrawParameters, draw
from serbench_engine.sampling.logprobs import gather_logprobs
from serbench_engine.sampling.uniform import uniforms

_NUMBERS_AT_ONCE: Final = 1 << 20
"""Rows are worked on in groups of about so many scores: tens of MB beside the logits, which the allocator reuses."""


class _Needs(msgspec.Struct, frozen=True, eq=False):
    """What the rows of one batch need beyond the likeliest id; ``serials`` int64[s] tells whether it is that batch."""

    serials: Int64Array
    adjusted: Int64Array
    wanted_logprobs: Int32Array
    some_logprobs: bool

    @staticmethod
    def of(serials: Int64Array, parameters: SamplingArray) -> "_Needs":
        adjusted = (
            (parameters["temperature"] > 0)
            | (parameters["repetition_penalty"] != 1)
            | (parameters["presence_penalty"] != 0)
            | (parameters["frequency_penalty"] != 0)
            | (parameters["min_tokens"] > 0)
        )
        wanted = parameters["num_logprobs"].copy()
        return _Needs(serials, np.flatnonzero(adjusted), wanted, bool((wanted >= 0).any()))


class Sampler:
    """Samples the rows that are due. Within a row: penalties, min_tokens, temperature, top-k, top-p, min-p."""

    def __init__(self, vocab_size: int) -> None:
        self.vocab_size = vocab_size
        self.open()

    def open(self) -> None:
        """A new session or epoch begins: serials may start anew."""
        self._needs = _Needs.of(np.empty(0, np.int64), np.empty(0, SAMPLING_DTYPE))

    def sample(self, logits: torch.Tensor, table: RequestTable, rows: Int32Array) -> tuple[Int32Array, Logprobs | None]:
        """Ids int32[s], FAILED_ROW where a row's logits are not finite, and logprobs if any row asked for them.

        ``logits`` [s, vocab] of any float dtype, on any device, left as they are; ``rows`` int32[s], the table's rows
        that are due. Waits for the device.
        """
        if not len(rows):
            return np.empty(0, np.int32), None
        needs = self._needs_of(table, rows)
        token_ids = _likeliest(logits)
        if len(needs.adjusted):
            self._adjust(logits, table, rows, needs.adjusted, token_ids)
        if not needs.some_logprobs:
            return token_ids, None
        return token_ids, gather_logprobs(logits, token_ids, needs.wanted_logprobs)

    def _needs_of(self, table: RequestTable, rows: Int32Array) -> _Needs:
        serials = table.serial[rows]
        if not np.array_equal(serials, self._needs.serials):
            self._needs = _Needs.of(serials, table.sampling[rows])
        return self._needs

    def _adjust(
        self, logits: torch.Tensor, table: RequestTable, rows: Int32Array, which: Int64Array, token_ids: Int32Array
    ) -> None:
        """Choose again for the rows ``which`` (indices into ``rows``); rows that failed stay so."""
        which = which[token_ids[which] != FAILED_ROW]
        group = max(1, _NUMBERS_AT_ONCE // logits.shape[1])
        for start in range(0, len(which), group):
            part = which[start : start + group]
            scores = logits[torch.from_numpy(part).to(logits.device)].float()
            token_ids[part] = _choose(scores, table, rows[part])


def _choose(scores: torch.Tensor, table: RequestTable, rows: Int32Array) -> Int32Array:
    """Ids int32[n] of rows whose ``scores`` float32[n, vocab] are finite and may be written to."""
    penalize(scores, table, rows)
    forbid_early_stop(scores, table, rows)
    token_ids = _likeliest(scores)
    parameters = table.sampling[rows]
    random = np.flatnonzero((parameters["temperature"] > 0) & (token_ids != FAILED_ROW))
    if len(random):
        own = parameters[random]
        outputs = (table.num_tokens[rows] - table.num_prompt_tokens[rows])[random]
        draws = DrawParameters(
            temperature=own["temperature"].astype(np.float64),
            top_k=own["top_k"].astype(np.int64),
            top_p=own["top_p"].astype(np.float64),
            min_p=own["min_p"].astype(np.float64),
            uniform=uniforms(own["seed"], outputs),
        )
        drawn = draw(scores[torch.from_numpy(random).to(scores.device)], draws)
        token_ids[random] = drawn.cpu().numpy()
    return token_ids


def _likeliest(scores: torch.Tensor) -> Int32Array:
    """The first id of the highest score in each row, int32[n]; FAILED_ROW where that is not finite, or any is NaN."""
    kernels = kernels_for(scores)
    if kernels is None:
        best = scores.max(dim=-1)  # a NaN anywhere in the row comes out as the highest
        chosen = torch.where(best.values.isfinite(), best.indices, FAILED_ROW)
        return chosen.to(torch.int32).cpu().numpy()
    scores = scores.contiguous()
    token_ids = np.empty(len(scores), np.int32)
    kernels.likeliest(scores.data_ptr(), *scores.shape, token_ids.ctypes.data, torch.get_num_threads())
    return token_ids
