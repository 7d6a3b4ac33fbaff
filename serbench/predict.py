"""Says what throughput host times allow, ``serbench/prediction/1``, for model steps of given times.

It does not know how host times are measured (hostpath_cells.py) or runs stored (results.py).

The engine is synchronous: a step is the host's time and then the model's. An engine that overlaps them is another
function from the same two times to a step (``StepTime``).
"""

from collections.abc import Callable, Sequence
from statistics import median
from typing import Final, TypeAlias

import msgspec

from serbench.comparison import compare_runs, run_warnings
from serbench.errors import ExperimentError, ResultsError
from serbench.experiment import Experiment
from serbench.hostpath import HostCell, Hostpath, HostpathSpec, Shape
from serbench.noise import load_warning
from serbench.refusals import check_refusals
from serbench.report.figures import counted
from serbench.results import MODEL_PHASES, Repeat, Run
from serbench.stats import Finding, judge

SCHEMA: Final = "serbench/prediction/1"

LONGEST_HOST_MODEL_US: Final = 50_000.0
"""Host times are measured beside a simulated model of the same time, so that cores sleep and caches cool for as long,
up to this time: a pass beside a longer one would take too long."""

_PASS_US: Final = 500_000.0  # what a pass takes, about
_STEPS: Final = (16, 128)  # that it has at least and at most

_TAKING_TURNS: Final = (
    "several workers has them take turns in one process, so that the others' model time would count as the host's; use "
    "executor mp, or one worker"
)

StepTime: TypeAlias = Callable[[float, float], float]
"""The time of a step from that of the host and that of the model, all in µs."""


class ModelTime(msgspec.Struct, frozen=True):
    """A model's time: ``step_us`` a step plus ``token_us`` a token computed."""

    step_us: float
    token_us: float = 0.0

    def us(self, tokens: float) -> float:
        """Of a step that computes ``tokens``."""
        return self.step_us + self.token_us * tokens


class Allowed(msgspec.Struct, frozen=True, kw_only=True):
    """What one codec's host time allows with one model.

    ``output_tokens_per_s``: one for each pass or repeat that the host time was measured in. ``host_share`` of all time.
    ``against_first``: as a ratio of throughput, None for the first codec.
    """

    label: str
    model: ModelTime
    host_us: float
    host_share: float
    output_tokens_per_s: list[float]
    against_first: Finding | None = None


class Prediction(msgspec.Struct, frozen=True, kw_only=True):
    """All codecs with all models, model by model. ``source`` says what the host times are from; ``assumptions`` and
    ``warnings`` are lines for the reader.
    """

    schema: str = SCHEMA
    source: str
    assumptions: list[str]
    rows: list[Allowed]
    warnings: list[str] = []


def host_model(model_us: float) -> str:
    """The simulated model beside which host times are measured for a model that takes ``model_us`` a step."""
    return f"sim:step={min(model_us, LONGEST_HOST_MODEL_US):g}us"


def host_steps(model_us: float) -> int:
    """How many steps of it a pass has."""
    fewest, most = _STEPS
    return int(min(most, max(fewest, _PASS_US / max(1.0, model_us))))


def synchronous(host_us: float, model_us: float) -> float:
    """One after the other."""
    return host_us + model_us


def host_spec(model: ModelTime, codecs: tuple[str, ...], shape: Shape, base: Experiment) -> HostpathSpec:
    """What is measured to predict these codecs with ``model``; ``base`` as in HostpathSpec, but for its model.

    Raises:
        ExperimentError: nothing to measure, or a number out of range.
    """
    if base.executor == "inproc" and base.workers > 1:
        raise ExperimentError(f"--executor inproc with {_TAKING_TURNS}")
    model_us = model.us(shape.batch)
    beside = msgspec.structs.replace(base, model=host_model(model_us))
    return HostpathSpec(codecs=codecs, shapes=(shape,), base=beside, steps=host_steps(model_us))


def predict_steady(measured: Sequence[tuple[ModelTime, Hostpath]], step_time: StepTime = synchronous) -> Prediction:
    """What a steady decode allows with each model, from the mean host time of each pass of each cell beside it: one
    shape, several codecs, the same for every model.

    Raises:
        ResultsError: no cell was measured.
    """
    first = measured[0][1]
    skipped = [f"{cell.codec} is left out: {cell.skipped}" for cell in first.cells if cell.skipped]
    if all(cell.skipped for cell in first.cells):
        raise ResultsError(f"there are no host times to predict from: {'; '.join(skipped)}")
    batch, context = first.cells[0].batch, first.cells[0].context

    def of(cell: HostCell, model: ModelTime) -> Allowed:
        host_us = median(one.host_us.mean for one in cell.passes)
        rates = [batch / step_time(one.host_us.mean, model.us(batch)) * 1e6 for one in cell.passes]
        return _allowed(cell.codec, model, host_us, step_time(host_us, model.us(batch)), rates)

    return Prediction(
        source=f"host times measured now, {counted(batch, 'request')} at {context:,} tokens",
        assumptions=[
            *_synchronous(first.spec.base.workers),
            f"steady decode of {counted(batch, 'request')}: each gets a token in every step; prefill is not counted",
            f"the host takes as long as beside a simulated model of the same time{_capped(measured, batch)}; its mean "
            "counts",
            *skipped,
        ],
        rows=[
            row
            for model, hostpath in measured
            for row in _against_first([of(cell, model) for cell in hostpath.cells if not cell.skipped])
        ],
        warnings=load_warning(first.environment.load_average, first.environment.cores),
    )


def _capped(measured: Sequence[tuple[ModelTime, Hostpath]], batch: int) -> str:
    if all(model.us(batch) <= LONGEST_HOST_MODEL_US for model, _ in measured):
        return ""
    return f" ({LONGEST_HOST_MODEL_US / 1e3:g} ms where it is longer)"


def predict_runs(runs: Sequence[Run], models: Sequence[ModelTime], step_time: StepTime = synchronous) -> Prediction:
    """What stored runs would have made had their model taken another time: the same steps, the same host.

    Raises:
        ResultsError: runs that can't be compared with the first, produced nothing, had requests that came at a rate of
            their own, or, where a token has a time, computed nobody knows how many. OutputsDifferError: outputs that
            must not differ do. FaultError: a payload was refused.
    """
    for run in runs:
        _check_predictable(run)
        if any(model.token_us for model in models):
            _check_tokens_known(run)
    comparison = compare_runs(runs)
    check_refusals(runs)
    groups = set.intersection(*({repeat.group for repeat in run.repeats} for run in runs))
    if not groups:
        raise ResultsError(f"{', '.join(run.id for run in runs)} have no group of repeats in common")

    def of(run: Run, label: str, model: ModelTime) -> Allowed:
        repeats = [repeat for repeat in run.repeats if repeat.group in groups]
        steps_us = [step_time(_host_us(one), model.us(tokens_a_step(one))) for one in repeats]
        rates = [one.output_tokens / one.steps / us * 1e6 for one, us in zip(repeats, steps_us, strict=True)]
        return _allowed(label, model, median(map(_host_us, repeats)), median(steps_us), rates)

    labels = [row.label for row in comparison.rows]
    return Prediction(
        source=f"host times of {', '.join(run.id for run in runs)}",
        assumptions=[
            *_synchronous(runs[0].spec.workers),
            "the same steps with the same batches as in the runs, prefill included",
            "the host takes as long as it did in the runs, whatever the model's time; its mean counts",
        ],
        rows=[
            row
            for model in models
            for row in _against_first([of(run, label, model) for run, label in zip(runs, labels, strict=True)])
        ],
        warnings=[*comparison.warnings, *run_warnings(runs)],
    )


def _check_predictable(run: Run) -> None:
    if not run.repeats:
        raise ResultsError(f"{run.id} has no repeats, so there are no host times to predict from")
    if not all(repeat.output_tokens for repeat in run.repeats):
        raise ResultsError(f"{run.id}: a repeat produced no tokens, so there is no throughput to predict")
    if run.spec.executor == "inproc" and run.spec.workers > 1:
        raise ResultsError(f"{run.id}: executor inproc with {_TAKING_TURNS}")
    if run.spec.arrivals.kind != "together":
        raise ResultsError(f"{run.id}: its requests came in their own time, which no faster engine can change")


def _check_tokens_known(run: Run) -> None:
    """That the run says how many tokens went through the model, for which a time a token would count."""
    if any(repeat.preemptions for repeat in run.repeats):
        raise ResultsError(
            f"{run.id}: requests were preempted, and how many tokens were computed again is not stored, so --token "
            "can't be counted; leave it out, or measure with more --num-blocks"
        )
    if run.spec.enable_prefix_caching and any(repeat.cached_tokens is None for repeat in run.repeats):
        raise ResultsError(
            f"{run.id}: how many tokens its prefix cache saved is not stored, so --token can't be counted; leave it "
            "out, or measure again"
        )


def encode_prediction(prediction: Prediction) -> bytes:
    """The document as indented JSON with a final newline."""
    return msgspec.json.format(msgspec.json.encode(prediction), indent=2) + b"\n"


def _host_us(repeat: Repeat) -> float:
    """A step's share of the repeat's wall time, the model's own phases left out."""
    model_us = sum(repeat.phases_us[name].total for name in MODEL_PHASES)
    return max(0.0, repeat.wall_s * 1e6 - model_us) / repeat.steps


def tokens_a_step(repeat: Repeat) -> float:
    """Tokens that went through the model in a step, where nobody was preempted: all but each request's last, which is
    only sampled, and those found in the prefix cache.
    """
    requests = repeat.requests_per_s * repeat.wall_s
    computed = repeat.input_tokens + repeat.output_tokens - requests - (repeat.cached_tokens or 0)
    return computed / repeat.steps


def _synchronous(workers: int) -> list[str]:
    told = "one worker" if workers == 1 else f"{counted(workers, 'worker')} that all get every plan"
    return [
        f"synchronous engine, {told}: a step is the host's time, then the model's",
        "the model takes exactly the given time, from its launch to the sampled ids",
    ]


def _allowed(label: str, model: ModelTime, host_us: float, step_us: float, rates: list[float]) -> Allowed:
    return Allowed(label=label, model=model, host_us=host_us, host_share=host_us / step_us, output_tokens_per_s=rates)


def _against_first(rows: Sequence[Allowed]) -> list[Allowed]:
    first = rows[0].output_tokens_per_s

    def judged(row: Allowed) -> Allowed:
        finding = judge(first, row.output_tokens_per_s, higher_is_better=True)
        return msgspec.structs.replace(row, against_first=finding)

    return [rows[0], *map(judged, rows[1:])]
