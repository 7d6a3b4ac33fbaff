"""The plot of bytes: what a plan takes, by context and codec, in a usual step and over all steps.

It does not know how it looks.
"""

from statistics import median

from matplotlib.figure import Figure

from serbench.report.figures import figure
from serbench.report.plots.curves import Axis, Mark, Panel, Row, draw_curves, draw_dots
from serbench.report.plots.places import batch_words, few
from serbench.report.survey import Survey
from serbench.results import Run


def data_size(count: float) -> str:
    """Bytes in the unit that suits them, of 1,000 each."""
    for unit, size in (("MB", 1e6), ("kB", 1e3)):
        if count >= size:
            return f"{count / size:.3g} {unit}"
    return f"{count:.3g} B"


PLAN = Axis("bytes of a plan", data_size)


def draw_payloads(survey: Survey) -> Figure | str:
    """Curves over the context, a column a batch: the median step above, the mean over all steps below."""
    model = survey.hardest.model
    if not any(_usual(run) for point in survey.points for run in point.runs.values()):
        return "nothing was serialized in these runs"
    if len(survey.contexts) < 2:
        runs = survey.hardest.runs
        dots = {name: [Mark(1.0, _overall(run))] for name, run in runs.items() if _overall(run)}
        return draw_dots(Panel(f"{survey.hardest}: mean over all steps", dots), survey.series, PLAN)
    batches = few([batch for batch in survey.batches if len(survey.at(model=model, batch=batch)) > 1])
    if not batches:
        return "no batch was measured at more than one context"
    rows = [
        Row(heading, [_panel(survey, model, batch, usual) for batch in batches])
        for heading, usual in (
            ("the median step", True),
            ("mean over all steps, prefill and admissions included", False),
        )
    ]
    contexts = Axis("prompt tokens of a request", figure, tuple(survey.contexts))
    return draw_curves(rows, survey.series, contexts, PLAN)


def _panel(survey: Survey, model: str, batch: int, usual: bool) -> Panel:
    points = sorted(survey.at(model=model, batch=batch), key=lambda point: point.context)
    of = _usual if usual else _overall
    curves = {
        name: [Mark(float(p.context), of(p.runs[name])) for p in points if name in p.runs and of(p.runs[name])]
        for name in survey.series
    }
    return Panel(batch_words(survey, batch), {name: curve for name, curve in curves.items() if curve})


def _usual(run: Run) -> float:
    return median(repeat.payload_bytes.plan.p50 for repeat in run.repeats)


def _overall(run: Run) -> float:
    return median(repeat.payload_bytes.plan.mean for repeat in run.repeats)
