"""Puts a written report together: summary, plots, tables, warnings, what is left out. It writes no markup."""

from collections.abc import Sequence

import msgspec

from serbench.differences import PATH
from serbench.report.figures import counted, times
from serbench.report.plots.listing import Drawn, NotDrawn
from serbench.report.plots.places import left_out
from serbench.report.record_tables import WordTable, all_tables, all_warnings
from serbench.report.stored_runs import Gathered
from serbench.report.survey import Point, Survey


class Report(msgspec.Struct, frozen=True):
    """All parts of a report, as words. ``summary`` has a paragraph a line."""

    title: str
    summary: list[str]
    plots: list[Drawn]
    tables: list[WordTable]
    warnings: list[str]
    left_out: list[str]


def make_report(gathered: Gathered, survey: Survey, plots: Sequence[Drawn | NotDrawn], failed: Sequence[str]) -> Report:
    """The parts; ``failed`` says which plots could not be drawn, by a fault of ours."""
    missing = [f"{one.plot.title}: {one.why}" for one in plots if isinstance(one, NotDrawn)]
    too_many = left_out(survey)
    return Report(
        title=_title(survey),
        summary=_summary(survey),
        plots=[one for one in plots if isinstance(one, Drawn)],
        tables=all_tables(survey),
        warnings=all_warnings(survey),
        left_out=[*gathered.left_out, *survey.notes, *missing, *([too_many] if too_many else []), *failed],
    )


def _title(survey: Survey) -> str:
    """``on`` where every codec ran with every model."""
    codecs, models = _codecs(survey), list(dict.fromkeys(point.model for point in survey.all_points))
    everywhere = len({(run.spec.codec, run.spec.model) for run in survey.runs}) == len(codecs) * len(models)
    return f"serbench: {_few(codecs, 'codec')}{' on' if everywhere else ';'} {_few(models, 'model')}"


def _codecs(survey: Survey) -> list[str]:
    names = [name for one in (survey, *survey.others) for name in one.series]
    found = {run.spec.codec for run in survey.runs}
    return sorted(found, key=lambda codec: next(i for i, name in enumerate(names) if name.split(" ")[0] == codec))


def _few(names: Sequence[str], what: str) -> str:
    return ", ".join(names) if len(names) <= 6 and len(", ".join(names)) <= 60 else counted(len(names), what)


def _summary(survey: Survey) -> list[str]:
    repeats = sum(len(run.repeats) for run in survey.runs)
    days = sorted({run.created[:10] for run in survey.runs})
    when = days[0] if len(days) == 1 else f"{days[0]} to {days[-1]}"
    codecs = _codecs(survey)
    lines = [
        f"{counted(len(survey.runs), 'run')} with {counted(repeats, 'repeat')}, measured {when} (UTC): "
        f"{counted(len(codecs), 'codec')} ({', '.join(codecs)}), {_places(survey)}."
    ]
    lines += [line for one in (survey, *survey.others) for line in _headline(one.hardest)]
    kinds = {run.weights.kind for run in survey.runs}
    if "sim" in kinds:
        lines.append("The simulated model takes the time it is told to; what it samples depends on all it was sent.")
    origins = {(run.spec.model, run.weights.origin) for run in survey.runs if run.weights.origin is not None}
    lines += [f"Weights of {model}: {origin}." for model, origin in sorted(origins)]
    if "dummy" in kinds:
        lines.append("Dummy weights: times are those of the model, outputs mean nothing.")
    return lines


def _places(survey: Survey) -> str:
    points = survey.all_points
    paths = {tuple(getattr(run.spec, name) for name in PATH) for run in survey.runs}
    batches, contexts = ({getattr(point, name) for point in points} for name in ("batch", "context"))
    return ", ".join(
        (
            *([counted(len(paths), "path")] if len(paths) > 1 else []),
            counted(len({point.model for point in points}), "model"),
            counted(len(batches), "batch size"),
            counted(len(contexts), "context"),
        )
    )


def _headline(point: Point) -> list[str]:
    """The best ratio with its interval where there is most to tell the workers."""
    comparison, _ = point.compared
    found = (
        [(name, row.throughput) for name, row in zip(point.series, comparison.rows, strict=True)] if comparison else []
    )
    known = [(name, finding) for name, finding in found if finding is not None and finding.low is not None]
    if not known:
        return []
    name, best = max(known, key=lambda one: one[1].ratio)
    interval = f"{times(best.low or 0)} to {times(best.high or 0)}"
    return [
        f"Where the scheduler has most to tell ({point}), {name} gives {times(best.ratio)} times the throughput of "
        f"{point.baseline} (95 % interval {interval}: {best.verdict})."
    ]
