"""Draws ids by temperature, top-k, top-p and min-p in integer weights, so that a row's id depends on that row alone.

It does not know tables, seeds or penalties: it is given scores, parameters and one uniform number a row.

A row's weights are ``floor(2^40 · exp((x - max x) / temperature))``: integers, whose sums are exact in any order.
Padding, batch mates, the width of a reduction and the device therefore can't change what is kept or drawn, and every
truncation is a threshold on the weight: ties are kept or dropped together. An id that is 2^40 times less likely than
the likeliest one is never drawn.
"""

from typing import Final

import msgspec
import numpy as np
import numpy.typing as npt
import torch

_SCALE: Final = 2.0**40
_CANDIDATES: Final = 1024


class DrawParameters(msgspec.Struct, frozen=True, eq=False):
    """How n rows are drawn: ``temperature`` float64[n] above 0; ``top_k`` int64[n], 0 is off; ``top_p`` float64[n],
    1 is off; ``min_p`` float64[n], 0 is off; ``uniform`` float64[n] in [0, 1)."""

    temperature: npt.NDArray[np.float64]
    top_k: npt.NDArray[np.int64]
    top_p: npt.NDArray[np.float64]
    min_p: npt.NDArray[np.float64]
    uniform: npt.NDArray[np.float64]

    def part(self, which: npt.NDArray[np.int64] | slice) -> "DrawParameters":
        """Those of some rows."""
        return DrawParameters(
            self.temperature[which], self.top_k[which], self.top_p[which], self.min_p[which], self.uniform[which]
        )


def draw(scores: torch.Tensor, parameters: DrawParameters) -> torch.Tensor:
    """One id a row by its inverse distribution function: int64[n] from scores [n, vocab] whose maxima are finite."""
    weights = truncate(integer_weights(scores, parameters.temperature), parameters)
    sums = weights.cumsum(1)  # [n, vocab]
    total = sums[:, -1]
    uniform = torch.from_numpy(parameters.uniform).to(scores.device)
    target = torch.minimum((uniform * total.double()).long(), total - 1)  # the product may round up to the total
    return torch.searchsorted(sums, target[:, None], right=True)[:, 0]


def integer_weights(scores: torch.Tensor, temperature: npt.NDArray[np.float64]) -> torch.Tensor:
    """Probabilities up to a factor, as integers of at most 2^40: int64[n, vocab]; the likeliest id has exactly 2^40."""
    wide = scores.double()
    wide = (wide - wide.amax(1, keepdim=True)) / torch.from_numpy(temperature).to(scores.device)[:, None]
    return wide.exp_().mul_(_SCALE).long()


def truncate(weights: torch.Tensor, parameters: DrawParameters) -> torch.Tensor:
    """Set to 0 what top-k, then top-p of what is left, then min-p exclude; the order is the transformers library's."""
    if not (parameters.top_k.any() or (parameters.top_p < 1).any() or parameters.min_p.any()):
        return weights
    keep_from = torch.from_numpy(np.ceil(parameters.min_p * _SCALE).astype(np.int64)).to(weights.device)
    ranked = np.flatnonzero((parameters.top_k > 0) | (parameters.top_p < 1))
    if len(ranked):
        rows = torch.from_numpy(ranked).to(weights.device)
        own = parameters.part(ranked)
        keep_from[rows] = torch.maximum(keep_from[rows], _smallest_kept(weights[rows], own.top_k, own.top_p))
    return weights.masked_fill_(weights < keep_from[:, None], 0)


def _smallest_kept(weights: torch.Tensor, top_k: npt.NDArray[np.int64], top_p: npt.NDArray[np.float64]) -> torch.Tensor:
    """The smallest weight that top-k and top-p keep, int64[n].

    Looks at the likeliest ids first, and at all of them only where those fall short.
    """
    vocab = weights.shape[1]
    top_k = np.where((top_k > 0) & (top_k < vocab), top_k, vocab)
    limited = top_k[top_k < vocab]
    width = min(vocab, max(_CANDIDATES, int(limited.max()) if len(limited) else 0))
    last, complete = _nucleus(weights, top_k, top_p, width)
    if not complete.all():
        rest = torch.from_numpy(np.flatnonzero(~complete)).to(weights.device)
        last[rest] = _nucleus(weights[rest], top_k[~complete], top_p[~complete], vocab)[0]
    return last


def _nucleus(
    weights: torch.Tensor, top_k: npt.NDArray[np.int64], top_p: npt.NDArray[np.float64], width: int
) -> tuple[torch.Tensor, npt.NDArray[np.bool_]]:
    """The smallest weight kept among the ``width`` likeliest ids of each row, and whether no other can be kept."""
    vocab = weights.shape[1]
    ranked = weights.topk(width, dim=1).values  # [n, width], falling
    limited = torch.from_numpy(top_k < vocab).to(weights.device)
    places = torch.from_numpy(np.minimum(top_k, width) - 1).to(weights.device)
    kth = torch.where(limited, ranked.gather(1, places[:, None])[:, 0], 0)
    total = weights.masked_fill(weights < kth[:, None], 0).sum(1)
    enough = torch.from_numpy(top_p).to(weights.device) * total.double()
    above = ranked.cumsum(1) - ranked  # the weight of the likelier ids
    kept = (ranked >= kth[:, None]) & (above.double() < enough[:, None])
    count = kept.sum(1)  # at least 1: nothing is above the first
    last = ranked.gather(1, count[:, None] - 1)[:, 0]
    complete = (count < width) | limited | (width == vocab)
    return last, complete.cpu().numpy()
