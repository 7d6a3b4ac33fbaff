"""What can be asked for as a workload, as plain data that is stored with the results. It makes no requests itself."""

import re
from typing import Annotated, Final, Literal, TypeAlias

import msgspec

from serbench.errors import ExperimentError

DEFAULT_OUTPUT_LEN: Final = 32
"""Tokens to produce where neither the user nor the data says it."""

_RANGE: Final = re.compile(r"(-?\d+)(?::(-?\d+))?")
_MAX_LENGTH: Final = 1 << 24

Length: TypeAlias = Annotated[int, msgspec.Meta(ge=1)]


class LengthRange(msgspec.Struct, frozen=True):
    """Lengths in tokens, drawn uniformly from ``low`` … ``high``, both included."""

    low: int
    high: int

    def __post_init__(self) -> None:
        if not (1 <= self.low <= _MAX_LENGTH and 1 <= self.high <= _MAX_LENGTH):
            raise ExperimentError(
                f"length {self} is out of range; write a number from 1 to {_MAX_LENGTH}, or a range such as 64:256"
            )
        if self.low > self.high:
            raise ExperimentError(
                f"length {self} ends below its beginning; write the smaller number first: {self.high}:{self.low}"
            )

    @staticmethod
    def parse(text: str) -> "LengthRange":
        """Read ``128`` or ``64:256``.

        Raises:
            ExperimentError: neither, or out of range.
        """
        match = _RANGE.fullmatch(text.strip())
        if match is None:
            raise ExperimentError(f"length {text!r} is none; write a number of at least 1, or a range such as 64:256")
        return LengthRange(int(match[1]), int(match[2] or match[1]))

    def __str__(self) -> str:
        return str(self.low) if self.low == self.high else f"{self.low}:{self.high}"


class Synthetic(msgspec.Struct, frozen=True, kw_only=True, tag="synthetic", tag_field="kind"):
    """Random token ids of set lengths; output lengths are forced."""

    num_prompts: Length = 32
    input_len: LengthRange = LengthRange(128, 128)
    output_len: LengthRange = LengthRange(DEFAULT_OUTPUT_LEN, DEFAULT_OUTPUT_LEN)

    def __post_init__(self) -> None:
        _at_least_one("num_prompts", self.num_prompts)


class Dataset(msgspec.Struct, frozen=True, kw_only=True, tag="dataset", tag_field="kind"):
    """Requests of a file. ``output_len`` None: as long as the file says. Output lengths are forced.

    ``format``: of formats.FORMATS, None: the one that the content shows. ``strict``: rows that can't be used are an
    error. ``digest`` tells the file's content apart from another's under the same name; it and ``format`` are set when
    the file was looked at.
    """

    path: str
    num_prompts: Length = 32
    output_len: LengthRange | None = None
    digest: str = ""
    format: str | None = None
    strict: bool = False

    def __post_init__(self) -> None:
        _at_least_one("num_prompts", self.num_prompts)


class Prompts(msgspec.Struct, frozen=True, kw_only=True, tag="prompts", tag_field="kind"):
    """Texts given by the user, the same in every repeat; they may end before ``output_len`` tokens.

    ``chat``: each is put into the model's chat template.
    """

    texts: tuple[str, ...]
    output_len: Length = DEFAULT_OUTPUT_LEN
    chat: bool = False

    def __post_init__(self) -> None:
        if not self.texts or not all(self.texts):
            raise ExperimentError("--prompt needs a text that is not empty")
        _at_least_one("output_len", self.output_len)


WorkloadSpec: TypeAlias = Synthetic | Dataset | Prompts


class Arrivals(msgspec.Struct, frozen=True, kw_only=True):
    """When requests arrive: all ``together`` as a repeat begins, at random (``poisson``, ``request_rate`` a second), or
    by the file's own clock (``trace``), on which ``time_scale`` seconds pass in one of the file's.

    ``max_concurrency``: no more than these are with the engine at once; others wait, and their latency counts it.
    """

    kind: Literal["together", "poisson", "trace"] = "together"
    request_rate: float | None = None
    time_scale: float = 1.0
    max_concurrency: int | None = None

    def __post_init__(self) -> None:
        if self.max_concurrency is not None:
            _at_least_one("max_concurrency", self.max_concurrency)
        rate = self.request_rate
        if (self.kind == "poisson") != (rate is not None):
            raise ExperimentError(
                f"arrivals {self.kind} with request_rate {rate}: poisson arrivals, and only they, need one"
            )
        for name, value in (("request_rate", rate), ("time_scale", self.time_scale)):
            if value is not None and not 0 < value < float("inf"):
                raise ExperimentError(f"{name} is {value}; it must be a finite number above 0")
        if self.time_scale != 1 and self.kind != "trace":
            raise ExperimentError(f"time_scale {self.time_scale} scales a trace's clock, and arrivals are {self.kind}")

    def __str__(self) -> str:
        how = {
            "together": "all at once",
            "poisson": f"at random, {self.request_rate:g}/s" if self.request_rate else "",
            "trace": "by the file's clock" + (f" × {self.time_scale:g}" if self.time_scale != 1 else ""),
        }[self.kind]
        return how + (f", at most {self.max_concurrency} at once" if self.max_concurrency else "")


def _at_least_one(name: str, value: int) -> None:
    if value < 1:
        raise ExperimentError(f"{name} is {value}; it must be at least 1")
