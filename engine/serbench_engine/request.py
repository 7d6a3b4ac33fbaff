"""What a user asks for and what comes back: sampling parameters, requests, outputs.

It does not know how requests are scheduled or sampled. Names and shapes follow vLLM's offline API where they overlap.
"""

from types import NoneType
from typing import Any, Final, Literal, TypeAlias

import msgspec
import numpy as np
import numpy.typing as npt

from serbench_engine.errors import RequestError
from serbench_engine.token_ids import whole_numbers

FinishReason: TypeAlias = Literal["stop", "length", "abort", "error"]

_MOST: Final = int(np.iinfo(np.int32).max)  # tables hold counts as int32, and numbers as float32
_LARGEST: Final = float(np.finfo(np.float32).max)

_KINDS: Final[tuple[tuple[tuple[str, ...], tuple[type, ...], str], ...]] = (
    (
        ("temperature", "top_p", "min_p", "repetition_penalty", "presence_penalty", "frequency_penalty"),
        (int, float, np.integer, np.floating),
        "a number",
    ),
    (("n", "top_k", "min_tokens"), (int, np.integer), "a whole number"),
    (("seed", "max_tokens", "logprobs"), (int, np.integer, NoneType), "a whole number or None"),
    (("ignore_eos", "include_stop_str_in_output"), (bool, np.bool_), "True or False"),
)


class SamplingParams(msgspec.Struct, frozen=True, kw_only=True):
    """How one request is sampled and when it ends; checked when made.

    ``n``, the outputs of a prompt, is 1; it is here for scripts that say so.
    ``temperature`` 0 is greedy; ``top_k`` 0 (or -1), ``top_p`` 1 and ``min_p`` 0 are off. ``seed``: the same seed
    gives the same tokens whatever else runs; None lets the engine draw one. ``stop`` strings end a request and are
    cut from its text (unless ``include_stop_str_in_output``); ``stop_token_ids`` end it beside the model's
    end-of-text ids, which ``ignore_eos`` switches off. ``max_tokens`` None: up to the model's length. ``logprobs``:
    of the sampled id and the n likeliest.

    Raises:
        RequestError: a value of another type or outside its range, with what it must be.
    """

    n: int = 1
    temperature: float = 1.0
    top_p: float = 1.0
    top_k: int = 0
    min_p: float = 0.0
    repetition_penalty: float = 1.0
    presence_penalty: float = 0.0
    frequency_penalty: float = 0.0
    seed: int | None = None
    max_tokens: int | None = 16
    min_tokens: int = 0
    ignore_eos: bool = False
    stop: tuple[str, ...] = ()
    stop_token_ids: tuple[int, ...] = ()
    include_stop_str_in_output: bool = False
    logprobs: int | None = None

    def __post_init__(self) -> None:
        self._settle_types()
        for name, ok, wanted in (
            ("n", self.n == 1, "1; give a prompt several times for several outputs"),
            ("temperature", 0.0 <= self.temperature <= _LARGEST, f"between 0 and {_LARGEST:g}"),
            ("top_p", 0.0 < self.top_p <= 1.0, "above 0 and at most 1"),
            ("top_k", -1 <= self.top_k <= _MOST, f"between 1 and {_MOST}, or 0 or -1 to switch it off"),
            ("min_p", 0.0 <= self.min_p <= 1.0, "between 0 and 1"),
            ("repetition_penalty", 0.0 < self.repetition_penalty <= _LARGEST, f"above 0 and at most {_LARGEST:g}"),
            ("presence_penalty", -2.0 <= self.presence_penalty <= 2.0, "between -2 and 2"),
            ("frequency_penalty", -2.0 <= self.frequency_penalty <= 2.0, "between -2 and 2"),
            ("max_tokens", self.max_tokens is None or 1 <= self.max_tokens <= _MOST, f"between 1 and {_MOST}, or None"),
            ("min_tokens", 0 <= self.min_tokens <= _MOST, f"between 0 and {_MOST}"),
            ("logprobs", self.logprobs is None or 0 <= self.logprobs <= 100, "between 0 and 100"),
            ("seed", self.seed is None or 0 <= self.seed < 1 << 64, "between 0 and 2^64 - 1"),
            ("stop", all(type(one) is str and one for one in self.stop), "strings that are not empty"),
        ):
            if not ok:
                raise RequestError(f"{name} is {getattr(self, name)!r}; it must be {wanted}")
        if self.max_tokens is not None and self.min_tokens > self.max_tokens:
            raise RequestError(f"min_tokens {self.min_tokens} is above max_tokens {self.max_tokens}")

    def _settle_types(self) -> None:
        """Numbers of numpy become Python's, lists become tuples; anything else of another type is refused."""
        for names, kinds, wanted in _KINDS:
            for name in names:
                value = getattr(self, name)
                if not isinstance(value, kinds) or (isinstance(value, bool) and bool not in kinds):
                    raise RequestError(f"{name} is {value!r}; it must be {wanted}")
                if isinstance(value, int) and value.bit_length() > 64:  # Python compares, but can't show any number
                    raise RequestError(f"{name} is a number of {value.bit_length()} bits; it must be one of at most 64")
                if isinstance(value, np.generic):
                    self._settle(name, value.item())
        stop: Any = self.stop
        self._settle(
            "stop", (stop,) if isinstance(stop, str) else _as_tuple("stop", stop, "a string or a list of them")
        )
        ids = _as_tuple("stop_token_ids", self.stop_token_ids, "a list of token ids")
        self._settle("stop_token_ids", tuple(whole_numbers(ids, "stop_token_ids has").tolist()))

    def _settle(self, name: str, value: object) -> None:
        msgspec.structs.force_setattr(self, name, value)


def _as_tuple(name: str, value: object, wanted: str) -> tuple[Any, ...]:
    if value is None:  # as vLLM has it by default
        return ()
    if not isinstance(value, list | tuple | set | frozenset | np.ndarray):
        raise RequestError(f"{name} is {value!r}; it must be {wanted}")
    return tuple(value)


class Logprob(msgspec.Struct, frozen=True):
    """One id's log-probability (natural) and rank (1 is the likeliest)."""

    logprob: float
    rank: int
    decoded_token: str | None = None


class CompletionOutput(msgspec.Struct, frozen=True, kw_only=True):
    """What one request produced. ``stop_reason``: the stop string or id that ended it, None for end of text."""

    index: int
    text: str
    token_ids: list[int]
    finish_reason: FinishReason | None
    stop_reason: str | int | None = None
    cumulative_logprob: float | None = None
    logprobs: list[dict[int, Logprob]] | None = None


class RequestTimes(msgspec.Struct, frozen=True):
    """CLOCK_MONOTONIC in ns: arrival, first and last token (0 where there was none)."""

    arrival_ns: int
    first_token_ns: int
    last_token_ns: int


class RequestOutput(msgspec.Struct, frozen=True, kw_only=True):
    """A finished request, in the shape of vLLM's offline API."""

    request_id: str
    prompt: str | None
    prompt_token_ids: list[int]
    outputs: list[CompletionOutput]
    finished: bool
    times: RequestTimes


class FinishedRequest(msgspec.Struct, frozen=True, kw_only=True):
    """What the engine knows of a request that ended. ``output_token_ids`` int32[n]."""

    request_id: str
    prompt_token_ids: npt.NDArray[np.int32]
    output_token_ids: npt.NDArray[np.int32]
    finish_reason: FinishReason
    stop_reason: str | int | None
    times: RequestTimes
    num_preemptions: int
    num_cached_tokens: int
    logprobs: list[dict[int, Logprob]] | None = None
