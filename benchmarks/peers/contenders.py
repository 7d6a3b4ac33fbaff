"""The engines whose throughput is compared, and how each is started. It does not know how they are measured."""

import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Final, TypeAlias, TypeVar

import click
import msgspec

from benchmarks.peers.children import Command
from benchmarks.peers.peer_environment import vllm_python, vllm_variables
from serbench_engine.threads import SHORT_SPIN

Thing = TypeVar("Thing")


class Serving(msgspec.Struct, frozen=True):
    """What they are started for: weights, the longest request, and how many prompts there are at once."""

    folder: Path
    max_model_len: int
    num_prompts: int


Start: TypeAlias = Callable[[Serving], Command]


def _serbench(executor: str) -> Start:
    def start(serving: Serving) -> Command:
        options = (str(serving.folder), executor, str(serving.max_model_len), str(serving.num_prompts))
        return Command(python=sys.executable, module="serbench_llm", options=options)

    return start


def _vllm(*, eager: bool, multiprocess: bool) -> Start:
    def start(serving: Serving) -> Command:
        options = (str(serving.folder), str(serving.max_model_len), *(("--eager",) if eager else ()))
        python, variables = vllm_python(), vllm_variables(multiprocess=multiprocess)
        return Command(python=python, module="vllm_llm", options=options, variables=variables)

    return start


def _transformers(serving: Serving) -> Command:
    # Waiting threads that spin cost it most of its speed, as they would us.
    variables = dict((("OMP_WAIT_POLICY", "passive"), SHORT_SPIN))
    return Command(
        python=sys.executable, module="transformers_llm", options=(str(serving.folder),), variables=variables
    )


OURS: Final[dict[str, Start]] = {
    "serbench inproc": _serbench("inproc"),
    "serbench mp": _serbench("mp"),
}
VLLM: Final[dict[str, Start]] = {
    "vllm eager": _vllm(eager=True, multiprocess=False),
    "vllm eager mp": _vllm(eager=True, multiprocess=True),
    "vllm compiled": _vllm(eager=False, multiprocess=False),
    "vllm compiled mp": _vllm(eager=False, multiprocess=True),
}
"""Its settings that are worth trying on a CPU; which is best differs between models, shapes and machines."""

TRANSFORMERS: Final[dict[str, Start]] = {"transformers": _transformers}
"""Static batches; the library's continuous batching was slower."""


def chosen(what: str, table: Mapping[str, Thing], names: str) -> dict[str, Thing]:
    """Those of the table, which holds ``what``, that are named, with commas between.

    Raises:
        click.UsageError: a name that isn't there.
    """
    listed = [name for name in names.split(",") if name]
    for name in listed:
        if name not in table:
            raise click.UsageError(f"no {what} {name!r}; there are: {', '.join(table)}")
    return {name: table[name] for name in listed}
