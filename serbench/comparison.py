"""Compares runs: whether they may be compared, ratios against the first with verdicts, and whether outputs are equal.

It does not know how runs were measured, nor how a comparison is shown.
"""

from collections import Counter
from collections.abc import Callable, Sequence
from typing import Final, Literal, TypeAlias

import msgspec

from serbench.differences import both, path_apart
from serbench.errors import OutputsDifferError, ResultsError
from serbench.experiment import Experiment
from serbench.refusals import WARNING
from serbench.results import Repeat, Run
from serbench.stats import Finding, IntervalOf, judge, paired_t

SCHEMA: Final = "serbench/comparison/1"

Outputs: TypeAlias = Literal["equal", "differ", "not compared"]

_SAME_SPEC: Final[tuple[tuple[str, str], ...]] = (
    ("model", "models"),
    ("dtype", "dtypes"),
    ("device", "devices"),
    ("workload", "workloads"),
    ("arrivals", "arrivals"),
    ("seed", "seeds, and so prompts,"),
    ("workers", "numbers of workers"),
    ("max_num_seqs", "limits of sequences"),
    ("max_num_batched_tokens", "limits of batched tokens"),
    ("max_model_len", "length limits"),
    ("block_size", "block sizes"),
    ("enable_prefix_caching", "settings of the prefix cache"),
)
"""What must be the same for a ratio to mean anything, and what it is called where it isn't."""


class Row(msgspec.Struct, frozen=True, kw_only=True):
    """One run of a comparison. The findings are None in the first row, and where there is nothing to make a ratio of.

    ``throughput`` compares output tokens/s, ``host`` and ``host_without_adapt`` the host time of a step. Means over
    the repeats: ``host_us_per_step``, ``host_us_without_adapt`` (None where a repeat lacks it), ``plan_bytes`` and
    ``result_bytes`` over all steps, ``plan_bytes_p50`` of the median step. ``outputs``: whether they equal the first
    run's; "not compared" in the first row, and where no token was produced. ``refused``: payloads, in all repeats.
    """

    run: str
    label: str
    output_tokens_per_s: list[float]
    host_us_per_step: float
    host_us_without_adapt: float | None
    plan_bytes: float
    plan_bytes_p50: float
    result_bytes: float
    throughput: Finding | None
    host: Finding | None
    host_without_adapt: Finding | None
    outputs: Outputs
    refused: int = 0


class Comparison(msgspec.Struct, frozen=True, kw_only=True):
    """Runs against the first of them. ``warnings`` are lines for the reader."""

    schema: str = SCHEMA
    rows: list[Row]
    warnings: list[str]


def compare_runs(runs: Sequence[Run], interval_of: IntervalOf = paired_t) -> Comparison:
    """Compare each with the first, repeat by repeat of the same group.

    Raises:
        ResultsError: they can't be compared; says why. OutputsDifferError: the same batches, or the simulated model,
            gave different outputs.
    """
    _check_different(runs)
    first = runs[0]
    for other in runs[1:]:
        check_comparable(first, other)
    labels = _labels(runs)
    warnings: dict[str, None] = {}
    rows = []
    for run, label in zip(runs, labels, strict=True):
        pairs = [] if run is first else _pairs(first, run)
        outputs, notes = _outputs(pairs, first, run, label)
        warnings.update(dict.fromkeys(notes))
        rows.append(_row(run, label, pairs, outputs, interval_of))
    if len({run.session for run in runs}) > 1:
        warnings["the runs were not measured interleaved: a drift of the machine counts as a difference"] = None
    warnings.update(dict.fromkeys(_version_notes(runs)))
    return Comparison(rows=rows, warnings=list(warnings))


def run_warnings(runs: Sequence[Run]) -> list[str]:
    """What the runs themselves warn about, with the codecs that it holds for; but not that payloads were refused, which
    is a fault.
    """
    by_line: dict[str, list[str]] = {}
    for run in runs:
        for line in run.warnings:
            if line != WARNING:
                by_line.setdefault(line, []).append(run.spec.codec)
    return [line if len(codecs) == len(runs) else f"{', '.join(codecs)}: {line}" for line, codecs in by_line.items()]


def encode_comparison(comparison: Comparison) -> bytes:
    """The comparison as indented JSON with a final newline."""
    return msgspec.json.format(msgspec.json.encode(comparison), indent=2) + b"\n"


# --- what can be compared ------------------------------------------------------------------------------------------


def _check_different(runs: Sequence[Run]) -> None:
    twice = [identity for identity, times in Counter(run.id for run in runs).items() if times > 1]
    if twice:
        raise ResultsError(
            f"{', '.join(twice)} can't be compared with itself: a run is given twice; give another run, or measure a "
            "codec against itself with --aa"
        )


def check_comparable(first: Run, other: Run) -> None:
    """Refuse two runs of which a ratio would say nothing about codecs.

    Raises:
        ResultsError: with all reasons.
    """
    reasons = [
        f"{what} differ ({both(getattr(first.spec, name), getattr(other.spec, name))})"
        for name, what in _SAME_SPEC
        if getattr(first.spec, name) != getattr(other.spec, name)
    ]
    if first.spec.num_blocks != other.spec.num_blocks and (_short_of_blocks(first) or _short_of_blocks(other)):
        reasons.append(f"numbers of KV blocks differ ({first.spec.num_blocks} and {other.spec.num_blocks})")
    if first.weights.fingerprint != other.weights.fingerprint:
        reasons.append(f"weights differ ({first.weights.fingerprint} and {other.weights.fingerprint})")
    reasons += [
        f"{what} ({mine} and {theirs})"
        for what, mine, theirs in (
            ("processors differ", _machine(first)[0], _machine(other)[0]),
            ("numbers of cores differ", _machine(first)[1], _machine(other)[1]),
            ("C++ kernels differ", _kernels(first), _kernels(other)),
        )
        if mine != theirs
    ]
    if not _pairs(first, other):
        reasons.append("they have no group of repeats in common")
    if reasons:
        raise ResultsError(f"{first.id} and {other.id} can't be compared: {'; '.join(reasons)}")


def _short_of_blocks(run: Run) -> bool:
    """Whether the number of blocks had a say in what ran."""
    return run.spec.enable_prefix_caching or any(repeat.preemptions for repeat in run.repeats)


def _machine(run: Run) -> tuple[str, int]:
    return f"{run.environment.cpu}, {run.environment.architecture}", run.environment.cores


def _kernels(run: Run) -> str:
    return "not used" if run.without_kernels else "used"


def _version_notes(runs: Sequence[Run]) -> list[str]:
    notes = []
    for name in sorted(set().union(*(run.environment.versions for run in runs))):
        versions = {run.environment.versions.get(name) for run in runs}
        if len(versions) > 1:
            notes.append(f"versions of {name} differ: {', '.join(sorted(one or 'not installed' for one in versions))}")
    if len({run.environment.python for run in runs}) > 1:
        notes.append(f"versions of Python differ: {', '.join(sorted({run.environment.python for run in runs}))}")
    return notes


# --- rows ----------------------------------------------------------------------------------------------------------


def _pairs(first: Run, other: Run) -> list[tuple[Repeat, Repeat]]:
    """Repeats of the same group, which had the same prompts."""
    theirs = {repeat.group: repeat for repeat in other.repeats}
    return [(repeat, theirs[repeat.group]) for repeat in first.repeats if repeat.group in theirs]


def _row(
    run: Run, label: str, pairs: Sequence[tuple[Repeat, Repeat]], outputs: Outputs, interval_of: IntervalOf
) -> Row:
    return Row(
        run=run.id,
        label=label,
        output_tokens_per_s=[repeat.output_tokens_per_s for repeat in run.repeats],
        host_us_per_step=_mean(run, lambda repeat: repeat.host_us_per_step),
        host_us_without_adapt=_mean_if_known([repeat.host_us_without_adapt for repeat in run.repeats]),
        plan_bytes=_mean(run, lambda repeat: repeat.payload_bytes.plan.mean),
        plan_bytes_p50=_mean(run, lambda repeat: repeat.payload_bytes.plan.p50),
        result_bytes=_mean(run, lambda repeat: repeat.payload_bytes.result.mean),
        throughput=_finding(pairs, lambda repeat: repeat.output_tokens_per_s, True, interval_of),
        host=_finding(pairs, lambda repeat: repeat.host_us_per_step, False, interval_of),
        host_without_adapt=_finding(pairs, lambda repeat: repeat.host_us_without_adapt, False, interval_of),
        outputs=outputs,
        refused=sum(repeat.recoveries for repeat in run.repeats),
    )


def _mean(run: Run, of: Callable[[Repeat], float]) -> float:
    return sum(map(of, run.repeats)) / len(run.repeats)


def _mean_if_known(values: Sequence[float | None]) -> float | None:
    known = [value for value in values if value is not None]
    return sum(known) / len(known) if len(known) == len(values) else None


def _finding(
    pairs: Sequence[tuple[Repeat, Repeat]],
    of: Callable[[Repeat], float | None],
    higher_is_better: bool,
    interval_of: IntervalOf,
) -> Finding | None:
    first, other = [of(mine) or 0.0 for mine, _ in pairs], [of(theirs) or 0.0 for _, theirs in pairs]
    if not pairs or min(*first, *other) <= 0:
        return None
    return judge(first, other, higher_is_better=higher_is_better, interval_of=interval_of)


def _outputs(pairs: Sequence[tuple[Repeat, Repeat]], first: Run, other: Run, label: str) -> tuple[Outputs, list[str]]:
    unequal = [(mine, theirs) for mine, theirs in pairs if mine.outputs_digest != theirs.outputs_digest]
    if not unequal:
        return ("equal" if any(mine.output_tokens for mine, _ in pairs) else "not compared"), []
    groups = ", ".join(str(mine.group) for mine, _ in unequal)
    told = f"outputs of {first.spec.codec} and {label} differ in group {groups}"
    if first.weights.kind == "sim":
        raise OutputsDifferError(f"{told}, and the simulated model's can't: one of the codecs is wrong")
    if any(mine.batches_digest == theirs.batches_digest for mine, theirs in unequal):
        raise OutputsDifferError(f"{told}, although the same batches ran: one of the codecs is wrong")
    return "differ", [f"{told}; other batches ran, so rounding may be the cause"]


def _labels(runs: Sequence[Run]) -> list[str]:
    """What tells the runs apart: their codecs, and whatever else differs; ids where nothing does."""
    varying = [*(["result_format"] if _needs_result_format(runs) else []), *path_apart([run.spec for run in runs])]
    labels = [" ".join(_words(run.spec, varying)) for run in runs]
    return labels if len(set(labels)) == len(labels) else [f"{label} #{i + 1}" for i, label in enumerate(labels)]


def _words(spec: Experiment, varying: Sequence[str]) -> list[str]:
    return [spec.codec, *(str(getattr(spec, name)) for name in varying)]


def _needs_result_format(runs: Sequence[Run]) -> bool:
    """A codec brings its result format along; it tells runs apart only where one codec has two."""
    return any(len({r.spec.result_format for r in runs if r.spec.codec == run.spec.codec}) > 1 for run in runs)
