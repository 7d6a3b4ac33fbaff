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
from pathlib import Path
from statistics import median
from typing import Final

import click
import msgspec

from benchmarks.peers.children import Child, ChildError, Command
from benchmarks.peers.contenders import OURS, VLLM, Serving
from benchmarks.peers.models import MODELS, folder_of
from benchmarks.peers.tables import markdown

TIMEOUT_S: Final = 300.0
MAX_MODEL_LEN: Final = 1024
NUM_PROMPTS: Final = 64
COLD: Final = "vllm compiled, nothing cached"
QUESTION: Final = {"prompts": [list(range(100, 132))], "output_len": 1}
QUICK: Final = ("serbench inproc", "serbench mp", "vllm eager", "vllm compiled")


@click.command()
@click.option("--model", type=click.Choice(MODELS), default=MODELS[0], show_default=True)
@click.option("--rounds", default=4, show_default=True)
@click.option("--quick", is_flag=True, help="2 rounds, and vLLM in one process only.")
def main(model: str, rounds: int, quick: bool) -> None:
    """Compare how long it takes from command to first token."""
    serving = Serving(folder_of(model), MAX_MODEL_LEN, NUM_PROMPTS)
    starts = {**OURS, **VLLM}
    names = QUICK if quick else (*starts, COLD)
    commands = {name: starts["vllm compiled" if name == COLD else name](serving) for name in names}
    seconds: dict[str, list[float]] = {name: [] for name in names}
    try:
        for number in range(-1, 2 if quick else rounds):
            for name in names if number % 2 else reversed(names):
                taken = time_to_first_token(name, commands[name])
                print(f"round {number}: {name} {taken:.1f} s", file=sys.stderr)
                if number >= 0:
                    seconds[name].append(taken)
    except ChildError as error:
        raise click.ClickException(str(error)) from None
    rows = [[name, f"{median(taken):.1f}", " ".join(f"{one:.1f}" for one in taken)] for name, taken in seconds.items()]
    print(markdown((f"{model}, command to first token", "median s", "each s"), rows))


def time_to_first_token(name: str, command: Command) -> float:
    """In s, from before the process is made to after it has said the token's id.

    Raises:
        ChildError: it failed.
    """
    with tempfile.TemporaryDirectory() as logs, _cache(name, command) as command:
        begun_s = time.monotonic()
        child = Child(name, command, Path(logs))
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
