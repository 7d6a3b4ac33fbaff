"""Makes the table of a sweep from what is stored: a row a point, each against the first codec. It measures nothing.

Its rows depend on the stored runs alone, so that a sweep that was interrupted has the same ones, times aside.
"""

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Final, Literal, TypeAlias

import msgspec

from serbench.comparison import Row, compare_runs
from serbench.errors import OutputsDifferError, ResultsError
from serbench.report.figures import counted
from serbench.results import Repeat, Run
from serbench.sweep.grid import references
from serbench.sweep.manifest import Manifest
from serbench.sweep.schedule import schedule

SCHEMA: Final = "serbench/sweep-table/1"

State: TypeAlias = Literal["done", "unfinished", "failed"]


class SweepRow(msgspec.Struct, frozen=True, kw_only=True):
    """One point. ``figures`` compares it with ``reference`` (itself, where it has none), None before its first repeat.

    Totals over the repeats: ``steps``, ``preemptions``, ``input_tokens``, ``output_tokens``, ``plan_bytes``,
    ``result_bytes``. ``note``: why it failed, or what is wrong with its outputs.
    """

    point: str
    values: dict[str, str]
    state: State
    repeats: int
    steps: int
    preemptions: int
    input_tokens: int
    output_tokens: int
    plan_bytes: int
    result_bytes: int
    outputs_digest: str
    reference: str | None
    figures: Row | None
    outputs_wrong: bool = False
    note: str = ""


class SweepTable(msgspec.Struct, frozen=True, kw_only=True):
    """All points in the grid's order. ``warnings`` are lines for the reader."""

    schema: str = SCHEMA
    id: str
    rows: list[SweepRow]
    warnings: list[str]

    @property
    def is_sound(self) -> bool:
        """Whether every point was measured in full and no outputs are wrong."""
        return all(row.state == "done" and not row.outputs_wrong for row in self.rows)


def tabulate(
    manifest: Manifest, runs: Mapping[str, Run], impossible: Mapping[int, Exception] | None = None
) -> SweepTable:
    """The table of what is stored; ``impossible``: points that can't be measured, by number."""
    reasons = {failure.point: failure.reason for failure in manifest.failures}
    reasons.update({manifest.points[i].id: str(error) for i, error in (impossible or {}).items()})
    warnings: dict[str, None] = {}
    rows = []
    for i, reference in enumerate(references(manifest.points)):
        rows.append(_row(manifest, runs, i, reference, reasons, warnings))
    warnings.update(dict.fromkeys(_apart(manifest, runs)))
    warnings.update(dict.fromkeys(_of_points(runs)))
    return SweepTable(id=manifest.id, rows=rows, warnings=list(warnings))


def encode_table(table: SweepTable) -> bytes:
    """The table as indented JSON with a final newline."""
    return msgspec.json.format(msgspec.json.encode(table), indent=2) + b"\n"


def _row(
    manifest: Manifest,
    runs: Mapping[str, Run],
    i: int,
    reference: int | None,
    reasons: Mapping[str, str],
    warnings: dict[str, None],
) -> SweepRow:
    point = manifest.points[i]
    run = runs.get(point.id)
    base = None if reference is None else runs.get(manifest.points[reference].id)
    note, figures, wrong = reasons.get(point.id, ""), None, False
    if run is not None:
        try:
            comparison = compare_runs([run] if base is None else [base, run])
            figures = comparison.rows[-1]
            warnings.update(dict.fromkeys(comparison.warnings))
        except OutputsDifferError as error:
            note, wrong = str(error), True
        except ResultsError as error:
            figures, note = compare_runs([run]).rows[0], note or str(error)
    repeats = run.repeats if run is not None else []
    state: State = "failed" if point.id in reasons else "done"
    return SweepRow(
        point=point.id,
        values=point.values,
        state="unfinished" if state == "done" and len(repeats) < point.experiment.repeats else state,
        repeats=len(repeats),
        steps=sum(repeat.steps for repeat in repeats),
        preemptions=sum(repeat.preemptions for repeat in repeats),
        input_tokens=sum(repeat.input_tokens for repeat in repeats),
        output_tokens=sum(repeat.output_tokens for repeat in repeats),
        plan_bytes=sum(repeat.payload_bytes.plan.total for repeat in repeats),
        result_bytes=sum(repeat.payload_bytes.result.total for repeat in repeats),
        outputs_digest=run.outputs_digest if run is not None else "",
        reference=None if reference is None else manifest.points[reference].id,
        figures=figures,
        outputs_wrong=wrong,
        note=note,
    )


def _apart(manifest: Manifest, runs: Mapping[str, Run]) -> list[str]:
    """Pairs of which an interruption came between the two passes: their ratio holds what changed meanwhile."""
    orders = {
        (one.point, one.group): one.order
        for visit in schedule([point.experiment for point in manifest.points], manifest.stay)
        for one in visit
    }
    already = [set(sitting.already) for sitting in manifest.sittings]
    pairs = [
        (orders[reference, repeat.group], orders[i, repeat.group])
        for i, reference in enumerate(references(manifest.points))
        if reference is not None
        for repeat in _repeats(runs, manifest.points[i].id)
    ]
    apart = sum(any((a in stored) != (b in stored) for stored in already) for a, b in pairs)
    if not apart:
        return []
    told = f"{apart} of {counted(len(pairs), 'pair')} {'was' if apart == 1 else 'were'} measured apart"
    return [f"{told}: the sweep was interrupted between the two passes"]


def _of_points(runs: Mapping[str, Run]) -> list[str]:
    """What the runs themselves warn about, with how many of them do."""
    counts = Counter(line for run in runs.values() for line in run.warnings)
    return [f"{line} ({count} of {len(runs)} points)" for line, count in counts.items()]


def _repeats(runs: Mapping[str, Run], point: str) -> Sequence[Repeat]:
    run = runs.get(point)
    return run.repeats if run is not None else []
