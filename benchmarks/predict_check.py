"""Holds `serbench predict` to the simulated engine: predicted against measured throughput over a grid, interleaved.

It does not know how host times become a prediction. Each repeat measures the host's time as a prediction does and,
right after it or right before, the engine with the model asked for, so that a drift of the machine meets both. A
simulated device sleeps, and oversleeps where other programs run: its realised time is recorded. ``ratio`` is what a
prediction from the realised time says over what was measured, both of a median step, the median of the repeats;
over 10 % anywhere the script fails. ``of means`` is the same of mean steps, in which every interruption by another
program counts; ``as asked`` is of mean steps too, and from the time asked for, as `serbench predict` says it.

    python -m benchmarks.predict_check --batch 16,256 --step 1ms,10ms --codec pickle,columnar
"""

import statistics
from itertools import product
from typing import Literal

import click
import msgspec
import numpy as np

from serbench.cli import ranges
from serbench.cli.comma_separated import Names, Numbers
from serbench.experiment import Experiment
from serbench.live import LiveEngine
from serbench.predict import host_model, synchronous
from serbench.steady_decode import SteadyBatch, SteadySteps, decode_steadily, prepare_steady, simulated
from serbench_engine.errors import ConfigError
from serbench_engine.models.simulated_spec import parse_simulated

MOST_WRONG = 0.10
GRID = ("codec", "batch", "context", "step")


class Cell(msgspec.Struct, frozen=True):
    """What one cell came to, medians over the repeats: µs of a median step, tokens/s, predicted over measured ones."""

    host_us: float
    device_us: float
    predicted: float
    measured: float
    ratio: float
    ratio_of_means: float
    ratio_as_asked: float


class Contender:
    """An engine with one simulated model that decodes one steady batch, pass after pass."""

    def __init__(self, base: Experiment, model: str, steady: SteadyBatch) -> None:
        self._steps = steady.steps
        self._prepared = prepare_steady(base, steady, simulated(model, steady.max_model_len))
        self._engine = LiveEngine(self._prepared)

    def decode(self, group: int) -> SteadySteps:
        """One pass with the prompts of ``group``."""
        session = self._engine.session(self._prepared.experiment)
        return decode_steadily(session, self._prepared.workload.requests(group), self._steps)

    def close(self) -> None:
        self._engine.close()


def check(base: Experiment, batch: int, context: int, step_ms: float, steps: int = 32) -> Cell:
    """Predict and measure one cell, ``base.repeats`` times after one pass of each to warm up."""
    steady = SteadyBatch(batch=batch, context=context, steps=steps)
    host, real = (Contender(base, model, steady) for model in (host_model(step_ms * 1e3), f"sim:step={step_ms:g}ms"))
    cells: list[Cell] = []
    try:
        for group in range(-1, base.repeats):
            order = (host, real) if group % 2 else (real, host)
            done = {id(one): one.decode(group) for one in order}
            cells.append(compared(done[id(host)], done[id(real)], batch, step_ms * 1e3))
    finally:
        host.close()
        real.close()
    return Cell(*(statistics.median(column) for column in zip(*map(msgspec.structs.astuple, cells[1:]), strict=True)))


def compared(host: SteadySteps, real: SteadySteps, batch: int, asked_us: float) -> Cell:
    """One repeat: what the host's time says of an engine that was measured too."""
    columns = (host.host_us, real.device_us, real.step_us)
    host_us, device_us, step_us = (float(np.median(us)) for us in columns)
    mean_host_us, mean_device_us, mean_step_us = (float(us.mean()) for us in columns)
    predicted_us = synchronous(host_us, device_us)
    return Cell(
        host_us,
        device_us,
        batch / predicted_us * 1e6,
        batch / step_us * 1e6,
        step_us / predicted_us,
        mean_step_us / synchronous(mean_host_us, mean_device_us),
        mean_step_us / synchronous(mean_host_us, asked_us),
    )


@click.command()
@click.option("--codec", "codecs", type=Names(), default="pickle,columnar", show_default=True, help="One or more.")
@click.option("--batch", "batches", type=Numbers(ranges.ROWS), default="16,256", show_default=True, help="Requests.")
@click.option("--context", "contexts", type=Numbers(ranges.CONTEXTS), default="128,512", show_default=True)
@click.option("--step", "steps", type=Names(), default="1ms,2ms,10ms", show_default=True, help="Times of the model.")
@click.option("--executor", type=click.Choice(["mp", "inproc"]), default="mp", show_default=True)
@click.option("--repeats", type=ranges.PASSES, default=5, show_default=True, help="Pairs of passes in each cell.")
@click.pass_context
def main(
    ctx: click.Context,
    codecs: tuple[str, ...],
    batches: tuple[int, ...],
    contexts: tuple[int, ...],
    steps: tuple[str, ...],
    executor: Literal["mp", "inproc"],
    repeats: int,
) -> None:
    """Hold predicted throughput to that of the simulated engine, cell by cell; fails where one is over 10 % wrong."""
    steps_ms = [_ms(step) for step in steps]
    columns = (*GRID, "host µs", "device µs", "predicted/s", "measured/s", "ratio", "of means", "as asked")
    print("".join(f"{name:>12}" for name in columns))
    wrong = 0
    for codec, batch, context, step_ms in product(codecs, batches, contexts, steps_ms):
        base = Experiment(model="sim", codec=codec, executor=executor, repeats=repeats)
        cell = check(base, batch, context, step_ms)
        wrong += abs(cell.ratio - 1) > MOST_WRONG
        figures = (cell.host_us, cell.device_us, cell.predicted, cell.measured)
        line = "".join(f"{one:>12}" for one in (codec, batch, context, f"{step_ms:g}ms"))
        line += "".join(f"{one:12,.0f}" for one in figures)
        ratios = (cell.ratio, cell.ratio_of_means, cell.ratio_as_asked)
        print(line + "".join(f"{one:12.3f}" for one in ratios), flush=True)
    print(f"{wrong} cells are more than {MOST_WRONG:.0%} wrong" if wrong else f"all within {MOST_WRONG:.0%}")
    ctx.exit(1 if wrong else 0)


def _ms(step: str) -> float:
    try:
        return parse_simulated(f"sim:step={step}").step_us / 1e3
    except ConfigError as error:
        raise click.UsageError(f"--step {step}: {error}") from None


if __name__ == "__main__":
    main(prog_name="python -m benchmarks.predict_check")
