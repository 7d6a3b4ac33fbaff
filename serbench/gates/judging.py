"""Holds measured runs against a baseline, gate by gate, and a second measurement against the first's failures.

It does not know how runs were measured, nor how gates are shown.
"""

from collections.abc import Sequence
from typing import Literal, TypeAlias

import msgspec

from serbench.environment import Environment
from serbench.errors import ResultsError
from serbench.gates.baseline import Baseline
from serbench.gates.metrics import METRICS, Kind, Metric, Taken, Value, take
from serbench.prepared import Prepared
from serbench.report.figures import counted
from serbench.results import Run

State: TypeAlias = Literal["passed", "better", "not confirmed", "failed"]

MODEL_PACKAGES = ("torch", "transformers", "tokenizers")
PATH_PACKAGES = ("numpy", "msgspec", "cloudpickle")


class Gate(msgspec.Struct, frozen=True, kw_only=True):
    """One metric of one codec: what the baseline says, what was measured, how often, and the state.

    ``again``: what the second measurement found, None where there was no need of one. ``low`` and ``high``: a ratio's
    range over the repeats.
    """

    codec: str
    metric: str
    kind: Kind
    unit: str
    baseline: Value
    measured: Value
    tolerance: float
    state: State
    low: float | None = None
    high: float | None = None
    again: Value | None = None

    @property
    def change(self) -> float | None:
        """As a share of the baseline; None for what has no size, or grew from nothing."""
        if isinstance(self.baseline, str) or isinstance(self.measured, str) or not self.baseline:
            return None
        return self.measured / self.baseline - 1


class Outcome(msgspec.Struct, frozen=True, kw_only=True):
    """All gates of a check."""

    schema: str = "serbench/check/1"
    name: str
    gates: list[Gate]
    measurements: int
    times: bool

    @property
    def passed(self) -> bool:
        """Whether no gate failed."""
        return not any(gate.state == "failed" for gate in self.gates)


def hold_against(baseline: Baseline, runs: Sequence[Run], here: Environment, *, times: bool) -> list[Gate]:
    """The gates of one measurement; failures are not confirmed yet.

    Raises:
        ResultsError: there is nothing to hold a metric against, or nothing was measured of one.
    """
    gates = []
    machine = baseline.machine(here) if times else None
    for one, run in zip(baseline.codecs, runs, strict=True):
        ratios = machine.ratios.get(run.spec.codec, {}) if machine is not None else {}
        for metric in METRICS:
            if metric.kind == "ratio" and (not times or run is runs[0]):
                continue
            taken = take(metric, run, runs[0])
            due = ratios.get(metric.name) if metric.kind == "ratio" else one.figures.get(metric.name)
            if taken is None or due is None:
                lacking = "the baseline lacks it" if due is None else "nothing was measured"
                raise ResultsError(f"{metric.name} of {run.spec.codec} can't be gated: {lacking}")
            gates.append(_gate(metric, run.spec.codec, due, taken, baseline.tolerances[metric.name]))
    return gates


def confirmed(first: Sequence[Gate], second: Sequence[Gate]) -> list[Gate]:
    """The first's gates; those that failed stay failed only if they fail again."""
    again = {(gate.codec, gate.metric): gate for gate in second}
    gates = []
    for gate in first:
        if gate.state == "failed":
            other = again[gate.codec, gate.metric]
            state: State = "failed" if other.state == "failed" else "not confirmed"
            gate = msgspec.structs.replace(gate, state=state, again=other.measured)
        gates.append(gate)
    return gates


def check_comparable(
    baseline: Baseline, things: Sequence[Prepared], here: Environment, *, times: bool, differing: Sequence[str] = ()
) -> None:
    """Refuse a baseline that says nothing about what would be measured here. ``differing``: what was asked otherwise.

    Raises:
        ResultsError: with all reasons.
    """
    reasons = list(differing)
    reasons += _settings(baseline, things)
    if baseline.weights.fingerprint != things[0].model.fingerprint:
        reasons.append(
            f"the weights are others ({baseline.weights.fingerprint} then, {things[0].model.fingerprint} now)"
        )
    reasons += _versions(baseline, here)
    if times and len(baseline.codecs) < 2:
        reasons.append("it has one codec, so there are no time ratios; --no-times leaves them out")
    elif times and baseline.machine(here) is None:
        known = "; ".join(f"{one.cpu}, {counted(one.cores, 'core')}" for one in baseline.machines)
        has = f"it has time ratios of other machines only ({known})" if known else "it has no time ratios"
        reasons.append(
            f"{has}, this is {here.cpu}, {counted(here.cores, 'core')}; --no-times leaves them out, --update on this "
            "machine adds them"
        )
    if reasons:
        raise ResultsError(f"the baseline {baseline.name} can't be compared: {'; '.join(reasons)}")


def _gate(metric: Metric, codec: str, due: Value, taken: Taken, tolerance: float) -> Gate:
    return Gate(
        codec=codec,
        metric=metric.name,
        kind=metric.kind,
        unit=metric.unit,
        baseline=due,
        measured=taken.value,
        tolerance=tolerance,
        state=_state(metric.kind, due, taken.value, tolerance),
        low=taken.low,
        high=taken.high,
    )


def _state(kind: Kind, due: Value, value: Value, tolerance: float) -> State:
    if kind == "equal" or isinstance(due, str) or isinstance(value, str):
        return "passed" if value == due else "failed"
    if value > due * (1 + tolerance):
        return "failed"
    return "better" if value < due * (1 - tolerance) else "passed"


def _settings(baseline: Baseline, things: Sequence[Prepared]) -> list[str]:
    """What became another experiment when it was prepared here, such as a file of prompts that changed."""
    return [
        f"{name} of {thing.experiment.codec} is another ({getattr(one.spec, name)} then, "
        f"{getattr(thing.experiment, name)} now)"
        for one, thing in zip(baseline.codecs, things, strict=True)
        for name in one.spec.__struct_fields__
        if getattr(one.spec, name) != getattr(thing.experiment, name)
    ]


def _versions(baseline: Baseline, here: Environment) -> list[str]:
    """Versions that decide about bytes and outputs; a release's patches do not."""
    packages = PATH_PACKAGES if baseline.weights.kind == "sim" else PATH_PACKAGES + MODEL_PACKAGES
    pairs = [("Python", baseline.python, here.python)]
    pairs += [(name, str(baseline.versions.get(name)), str(here.versions.get(name))) for name in packages]
    return [f"{name} is {now}, it was {then}" for name, then, now in pairs if _release(then) != _release(now)]


def _release(version: str) -> list[str]:
    return version.split(".")[:2]
