"""Says in words what two experiments differ in. It does not know which differences matter."""

from collections.abc import Iterator, Sequence
from typing import Final

import msgspec

from serbench.experiment import Experiment
from serbench.workload.spec import Dataset, Prompts, Synthetic

PATH: Final = ("transport", "wait", "executor")
"""The fields that say which way payloads go."""

_LONGEST: Final = 40
"""Letters of a text that are shown."""


def in_words(value: object) -> str:
    """A value of an experiment as a person would write it."""
    match value:
        case None:
            return "none"
        case bool():
            return "on" if value else "off"
        case Synthetic() | Dataset() | Prompts():
            return str(value.__struct_config__.tag)
        case tuple():
            return ", ".join(_quoted(str(one)) for one in value)
    return str(value)


def path_apart(experiments: Sequence[Experiment]) -> list[str]:
    """Fields of PATH in which the experiments differ; of the executor only what the transport doesn't tell."""
    varying = [name for name in PATH if len({getattr(one, name) for one in experiments}) > 1]
    executors = {(one.transport, one.executor) for one in experiments}
    told = len({one.transport for one in experiments}) == len(executors)
    return [name for name in varying if not (told and name == "executor")]


def differing(mine: msgspec.Struct, theirs: msgspec.Struct) -> Iterator[tuple[str, object, object]]:
    """Name and both values of each field that differs; of two workloads of a kind, of their fields."""
    for name in mine.__struct_fields__:
        one, other = getattr(mine, name), getattr(theirs, name)
        if isinstance(one, Synthetic | Dataset | Prompts) and type(one) is type(other):
            yield from differing(one, other)
        elif one != other:
            yield name, one, other


def both(mine: object, theirs: object) -> str:
    """``32 and 64``; of two workloads of a kind ``num_prompts 32 and 64, output_len 8 and 9``."""
    if isinstance(mine, Synthetic | Dataset | Prompts) and type(mine) is type(theirs):
        return ", ".join(f"{name} {both(one, other)}" for name, one, other in differing(mine, theirs))
    return f"{in_words(mine)} and {in_words(theirs)}"


def _quoted(text: str) -> str:
    line = " ".join(text.split())
    return f'"{line}"' if len(line) <= _LONGEST else f'"{line[: _LONGEST - 1]}…"'
