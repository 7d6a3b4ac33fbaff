"""Measures the time from command to first token, serbench beside vLLM, on a warm disk.

It does not know how each completes a prompt (…_llm.py). Each round starts every contender anew, in balanced order, asks
it for one token, and ends it; a round before the first, not counted, warms the disk and both engines' caches of
compiled code. Those called cold have an empty cache each time.

    SERBENCH_PEERS=… python -m benchmarks.peers.startup [--quick]
"""

import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from statistics import median
from typing import Final

import click
import msgspec

from benchmarks.peers.children import Children, Command
from benchmarks.peers.contenders import OURS, VLLM, Start, chosen, kernels_warning, serving_of, without_kernels
from benchmarks.peers.models import MODELS
from benchmarks.peers.script import Script, measure_and_tell, quick_option
from benchmarks.peers.tables import markdown
from serbench.cli import ranges
from serbench.cli.comma_separated import Names

TIMEOUT_S: Final = 300.0
MAX_MODEL_LEN: Final = 1024
NUM_PROMPTS: Final = 64
COLD: Final[dict[str, Callable[[str], dict[str, str]]]] = {
    "serbench mp cold": lambda cache: {"XDG_CACHE_HOME": cache},
    "vllm compiled cold": lambda cache: {"VLLM_CACHE_ROOT": cache, "TORCHINDUCTOR_CACHE_DIR": f"{cache}/inductor"},
}
"""Nothing that they compiled earlier is there: variables for an empty cache."""

STARTS: Final[dict[str, Start]] = {
    **OURS,
    **VLLM,
    **{name: {**OURS, **VLLM}[name.removesuffix(" cold")] for name in COLD},
}
QUESTION: Final = {"prompts": [list(range(100, 132))], "output_len": 1}
QUICK: Final = ("serbench inproc", "serbench mp", "vllm eager", "vllm compiled")


@click.command(cls=Script)
@click.option("--model", type=click.Choice(MODELS), default=MODELS[0], show_default=True)
@click.option("--rounds", type=ranges.PASSES, default=4, show_default=True)
@click.option("--engines", type=Names(), default=",".join(STARTS), show_default=True)
@quick_option("2 rounds, and vLLM in one process only.", rounds=2, engines=",".join(QUICK))
def main(model: str, rounds: int, engines: tuple[str, ...]) -> None:
    """Compare how long it takes from command to first token."""
    starts = chosen("engine", STARTS, engines)
    serving = serving_of(model, MAX_MODEL_LEN, NUM_PROMPTS)
    commands = {name: start(serving) for name, start in starts.items()}
    seconds: list[dict[str, float]] = []
    measure_and_tell(
        lambda: measure(commands, rounds, seconds),
        lambda: report(model, seconds),
        warnings=kernels_warning(without_kernels([model])),
    )


def measure(commands: Mapping[str, Command], rounds: int, seconds: list[dict[str, float]]) -> None:
    """All rounds, after one that is thrown away; ``seconds`` gets what everybody took in each that is complete.

    Raises:
        ChildError: one failed.
    """
    with Children() as children:
        for number in range(-1, rounds):
            taken = {}
            for name in commands if number % 2 else reversed(list(commands)):
                taken[name] = time_to_first_token(children, name, commands[name])
                print(f"round {number}: {name} {taken[name]:.1f} s", file=sys.stderr)
            if number >= 0:
                seconds.append({name: taken[name] for name in commands})


def report(model: str, seconds: list[dict[str, float]]) -> str:
    """A table of medians and of every round."""
    if not seconds:
        return "no round was completed"
    rows = []
    for name in seconds[0]:
        each = [taken[name] for taken in seconds]
        rows.append([name, f"{median(each):.1f}", " ".join(f"{one:.1f}" for one in each)])
    return markdown((f"{model}, command to first token", "median s", "each s"), rows)


def time_to_first_token(children: Children, name: str, command: Command) -> float:
    """In s, from before the process is made to after it has said the token's id.

    Raises:
        ChildError: it failed.
    """
    with _cache(name, command) as ready:
        begun_s = time.monotonic()
        child = children.start(name, ready)
        try:
            child.ask(QUESTION, TIMEOUT_S)
            return time.monotonic() - begun_s
        finally:
            child.close()


@contextmanager
def _cache(name: str, command: Command) -> Iterator[Command]:
    """The command; where nothing is to be cached, with an empty cache that goes away with the block."""
    if name not in COLD:
        yield command
        return
    with tempfile.TemporaryDirectory() as cache:
        yield msgspec.structs.replace(command, variables={**command.variables, **COLD[name](cache)})


if __name__ == "__main__":
    main()
