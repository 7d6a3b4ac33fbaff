"""What can be asked for as a workload, as plain data that is stored with the results. It makes no requests itself."""

import re
from typing import Annotated, Final, TypeAlias

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
        if not 1 <= self.low <= self.high <= _MAX_LENGTH:
            raise ExperimentError(f"length {self} is none: give a number of at least 1, or a range such as 64:256")

    @staticmethod
    def parse(text: str) -> "LengthRange":
        """Read ``128`` or ``64:256``.

        Raises:
            ExperimentError: neither, or out of range.
        """
        match = _RANGE.fullmatch(text.strip())
        if match is None:
            raise ExperimentError(f"length {text!r} is none: give a number of at least 1, or a range such as 64:256")
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
    """Prompts drawn from a file. ``output_len`` None: as long as the file's own answer. Output lengths are forced.

    ``digest`` tells the file's content apart from another's under the same name; it is set when the file was read.
    """

    path: str
    num_prompts: Length = 32
    output_len: LengthRange | None = None
    digest: str = ""

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


def _at_least_one(name: str, value: int) -> None:
    if value < 1:
        raise ExperimentError(f"{name} is {value}; it must be at least 1")
