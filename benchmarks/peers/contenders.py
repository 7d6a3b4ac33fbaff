"""The engines whose throughput is compared, and how each is started. It does not know how they are measured."""

import sys
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Final, TypeAlias, TypeVar

import click
import msgspec

from benchmarks.peers.children import Command
from benchmarks.peers.models import folder_of, head_dim, kv_cache_gib, longest
from benchmarks.peers.peer_environment import vllm_python, vllm_variables
from serbench_engine.native.library import native_status
from serbench_engine.threads import SHORT_SPIN

Thing = TypeVar("Thing")


class Serving(msgspec.Struct, frozen=True):
    """What they are started for: weights, the longest request, how many prompts there are at once, and what KV cache
    holds them all.
    """

    folder: Path
    max_model_len: int
    num_prompts: int
    kv_cache_gib: int


def serving_of(model: str, max_model_len: int, num_prompts: int) -> Serving:
    """Its weights, and room for all prompts at once.

    Raises:
        click.UsageError: requests longer than the model's. ModelError: there are no weights.
    """
    if max_model_len > (most := longest(model)):
        raise click.UsageError(f"requests of {max_model_len} tokens are too long for {model}, which takes {most}")
    return Serving(folder_of(model), max_model_len, num_prompts, kv_cache_gib(model, num_prompts, max_model_len))


def without_kernels(models: Iterable[str]) -> str:
    """Why serbench has no C++ kernels for one of the models; empty if it has them for all."""
    return next(filter(None, (native_status("bfloat16", head_dim(model)) for model in models)), "")


def kernels_warning(without: str) -> list[str]:
    """A line if serbench ran without its C++ kernels, for the reason given."""
    return [f"serbench ran without its C++ kernels, so slower: {without}"] if without else []


Start: TypeAlias = Callable[[Serving], Command]


def _serbench(executor: str) -> Start:
    def start(serving: Serving) -> Command:
        options = (str(serving.folder), executor, str(serving.max_model_len), str(serving.num_prompts))
        return Command(python=sys.executable, module="serbench_llm", options=options)

    return start


def _vllm(*, eager: bool, multiprocess: bool) -> Start:
    def start(serving: Serving) -> Command:
        numbers = (str(serving.max_model_len), str(serving.num_prompts))
        options = (str(serving.folder), *numbers, *(("--eager",) if eager else ()))
        variables = vllm_variables(multiprocess=multiprocess, kv_cache_gib=serving.kv_cache_gib)
        return Command(python=vllm_python(), module="vllm_llm", options=options, variables=variables)

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


def chosen(what: str, table: Mapping[str, Thing], names: Iterable[str]) -> dict[str, Thing]:
    """Those of the table, which holds ``what``, that are named.

    Raises:
        click.UsageError: a name that isn't there.
    """
    listed = list(names)
    for name in listed:
        if name not in table:
            raise click.UsageError(f"no {what} {name!r}; there are: {', '.join(table)}")
    return {name: table[name] for name in listed}
