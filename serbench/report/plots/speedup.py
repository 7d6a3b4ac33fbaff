"""The plot of speed-up over the baseline by the model's step time, with paired intervals. It does no layout.

That is the question's second half: how much faster does the engine go, and up to which model does it matter?
"""

from matplotlib.figure import Figure

from serbench.report.plots.curves import Axis, Mark, Panel, Row, draw_curves
from serbench.report.plots.panels import short
from serbench.report.plots.places import batch_words, context_words, filled
from serbench.report.survey import Survey


def draw_speedup(survey: Survey) -> Figure | str:
    """Curves over the model's step time, columns by batch, rows by context."""
    if len(survey.models) < 2:
        return f"all runs have the same model, {survey.models[0]}: the model's step time does not vary"
    panels = {(c, batch): _panel(survey, batch, c) for c in survey.contexts for batch in survey.batches}
    if not any(panel.curves for panel in panels.values()):
        return f"nothing can be compared with {survey.baseline}: {_why(survey)}"
    if not any(map(_vary, panels.values())):
        return "no batch and context was measured with the same two codecs and more than one model"
    contexts, batches = filled(survey.contexts, survey.batches, lambda c, batch: _vary(panels[c, batch]))
    rows = [Row(context_words(survey, c), [panels[c, batch] for batch in batches]) for c in contexts]
    model_step = Axis("model step: forward + sample, measured, ms", lambda ms: f"{ms:g}")
    ratio = Axis(f"throughput, times {short(survey.baseline)}", lambda value: f"{value:g}×")
    return draw_curves(rows, survey.series, model_step, ratio, base_line=1.0, side="left")


def _why(survey: Survey) -> str:
    return next((why for point in survey.points if (why := point.compared[1])), "no ratios")


def _vary(panel: Panel) -> bool:
    """Whether it shows anything over the model's step time."""
    return any(len(curve) > 1 for curve in panel.curves.values())


def _panel(survey: Survey, batch: int, context: int) -> Panel:
    points = [point for point in survey.at(batch=batch, context=context) if point.baseline == survey.baseline]
    points.sort(key=lambda point: point.model_step_us)
    curves: dict[str, list[Mark]] = {}
    for point in points:
        comparison, _ = point.compared
        for name, row in zip(point.series[1:], comparison.rows[1:] if comparison else [], strict=False):
            if row.throughput is not None:
                found = row.throughput
                curves.setdefault(name, []).append(Mark(point.model_step_us / 1e3, found.ratio, found.low, found.high))
    return Panel(batch_words(survey, batch), {name: curves[name] for name in survey.series if name in curves})
