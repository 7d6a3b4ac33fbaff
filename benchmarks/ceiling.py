"""How near codecs that leave the process come to the ceiling: workers in processes of their own against one process in
which plans go by reference (executor inproc, codec none), on a simulated model.

It does not know how anything is measured (passes.py does). All take turns, with the same prompts.

    python -m benchmarks.ceiling --model sim:step=2ms --codec columnar,pickle
"""

from collections.abc import Sequence
from contextlib import ExitStack
from statistics import median
from typing import Protocol

import click

from benchmarks.peers.script import Script
from benchmarks.peers.tables import markdown, ratio
from serbench.cli import ranges
from serbench.cli.comma_separated import Names
from serbench.experiment import Experiment
from serbench.garbage import swept
from serbench.interleave import balanced_order
from serbench.live import LiveEngine
from serbench.passes import drive, record
from serbench.prepare import prepare
from serbench.prepared import Prepared
from serbench.results import Repeat
from serbench.stats import judge
from serbench.workload.spec import LengthRange, Synthetic
from serbench_engine.models.simulated_spec import is_simulated


class Contender:
    """An engine that lives from pass to pass, and what its passes came to."""

    def __init__(self, prepared: Prepared) -> None:
        self.repeats: list[Repeat] = []
        self._prepared = prepared
        self._engine = LiveEngine(prepared)

    def run(self, group: int, order: int) -> None:
        """One pass with the prompts of ``group``, of which those below 0 warm up."""
        requests = self._prepared.workload.requests(group)
        session = self._engine.session(self._prepared.experiment)
        with swept():
            done = drive(session, requests)
        repeat = record(done, session.close(), group=group, order=order)
        if group >= 0:
            self.repeats.append(repeat)

    def close(self) -> None:
        self._engine.close()


class Passing(Protocol):
    """What makes passes."""

    def run(self, group: int, order: int) -> None: ...


def take_turns(contenders: Sequence[Passing], repeats: int) -> None:
    """A pass of each to warm up, then the timed ones in balanced order, which begins with the first of them."""
    for one in contenders:
        one.run(-1, 0)
    for group, turns in enumerate(balanced_order(len(contenders), repeats, seed=0)):
        for order, which in enumerate(turns):
            contenders[which].run(group, order)


@click.command(cls=Script)
@click.option("--model", default="sim:step=2ms", show_default=True, help="A simulated one.")
@click.option(
    "--codec", "codecs", type=Names(), default="columnar,pickle", show_default=True, help="Under the ceiling."
)
@click.option("--num-prompts", type=ranges.REQUESTS, default=256, show_default=True)
@click.option("--input-len", type=ranges.CONTEXTS, default=512, show_default=True)
@click.option("--output-len", type=ranges.CONTEXTS, default=64, show_default=True)
@click.option("--repeats", type=ranges.PASSES, default=12, show_default=True, help="Passes of each.")
def main(model: str, codecs: tuple[str, ...], num_prompts: int, input_len: int, output_len: int, repeats: int) -> None:
    """Measure codecs in two processes against plans that go by reference in one."""
    workload = Synthetic(
        num_prompts=num_prompts,
        input_len=LengthRange(input_len, input_len),
        output_len=LengthRange(output_len, output_len),
    )
    if not is_simulated(model):
        raise click.UsageError(f"--model {model}: it must be a simulated one, as sim:step=2ms")
    base = Experiment(model=model, workload=workload, codec="none", executor="inproc", repeats=repeats)
    others = [Experiment(model=model, workload=workload, codec=codec, repeats=repeats) for codec in codecs]
    contenders: list[Contender] = []
    with ExitStack() as living:
        for one in prepare([base, *others]):
            contenders.append(Contender(one))
            living.callback(contenders[-1].close)
        take_turns(contenders, repeats)
    rates = [[repeat.output_tokens_per_s for repeat in one.repeats] for one in contenders]
    rows = [
        [name, f"{median(mine):,.0f}", ratio(judge(rates[0], mine, higher_is_better=True), digits=3)]
        for name, mine in zip(("none, in process", *codecs), rates, strict=True)
    ]
    print(markdown(["codec", "output tokens/s", "of the ceiling"], rows))


if __name__ == "__main__":
    main(prog_name="python -m benchmarks.ceiling")
