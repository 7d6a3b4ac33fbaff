"""Measures a steady decode step outside the model: vLLM's scheduler and queue beside serbench's whole host path.

It does not know how either is measured (vllm_host.py, serbench_host.py). Both take turns, A B B A, at every batch, in
processes that are stopped while the other's turn lasts. docs/peers.md tells what is compared with what.

    SERBENCH_PEERS=… python -m benchmarks.peers.host_path [--quick]
"""

import itertools
import sys
from pathlib import Path
from statistics import median
from typing import Any, Final

import click
import msgspec

from benchmarks.peers.children import Child, Children, Command
from benchmarks.peers.models import folder_of
from benchmarks.peers.peer_environment import vllm_python, vllm_variables, vllm_versions
from benchmarks.peers.script import Script, json_option, measure_and_tell, quick_option
from benchmarks.peers.tables import as_part, markdown
from serbench.cli import ranges
from serbench.cli.comma_separated import Numbers
from serbench.environment import Environment, describe_environment
from serbench.experiment import Experiment, settled
from serbench.interleave import balanced_order
from serbench.report.figures import counted
from serbench.stats import judge

BATCHES: Final = "1,16,64,256,1024"
CONTEXTS: Final = ranges.Whole(16, 1 << 24)
"""Prompts differ by up to 15 tokens, and none is empty."""

TIMEOUT_S: Final = 120.0
OURS, PEER = "serbench", "vllm"


class Figures(msgspec.Struct, frozen=True):
    """What one contender said at one batch in one round; ``foreign_cores``: cores that other programs kept busy."""

    contender: str
    batch: int
    round: int
    said: dict[str, Any]
    foreign_cores: float


class Measured(msgspec.Struct, frozen=True, kw_only=True):
    """What was said in complete rounds, ``serbench/peers-host-path/2``.

    ``environment`` has the versions of serbench and its packages, ``vllm_environment`` those of vLLM's own.
    ``settings``: by contender, how its process was started.
    """

    schema: str = "serbench/peers-host-path/2"
    environment: Environment
    vllm_environment: dict[str, str | None]
    settings: dict[str, Command]
    batches: tuple[int, ...]
    context: int
    steps: int
    codec: str
    rounds: int
    offline_ids: bool
    figures: list[Figures]

    def of(self, contender: str, batch: int, *names: str) -> list[float]:
        """The sum of the named figures, by round."""
        those = (one for one in self.figures if one.contender == contender and one.batch == batch)
        return [sum(one.said[name] for name in names) for one in sorted(those, key=lambda one: one.round)]


@click.command(cls=Script)
@click.option("--batches", type=Numbers(ranges.ROWS), default=BATCHES, show_default=True, help="Requests that decode.")
@click.option("--context", type=CONTEXTS, default=512, show_default=True, help="Tokens of each.")
@click.option("--steps", type=ranges.DECODE_STEPS, default=64, show_default=True, help="Steps a turn.")
@click.option("--rounds", type=ranges.PASSES, default=8, show_default=True, help="Turns of each at each batch.")
@click.option("--codec", default="columnar", show_default=True, help="serbench's.")
@click.option("--offline-ids", is_flag=True, help="vLLM's request ids as its LLM class makes them, not its server.")
@quick_option("4 rounds of 32 steps.", rounds=4, steps=32)
@json_option
def main(
    batches: tuple[int, ...],
    context: int,
    steps: int,
    rounds: int,
    codec: str,
    offline_ids: bool,
    path: Path | None,
) -> None:
    """Compare the host's part of a steady decode step with vLLM's, interleaved in one run."""
    settled(Experiment(model="sim", codec=codec, executor="mp", transport="shm"))  # a codec that can't be is told now
    measured = Measured(
        environment=describe_environment(),
        vllm_environment=vllm_versions(),
        settings=commands(offline_ids=offline_ids),
        batches=batches,
        context=context,
        steps=steps,
        codec=codec,
        rounds=rounds,
        offline_ids=offline_ids,
        figures=[],
    )
    measure_and_tell(
        lambda: measure(measured),
        lambda: report(measured),
        lambda: msgspec.json.format(msgspec.json.encode(measured)) + b"\n",
        path,
    )


def measure(measured: Measured) -> None:
    """All rounds, after one at the smallest batch that is thrown away; ``measured`` gets what is said in a round once
    the round is complete.

    Raises:
        ChildError: one failed.
    """
    with Children() as family:
        children = [family.start(name, command) for name, command in measured.settings.items()]
        for child in children:
            child.ask(question(measured, min(measured.batches), -1), TIMEOUT_S)
        for number, turns in enumerate(balanced_order(len(children), measured.rounds, seed=0)):
            asked = itertools.product(measured.batches, turns)
            measured.figures.extend([ask(measured, children[turn], batch, number) for batch, turn in asked])
            print(f"round {number + 1} of {measured.rounds}", file=sys.stderr)


def ask(measured: Measured, child: Child, batch: int, number: int) -> Figures:
    """A contender's turn."""
    answer = child.ask(question(measured, batch, number), TIMEOUT_S)
    return Figures(child.name, batch, number, answer.said, answer.foreign_cpu_s / answer.wall_s)


def commands(*, offline_ids: bool) -> dict[str, Command]:
    """How the two are started."""
    ids = ("--offline-ids",) if offline_ids else ()
    options = (str(folder_of("opt-125m")), *ids)
    python, variables = vllm_python(), vllm_variables(multiprocess=False)
    return {
        PEER: Command(python=python, module="vllm_host", options=options, variables=variables),
        OURS: Command(python=sys.executable, module="serbench_host"),
    }


def question(measured: Measured, batch: int, number: int) -> dict[str, Any]:
    """The same for both; each takes what it needs."""
    return {
        "batch": batch,
        "context": measured.context,
        "steps": measured.steps,
        "codec": measured.codec,
        "seed": number + 1,
    }


def report(measured: Measured) -> str:
    """Tables of medians over the complete rounds, and what a request added costs."""
    if not measured.figures:
        return "no round was completed"
    foreign = median(one.foreign_cores for one in measured.figures)
    done = len({one.round for one in measured.figures})
    rounds = counted(done, "round") if done == measured.rounds else f"{done} of {counted(measured.rounds, 'round')}"
    return "\n\n".join(
        [
            f"Steady decode, context {measured.context}, medians over {rounds} of {measured.steps} "
            f"steps; serbench: mp, shm, {measured.codec}. Other programs kept {foreign:.2f} cores busy.",
            _times(measured),
            _bytes(measured),
            _growth(measured),
        ]
    )


def _times(measured: Measured) -> str:
    head = (
        "batch",
        "vLLM schedule µs",
        "update µs",
        "round trip µs",
        "(two calls µs)",
        "sum µs",
        "serbench µs",
        "part",
        "ahead µs",
        "part with ahead",
    )
    rows = []
    for batch in measured.batches:
        parts = [
            median(measured.of(PEER, batch, name))
            for name in ("schedule_us", "update_us", "round_trip_us", "two_calls_us", "step_us")
        ]
        theirs, ours = measured.of(PEER, batch, "step_us"), measured.of(OURS, batch, "host_us")
        waited = judge(theirs, ours, higher_is_better=False)
        all_ = judge(theirs, measured.of(OURS, batch, "host_us", "ahead_us"), higher_is_better=False)
        ahead = median(measured.of(OURS, batch, "ahead_us"))
        ours_in_words = (f"{median(ours):,.1f}", as_part(waited), f"{ahead:,.1f}", as_part(all_))
        rows.append([str(batch), *(f"{one:,.0f}" for one in parts), *ours_in_words])
    return markdown(head, rows)


def _bytes(measured: Measured) -> str:
    head = ("batch", "vLLM plan B", "result B", "serbench plan B", "result B", "part")
    rows = []
    for batch in measured.batches:
        four = [
            median(measured.of(contender, batch, name))
            for contender in (PEER, OURS)
            for name in ("plan_bytes", "result_bytes")
        ]
        part = f"1/{(four[0] + four[1]) / (four[2] + four[3]):.1f}"
        rows.append([str(batch), *(f"{one:,.0f}" for one in four), part])
    return markdown(head, rows)


def _growth(measured: Measured) -> str:
    """From batch 16, or the smallest, to the largest."""
    first, last = (16 if 16 in measured.batches else min(measured.batches)), max(measured.batches)
    if first >= last:
        return ""
    grown = []
    for contender, names in ((PEER, ("step_us",)), (OURS, ("host_us",)), (OURS, ("host_us", "ahead_us"))):
        pairs = zip(measured.of(contender, first, *names), measured.of(contender, last, *names), strict=True)
        grown.append(median((high - low) / (last - first) for low, high in pairs))
    return (
        f"A request added, from {first} to {last}: vLLM {grown[0]:.2f} µs a step, serbench {grown[1]:.3f} µs, with "
        f"ahead {grown[2]:.3f} µs."
    )


if __name__ == "__main__":
    main()
