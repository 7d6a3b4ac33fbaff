"""Measures the time from command to first token, serbench beside vLLM, on a warm disk.

It does not know how each completes a prompt (…_llm.py). Each round starts every contender anew, in balanced order, asks
it for one token, and ends it; a round before the first warms the disk and vLLM's cache of compiled code.

    SERBENCH_PEERS=… python -m benchmarks.peers.startup [--quick]
"""

import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from statistics import median
from typing import Final

import click
import msgspec

from benchmarks.peers.children import ChildError, Children, Command
from benchmarks.peers.contenders import OURS, VLLM, Serving, chosen
from benchmarks.peers.models import MODELS, folder_of
from benchmarks.peers.tables import markdown

TIMEOUT_S: Final = 300.0
MAX_MODEL_LEN: Final = 1024
NUM_PROMPTS: Final = 64
COLD: Final = "vllm compiled cold"
"""Nothing that it compiled earlier is there."""

QUESTION: Final = {"prompts": [list(range(100, 132))], "output_len": 1}
QUICK: Final = ("serbench inproc", "serbench mp", "vllm eager", "vllm compiled")


@click.command()
@click.option("--model", type=click.Choice(MODELS), default=MODELS[0], show_default=True)
@click.option("--rounds", default=4, show_default=True)
@click.option("--engines", default=",".join((*OURS, *VLLM, COLD)), show_default=True)
@click.option("--quick", is_flag=True, help="2 rounds, and vLLM in one process only.")
def main(model: str, rounds: int, engines: str, quick: bool) -> None:
    """Compare how long it takes from command to first token."""
    serving = Serving(folder_of(model), MAX_MODEL_LEN, NUM_PROMPTS)
    starts = {**OURS, **VLLM, COLD: VLLM["vllm compiled"]}
    names = list(chosen("engine", starts, ",".join(QUICK) if quick else engines))
    commands = {name: starts[name](serving) for name in names}
    seconds: dict[str, list[float]] = {name: [] for name in names}
    try:
        with Children() as children:
            for number in range(-1, 2 if quick else rounds):
                for name in names if number % 2 else reversed(names):
                    taken = time_to_first_token(children, name, commands[name])
                    print(f"round {number}: {name} {taken:.1f} s", file=sys.stderr)
                    if number >= 0:
                        seconds[name].append(taken)
    except ChildError as error:
        raise click.ClickException(str(error)) from None
    rows = [[name, f"{median(taken):.1f}", " ".join(f"{one:.1f}" for one in taken)] for name, taken in seconds.items()]
    print(markdown((f"{model}, command to first token", "median s", "each s"), rows))


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
    if name != COLD:
        yield command
        return
    with tempfile.TemporaryDirectory() as cache:
        emptied = {"VLLM_CACHE_ROOT": cache, "TORCHINDUCTOR_CACHE_DIR": f"{cache}/inductor"}
        yield msgspec.structs.replace(command, variables={**command.variables, **emptied})


if __name__ == "__main__":
    main()
