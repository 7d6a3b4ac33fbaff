"""The format of a baseline, ``serbench/baseline/1``, its reading, checking and writing. It gates nothing itself.

A gate that can't fail is none: a baseline that lacks a metric of a codec, or tolerates anything, is refused.
"""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Final

import msgspec

from serbench.documents import decode_json
from serbench.environment import Environment
from serbench.errors import ExperimentError, NotWrittenError, ResultsError
from serbench.experiment import Experiment
from serbench.files import write_atomically
from serbench.gates.metrics import METRICS, NAMES, RATIOS, Value, take
from serbench.results import Run, WeightsInfo

SCHEMA: Final = "serbench/baseline/1"
FOLDER: Final = Path("results/baselines")
MOST_TOLERATED: Final = 2.0
"""A figure may at most triple: whoever tolerates more wants no gate."""

MOST_COUNTED: Final = 1 << 48
MOST_RATIO: Final = 1e9
"""What is larger was never measured."""

DONE: Final = ("steps", "input_tokens", "output_tokens")
"""Counts of what every measurement does."""


class CodecBaseline(msgspec.Struct, frozen=True, kw_only=True):
    """One codec's experiment, and its figures by metric: all but the ratios."""

    spec: Experiment
    figures: dict[str, Value]


class MachineRatios(msgspec.Struct, frozen=True, kw_only=True):
    """Time ratios of one class of machine: by codec (all but the first) and metric."""

    cpu: str
    architecture: str
    cores: int
    measured: str
    ratios: dict[str, dict[str, float]]


class Baseline(msgspec.Struct, frozen=True, kw_only=True):
    """What a check is held against. The first of ``codecs`` is the reference of the ratios.

    ``tolerances``: by metric, as a share of the baseline's value. ``git_revision``: of the serbench that measured.
    """

    schema: str = SCHEMA
    name: str
    created: str
    python: str
    versions: dict[str, str | None]
    git_revision: str | None
    weights: WeightsInfo
    tolerances: dict[str, float]
    codecs: list[CodecBaseline]
    machines: list[MachineRatios]

    def machine(self, here: Environment) -> MachineRatios | None:
        """The ratios of a class of machine, None if none were measured there."""
        return next((one for one in self.machines if _class(one) == _class(here)), None)


class _SchemaOnly(msgspec.Struct):
    schema: str | None = None


def baseline_path(name: str) -> Path:
    """The file of a baseline given by path, or by its name in results/baselines/."""
    return Path(name) if name.endswith(".json") or "/" in name else FOLDER / f"{name}.json"


def read_baseline(path: Path) -> Baseline:
    """Read and check a baseline.

    Raises:
        ResultsError: it isn't there, is of another schema, or has gates that could not fail; says which.
    """
    try:
        data = path.read_bytes()
    except OSError as error:
        raise ResultsError(f"there is no baseline {path} ({error.strerror}); --update writes one") from error
    try:
        schema = decode_json(data, _SchemaOnly).schema
        if schema != SCHEMA:
            raise ResultsError(f"{path}: its schema is {schema!r}, this serbench reads {SCHEMA!r}")
        baseline = decode_json(data, Baseline)
    except (msgspec.DecodeError, UnicodeDecodeError, ExperimentError) as error:
        raise ResultsError(f"{path} is no baseline: {error}") from error
    faults = _faults(baseline)
    if faults:
        raise ResultsError(f"{path} has gates that could not fail: {'; '.join(faults)}")
    return baseline


def write_baseline(path: Path, baseline: Baseline) -> None:
    """Replace what is there, at once or not at all.

    Raises:
        NotWrittenError: it can't be written. ResultsError: it has gates that could not fail.
    """
    faults = _faults(baseline)
    if faults:
        raise ResultsError(f"{path} is not written, for its gates could not fail: {'; '.join(faults)}")
    try:
        write_atomically(path, msgspec.json.format(msgspec.json.encode(baseline), indent=2) + b"\n")
    except OSError as error:
        raise NotWrittenError(f"{path} can't be written: {error.strerror}") from error


def baseline_of(
    name: str, runs: Sequence[Run], *, tolerances: Mapping[str, float], times: bool, before: Baseline | None
) -> Baseline:
    """The baseline that these runs, measured together, make.

    Where ``before`` measured the same experiments, its time ratios are kept, but for those measured again here.
    """
    first = runs[0]
    codecs = [CodecBaseline(spec=run.spec, figures=_figures(run, first)) for run in runs]
    kept = (
        [] if before is None or [one.spec for one in before.codecs] != [one.spec for one in codecs] else before.machines
    )
    here = MachineRatios(
        cpu=first.environment.cpu,
        architecture=first.environment.architecture,
        cores=first.environment.cores,
        measured=first.created,
        ratios={run.spec.codec: _time_ratios(run, first) for run in runs[1:]},
    )
    return Baseline(
        name=name,
        created=first.created,
        python=first.environment.python,
        versions=first.environment.versions,
        git_revision=first.environment.git_revision,
        weights=first.weights,
        tolerances={metric.name: tolerances.get(metric.name, metric.tolerance) for metric in METRICS},
        codecs=codecs,
        machines=[one for one in kept if _class(one) != _class(here)] + [here] if times else kept,
    )


def _class(machine: MachineRatios | Environment) -> tuple[str, str, int]:
    return machine.cpu, machine.architecture, machine.cores


def _figures(run: Run, reference: Run) -> dict[str, Value]:
    taken = {metric.name: take(metric, run, reference) for metric in METRICS if metric.kind != "ratio"}
    return {name: one.value for name, one in taken.items() if one is not None}


def _time_ratios(run: Run, reference: Run) -> dict[str, float]:
    taken = {metric.name: take(metric, run, reference) for metric in METRICS if metric.kind == "ratio"}
    return {name: float(one.value) for name, one in taken.items() if one is not None}


# --- gates that could not fail ----------------------------------------------------------------------------------------


def _faults(baseline: Baseline) -> list[str]:
    """Why gates could pass whatever is measured; none in a good baseline."""
    faults = [] if baseline.codecs else ["it has no codecs"]
    exact = [name for name in NAMES if name not in RATIOS]
    for one in baseline.codecs:
        faults += _missing(f"codec {one.spec.codec}", one.figures, exact)
        faults += [f"codec {one.spec.codec}: {fault}" for fault in _impossible(one.figures)]
    for machine in baseline.machines:
        for codec in [one.spec.codec for one in baseline.codecs[1:]]:
            ratios = machine.ratios.get(codec, {})
            faults += _missing(f"codec {codec} on {machine.cpu}", ratios, RATIOS)
            faults += [
                f"{name} of {codec} is {value}, which is no ratio"
                for name, value in ratios.items()
                if not 0 < value <= MOST_RATIO
            ]
    return faults + _missing("tolerances", baseline.tolerances, NAMES) + _tolerating(baseline.tolerances)


def _impossible(figures: Mapping[str, Value]) -> list[str]:
    """Figures that no measurement gives; against one that is too large all would pass."""
    faults = []
    for metric in METRICS:
        value = figures.get(metric.name, 1 if metric.unit else "")
        least = 1 if metric.name in DONE else 0
        if metric.unit and not (isinstance(value, int) and least <= value <= MOST_COUNTED):
            faults.append(f"{metric.name} is {value!r}; it must be a whole number from {least} to {MOST_COUNTED}")
        elif not metric.unit and not isinstance(value, str):
            faults.append(f"{metric.name} is {value!r}; it must be a digest")
    return faults


def _missing(where: str, there: Mapping[str, object], due: Sequence[str]) -> list[str]:
    lacking = [name for name in due if name not in there]
    unknown = [name for name in there if name not in due]
    faults = [f"{where} lacks {', '.join(lacking)}"] if lacking else []
    return faults + ([f"{where} has {', '.join(unknown)}, which is gated by nothing"] if unknown else [])


def _tolerating(tolerances: Mapping[str, float]) -> list[str]:
    equal = {metric.name for metric in METRICS if metric.kind == "equal"}
    return [
        f"{name} tolerates {share}; it must be {'0' if name in equal else f'between 0 and {MOST_TOLERATED:g}'}"
        for name, share in tolerances.items()
        if not 0 <= share <= (0 if name in equal else MOST_TOLERATED)
    ]
