"""Makes requests of random token ids with set lengths. It does not know what a model makes of them."""

from collections.abc import Sequence

import numpy as np

from serbench.errors import ExperimentError
from serbench.workload.base import WorkRequest, forced, group_seed
from serbench.workload.spec import LengthRange, Synthetic
from serbench_codecs.plan import Int32Array


class SyntheticWorkload:
    """Uniformly random ids of the vocabulary, ``avoid`` excepted; every group has its own.

    Raises:
        ExperimentError: the longest request doesn't fit ``max_model_len``, or the vocabulary is all ``avoid``.
    """

    def __init__(
        self, spec: Synthetic, *, seed: int, vocab_size: int, avoid: Sequence[int], max_model_len: int
    ) -> None:
        _check_fits(spec, max_model_len)
        self._spec = spec
        self._seed = seed
        self._ids = prompt_ids(vocab_size, avoid)

    def requests(self, group: int) -> list[WorkRequest]:
        """``num_prompts`` requests."""
        rng = np.random.default_rng(group_seed(self._seed, group))
        count = self._spec.num_prompts
        inputs = _lengths(rng, self._spec.input_len, count)
        outputs = _lengths(rng, self._spec.output_len, count)
        ids: Int32Array = self._ids[rng.integers(len(self._ids), size=int(inputs.sum()))]
        prompts = np.split(ids, np.cumsum(inputs)[:-1])
        return [
            WorkRequest(f"request-{i}", prompt, forced(int(tokens)), None, int(tokens))
            for i, (prompt, tokens) in enumerate(zip(prompts, outputs, strict=True))
        ]

    def notes(self) -> list[str]:
        """Nothing is left out."""
        return []


def prompt_ids(vocab_size: int, avoid: Sequence[int]) -> Int32Array:
    """int32[n]: the ids of which random prompts are made.

    Raises:
        ExperimentError: ``avoid`` leaves none.
    """
    ids: Int32Array = np.setdiff1d(np.arange(vocab_size, dtype=np.int32), np.asarray(avoid, dtype=np.int32))
    if not len(ids):
        raise ExperimentError(f"a vocabulary of {vocab_size} ids leaves none for prompts")
    return ids


def _lengths(rng: np.random.Generator, lengths: LengthRange, count: int) -> np.ndarray[tuple[int], np.dtype[np.int64]]:
    return rng.integers(lengths.low, lengths.high + 1, size=count, dtype=np.int64)


def _check_fits(spec: Synthetic, max_model_len: int) -> None:
    longest, output = spec.input_len.high, spec.output_len.high
    if longest >= max_model_len:
        raise ExperimentError(
            f"--input-len {spec.input_len} leaves no room for output within the limit of {max_model_len} tokens"
        )
    if longest + output > max_model_len:
        raise ExperimentError(
            f"--input-len {spec.input_len} and --output-len {spec.output_len} make {longest + output} tokens, over the "
            f"limit of {max_model_len}"
        )
