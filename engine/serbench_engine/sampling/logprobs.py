"""Log-probabilities of sampled ids and of the likeliest ones, from the model's own scores.

It does not know penalties or temperature: what is reported is what the model said.
"""

import numpy as np
import torch

from serbench_codecs.plan import Float32Array, Int32Array, Int64Array, Logprobs


def gather_logprobs(logits: torch.Tensor, token_ids: Int32Array, wanted: Int32Array) -> Logprobs:
    """Logprobs of rows with ``wanted`` >= 0: of the sampled id, then of the ``wanted`` likeliest, the sampled or not.

    ``logits`` [s, vocab]; ``token_ids`` int32[s], below 0 for rows that failed, which get no entry;
    ``wanted`` int32[s].
    """
    wanted = np.minimum(wanted, logits.shape[1]).astype(np.int32)
    counts = np.where((wanted >= 0) & (token_ids >= 0), wanted + 1, 0).astype(np.int32)
    ends = np.cumsum(counts)
    ids, ranks = np.empty(ends[-1], np.int32), np.empty(ends[-1], np.int32)
    values = np.empty(ends[-1], np.float32)
    # One number at a time: which of several equally likely ids topk shows may depend on how many are asked for.
    for count in np.unique(counts[counts > 0]).tolist():
        which = np.flatnonzero(counts == count)
        places = ((ends - counts)[which, None] + np.arange(count)).ravel()
        ids[places], values[places], ranks[places] = _entries(logits, which, token_ids[which], count - 1)
    return Logprobs(counts, ids, values, ranks)


def _entries(
    logits: torch.Tensor, which: Int64Array, token_ids: Int32Array, likeliest: int
) -> tuple[Int32Array, Float32Array, Int32Array]:
    """Ids, values and ranks of the rows ``which``, ``1 + likeliest`` entries each, flattened."""
    chosen = torch.from_numpy(token_ids.astype(np.int64)).to(logits.device)[:, None]
    values = torch.log_softmax(logits[torch.from_numpy(which).to(logits.device)].float(), dim=-1)
    own = values.gather(1, chosen)
    rank = (values > own).sum(1, keepdim=True) + 1
    top = values.topk(likeliest, dim=1)
    places = torch.arange(1, likeliest + 1, device=logits.device).expand(len(which), likeliest)
    columns = ((chosen, top.indices), (own, top.values), (rank, places))
    ids, logprobs, ranks = (torch.cat(pair, dim=1).cpu().numpy().ravel() for pair in columns)
    return ids.astype(np.int32), logprobs, ranks.astype(np.int32)
