"""What changes scores before an id is chosen: penalties for ids that occurred, and stop ids that may not come yet.

It does not know how ids are chosen. Counts are derived from the table's ids at every step: there is nothing to forget.
"""

import numpy as np
import torch

from serbench_codecs.plan import Int32Array, Int64Array
from serbench_codecs.table import RequestTable


def penalize(scores: torch.Tensor, table: RequestTable, rows: Int32Array) -> None:
    """Apply repetition, then frequency and presence penalties to ``scores`` float32[n, vocab] in place.

    A repetition penalty r divides the positive scores of all ids that occurred, prompt included, by r and multiplies
    the negative ones by it (Keskar et al. 2019); the two others subtract ``frequency · count`` and ``presence`` for ids
    that occurred in the output, as in OpenAI's API.
    """
    parameters = table.sampling[rows]
    repeated = np.flatnonzero(parameters["repetition_penalty"] != 1)
    if len(repeated):
        _repetition(scores, table, rows, repeated)
    counted = np.flatnonzero((parameters["presence_penalty"] != 0) | (parameters["frequency_penalty"] != 0))
    if len(counted):
        _occurrence(scores, table, rows, counted)


def forbid_early_stop(scores: torch.Tensor, table: RequestTable, rows: Int32Array) -> None:
    """Set the stop ids of rows that have fewer output tokens than their ``min_tokens`` to -inf, in place."""
    outputs = table.num_tokens[rows] - table.num_prompt_tokens[rows]
    for i in np.flatnonzero(outputs < table.sampling["min_tokens"][rows]).tolist():
        stop_ids = torch.from_numpy(table.stop_ids[rows[i]].astype(np.int64)).to(scores.device)
        scores[i, stop_ids] = -torch.inf


def _repetition(scores: torch.Tensor, table: RequestTable, rows: Int32Array, which: Int64Array) -> None:
    owners, ids = _occurrences(table, rows, which, np.zeros_like(table.num_prompt_tokens))
    penalty = torch.from_numpy(table.sampling["repetition_penalty"][rows][owners]).to(scores.device)
    places = (torch.from_numpy(owners).to(scores.device), torch.from_numpy(ids).to(scores.device))
    before = scores[places]
    scores[places] = torch.where(before < 0, before * penalty, before / penalty)  # an id that repeats writes the same


def _occurrence(scores: torch.Tensor, table: RequestTable, rows: Int32Array, which: Int64Array) -> None:
    owners, ids = _occurrences(table, rows, which, table.num_prompt_tokens)
    vocab = scores.shape[1]
    keys, counts = np.unique(owners * vocab + ids, return_counts=True)
    owners, ids = np.divmod(keys, vocab)
    parameters = table.sampling[rows][owners]
    amount = parameters["frequency_penalty"] * counts.astype(np.float32) + parameters["presence_penalty"]
    places = (torch.from_numpy(owners).to(scores.device), torch.from_numpy(ids).to(scores.device))
    scores[places] -= torch.from_numpy(amount).to(scores.device)


def _occurrences(
    table: RequestTable, rows: Int32Array, which: Int64Array, first: Int32Array
) -> tuple[Int64Array, Int64Array]:
    """(index into ``rows``, id) of every token of the rows ``which`` from position ``first[row]`` on."""
    chosen = rows[which]
    parts = [table.token_ids[row, first[row] : table.num_tokens[row]] for row in chosen.tolist()]
    ids = np.concatenate(parts).astype(np.int64)
    return np.repeat(which, [len(part) for part in parts]), ids
