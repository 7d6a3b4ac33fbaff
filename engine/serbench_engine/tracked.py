"""A request as the scheduler tracks it, in the queue or in a row, until it ends.

It does not know rows' columns (the table holds them while it runs) nor how text is made of ids.
"""

from typing import Protocol

import numpy as np

from serbench_codecs.plan import SAMPLING_DTYPE, Int32Array, SamplingArray
from serbench_engine.blocks import chain_hash
from serbench_engine.request import FinishedRequest, FinishReason, Logprob, RequestTimes, SamplingParams


class OutputWatch(Protocol):
    """Looks at each new id of a request that wants more than the vectorised stop checks."""

    def push(self, token_id: int) -> str | int | None:
        """Take the next id; the stop string or id if the request ends with it."""
        ...


class TrackedRequest:
    """Mutable: what must outlive a row. ``token_ids`` int32[n] is current only while the request holds no row."""

    def __init__(
        self,
        request_id: str,
        prompt_token_ids: Int32Array,
        params: SamplingParams,
        *,
        seed: int,
        stop_ids: Int32Array,
        length_limit: int,
        arrival_ns: int,
        watch: OutputWatch | None,
    ) -> None:
        self.request_id = request_id
        self.token_ids = prompt_token_ids
        self.num_prompt_tokens = len(prompt_token_ids)
        self.params = params
        self.stop_ids = stop_ids
        self.length_limit = length_limit
        self.sampling = sampling_record(params, seed)
        self.watch = watch
        self.arrival_ns = arrival_ns
        self.first_token_ns = 0
        self.last_token_ns = 0
        self.serial = 0
        self.num_preemptions = 0
        self.num_cached_tokens = 0
        self.logprobs: list[dict[int, Logprob]] | None = None if params.logprobs is None else []
        self._hashes: list[bytes] = []

    def block_hashes(self, token_ids: Int32Array, block_size: int, count: int) -> list[bytes]:
        """The chained hashes of the first ``count`` full blocks of ``token_ids``; computed once."""
        for i in range(len(self._hashes), count):
            parent = self._hashes[i - 1] if i else b""
            self._hashes.append(chain_hash(parent, token_ids[i * block_size : (i + 1) * block_size]))
        return self._hashes[:count]

    def finished(self, reason: FinishReason, stop_reason: str | int | None) -> FinishedRequest:
        """The end of it; ``token_ids`` must be current."""
        prompt = self.num_prompt_tokens
        return FinishedRequest(
            request_id=self.request_id,
            prompt_token_ids=self.token_ids[:prompt],
            output_token_ids=self.token_ids[prompt:],
            finish_reason=reason,
            stop_reason=stop_reason,
            times=RequestTimes(self.arrival_ns, self.first_token_ns, self.last_token_ns),
            num_preemptions=self.num_preemptions,
            num_cached_tokens=self.num_cached_tokens,
            logprobs=self.logprobs,
        )


def sampling_record(params: SamplingParams, seed: int) -> SamplingArray:
    """The worker's part of the parameters, SAMPLING_DTYPE[1]."""
    record = np.zeros(1, dtype=SAMPLING_DTYPE)
    record["seed"] = seed
    for name in ("temperature", "top_p", "min_p", "repetition_penalty", "presence_penalty", "frequency_penalty"):
        record[name] = getattr(params, name)
    for name in ("top_p", "repetition_penalty"):  # above 0 in float64 may be 0 in float32
        record[name] = np.maximum(record[name], np.finfo(np.float32).tiny)
    record["top_k"] = max(params.top_k, 0)
    record["min_tokens"] = params.min_tokens
    record["num_logprobs"] = -1 if params.logprobs is None else params.logprobs
    return record
