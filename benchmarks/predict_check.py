"""Holds `serbench predict` to the simulated engine and tells how far it was off.

It does not know how host times become a prediction: it predicts with the functions that the command calls. Models are
those of ``--step``, and the last of them once more with a time for each token.

- ``beside``: host times are measured beside a model of the same time, as without RUNs. The engine with the model that
  was asked for decodes in workers of its own, right after that or right before, repeat by repeat.
- ``run at``: host times are those of runs with the first model, predicted for the others. These were run too, all of
  them interleaved.

``error`` is predicted over measured throughput, medians over the repeats, less 1; ``least`` and ``most`` the same of
single repeats. ``over µs``: how much longer than asked for the model took, in the mean of a measured step: a simulated
device sleeps, and oversleeps where other programs run. The rest of the error is the host's. ``× said`` and ``× done``
are to the first codec. Nothing fails where errors are large.

    python -m benchmarks.predict_check --batch 16,256 --step 1ms,10ms --codec pickle,columnar
"""

from collections.abc import Iterator, Sequence
from itertools import product
from pathlib import Path
from statistics import median
from typing import Final, Literal

import click
import msgspec

from benchmarks.peers.script import Script
from serbench.cli import ranges
from serbench.cli.comma_separated import Names, Numbers
from serbench.cli.predict import model_time
from serbench.experiment import Experiment
from serbench.harness import Harness
from serbench.hostpath import Hostpath, HostpathSpec, Shape, summed
from serbench.hostpath_cells import Thing, cells_of, measure_hostpath, thing_of
from serbench.live import LiveEngine
from serbench.predict import Allowed, ModelTime, host_spec, predict_runs, predict_steady, tokens_a_step
from serbench.prepare import prepare
from serbench.report.progress import SilentProgress
from serbench.results import MODEL_PHASES, Repeat, Run
from serbench.stats import judge
from serbench.steady_decode import decode_steadily
from serbench.workload.spec import LengthRange, Synthetic

OUTPUT_LEN: Final = 32
"""Tokens that each request of a run produces."""

COLUMNS: Final = (
    *(("codec", 12), ("batch", 7), ("context", 9), ("model", 16), ("host times", 14), ("said/s", 10), ("done/s", 10)),
    *(("error", 9), ("least", 9), ("most", 9), ("over µs", 9), ("× said", 8), ("× done", 8)),
)

replace = msgspec.structs.replace


class Done(msgspec.Struct, frozen=True):
    """One measured pass: its throughput, and how much longer than asked for the model took in the mean step."""

    output_tokens_per_s: float
    over_us: float


class Held(msgspec.Struct, frozen=True, kw_only=True):
    """A row of a prediction with what was measured, one of ``done`` for each repeat."""

    shape: Shape
    source: str
    said: Allowed
    done: list[Done]

    @property
    def rates(self) -> list[float]:
        """Measured."""
        return [one.output_tokens_per_s for one in self.done]

    @property
    def error(self) -> float:
        """Of the throughput that a prediction shows."""
        return median(self.said.output_tokens_per_s) / median(self.rates) - 1

    @property
    def errors(self) -> list[float]:
        """Repeat by repeat."""
        return [said / done - 1 for said, done in zip(self.said.output_tokens_per_s, self.rates, strict=True)]


# --- host times measured beside a model of the same time --------------------------------------------------------------


def beside(base: Experiment, codecs: tuple[str, ...], shape: Shape, model: ModelTime) -> list[Held]:
    """Predict as the command does without RUNs, and measure: in turn, each repeat with prompts of its own."""
    asked = host_spec(model, codecs, shape, replace(base, repeats=1))
    parts: list[Hostpath] = []
    done: list[dict[str, Done]] = []
    for repeat in range(base.repeats):
        spec = replace(asked, base=replace(asked.base, seed=base.seed + repeat))
        for predicts in (True, False) if repeat % 2 else (False, True):
            if predicts:
                parts.append(measure_hostpath(spec, SilentProgress()))
            else:
                done.append(decoded(replace(spec, base=replace(spec.base, model=name_of(model))), model))
    rows = predict_steady([(model, together(parts))]).rows
    return [Held(shape=shape, source="beside", said=row, done=[one[row.label] for one in done]) for row in rows]


def together(parts: Sequence[Hostpath]) -> Hostpath:
    """One measurement of several of the same cells."""
    cells = [
        cell if cell.skipped else summed(cell, [one for part in parts for one in part.cells[i].passes])
        for i, cell in enumerate(parts[0].cells)
    ]
    return replace(parts[0], cells=cells)


def decoded(spec: HostpathSpec, model: ModelTime) -> dict[str, Done]:
    """By codec the engine with ``model``, in workers of its own: one pass after one to warm up."""
    things = [thing_of(spec, cell) for cell in cells_of(spec) if not cell.skipped]
    return {thing.cell.codec: _decoded(thing, model) for thing in things}


def _decoded(thing: Thing, model: ModelTime) -> Done:
    prepared, batch = thing.prepared, thing.cell.batch
    engine = LiveEngine(prepared)
    try:
        _, steps = (
            decode_steadily(engine.session(prepared.experiment), prepared.workload.requests(group), thing.steps)
            for group in (-1, 0)
        )
    finally:
        engine.close()
    step_us, host_us = float(steps.step_us.mean()), float(steps.host_us.mean())
    return Done(batch / step_us * 1e6, step_us - host_us - model.us(batch))


# --- host times of runs with another model ----------------------------------------------------------------------------


def from_runs(base: Experiment, codecs: tuple[str, ...], shape: Shape, models: Sequence[ModelTime]) -> list[Held]:
    """Run all models, interleaved, and predict all but the first as the command does with the first's RUNs."""
    workload = Synthetic(
        num_prompts=shape.batch,
        input_len=LengthRange(shape.context, shape.context),
        output_len=LengthRange(OUTPUT_LEN, OUTPUT_LEN),
    )
    asked = replace(base, workload=workload, max_num_seqs=shape.batch)
    runs = measured([replace(asked, model=name_of(model), codec=codec) for model in models for codec in codecs])
    by_model = [runs[i : i + len(codecs)] for i in range(0, len(runs), len(codecs))]
    source = f"run at {_words(models[0])}"
    return [
        Held(shape=shape, source=source, said=row, done=[_run(one, model) for one in run.repeats])
        for model, others in zip(models[1:], by_model[1:], strict=True)
        for row, run in zip(predict_runs(by_model[0], [model]).rows, others, strict=True)
    ]


def measured(experiments: Sequence[Experiment]) -> list[Run]:
    """Their runs, measured as `serbench compare` does; none is stored."""
    harness = Harness(
        prepare(experiments), open_engine=LiveEngine, store=lambda run: Path(run.id), watcher=SilentProgress()
    )
    harness.run()
    return [recorder.run() for recorder in harness.recorders]


def _run(repeat: Repeat, model: ModelTime) -> Done:
    took_us = sum(repeat.phases_us[name].mean for name in MODEL_PHASES)
    return Done(repeat.output_tokens_per_s, took_us - model.us(tokens_a_step(repeat)))


# --- the command ------------------------------------------------------------------------------------------------------


@click.command(cls=Script)
@click.option("--codec", "codecs", type=Names(), default="pickle,columnar", show_default=True, help="One or more.")
@click.option("--batch", "batches", type=Numbers(ranges.ROWS), default="16,256", show_default=True, help="Requests.")
@click.option("--context", "contexts", type=Numbers(ranges.CONTEXTS), default="512", show_default=True)
@click.option("--step", "steps", type=Names(), default="1ms,10ms", show_default=True, help="Times of the model.")
@click.option("--token", default="2us", show_default=True, help="And for each token, with the last of them.")
@click.option("--executor", type=click.Choice(["mp", "inproc"]), default="mp", show_default=True)
@click.option("--repeats", type=ranges.PASSES, default=5, show_default=True, help="Passes of each.")
def main(
    codecs: tuple[str, ...],
    batches: tuple[int, ...],
    contexts: tuple[int, ...],
    steps: tuple[str, ...],
    token: str,
    executor: Literal["mp", "inproc"],
    repeats: int,
) -> None:
    """Hold what `serbench predict` says to what the simulated engine does. It tells the errors and judges none."""
    models = list(dict.fromkeys([*(model_time(step, "0us") for step in steps), model_time(steps[-1], token)]))
    base = Experiment(model="sim", executor=executor, repeats=repeats)
    print("".join(f"{name:>{width}}" for name, width in COLUMNS))
    told: list[Held] = []
    for batch, context in product(batches, contexts):
        for rows in _all(base, codecs, Shape(batch, context), models):
            told += rows
            for row in rows:
                print(line(row, rows), flush=True)
    for source in dict.fromkeys(row.source for row in told):
        errors = [row.error for row in told if row.source == source]
        print(
            f"{source}: errors from {min(errors):+.1%} to {max(errors):+.1%}, {median(map(abs, errors)):.1%} the median"
        )


def _all(
    base: Experiment, codecs: tuple[str, ...], shape: Shape, models: Sequence[ModelTime]
) -> Iterator[Sequence[Held]]:
    for model in models:
        yield beside(base, codecs, shape, model)
    rows = from_runs(base, codecs, shape, models) if len(models) > 1 else []
    for model in models[1:]:
        yield [row for row in rows if row.said.model == model]


def line(row: Held, rows: Sequence[Held]) -> str:
    """A row of the table; the first of ``rows``, which have the same model, is what the others are held against."""
    said, done = "–", "–"
    if row.said.against_first is not None:
        said = f"{row.said.against_first.ratio:.3f}"
        done = f"{judge(rows[0].rates, row.rates, higher_is_better=True).ratio:.3f}"
    rates = (median(row.said.output_tokens_per_s), median(row.rates))
    cells = (
        *(row.said.label, str(row.shape.batch), str(row.shape.context), _words(row.said.model), row.source),
        *(f"{rate:,.0f}" for rate in rates),
        *(f"{error:+.1%}" for error in (row.error, min(row.errors), max(row.errors))),
        *(f"{median(one.over_us for one in row.done):,.0f}", said, done),
    )
    return "".join(f"{cell:>{width}}" for cell, (_, width) in zip(cells, COLUMNS, strict=True))


def name_of(model: ModelTime) -> str:
    """The simulated model that takes this time."""
    return f"sim:step={model.step_us:f}us:token={model.token_us:f}us"


def _words(model: ModelTime) -> str:
    token = f"+{model.token_us:g}us/tok" if model.token_us else ""
    return f"{model.step_us / 1e3:g}ms{token}"


if __name__ == "__main__":
    main(prog_name="python -m benchmarks.predict_check")
