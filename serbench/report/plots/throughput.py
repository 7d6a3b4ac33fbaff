"""The plot of throughput: output tokens/s by batch and codec, with intervals. It does not know how it looks."""

import numpy as np
from matplotlib.figure import Figure

from serbench.report.figures import figure
from serbench.report.plots.curves import Axis, Mark, Panel, Row, draw_curves, draw_dots
from serbench.report.plots.places import context_words, filled, model_words
from serbench.report.survey import Point, Survey
from serbench.results import Run
from serbench.stats import MIN_PAIRS, paired_t

TOKENS = Axis("output tokens/s", figure)


def draw_throughput(survey: Survey) -> Figure:
    """Curves over the batch; dots a codec where there is one batch."""
    if len(survey.batches) < 2:
        return draw_dots(_dots(survey.hardest), survey.series, TOKENS)
    contexts, models = filled(survey.contexts, survey.models, lambda c, model: bool(survey.at(model=model, context=c)))
    rows = [Row(context_words(survey, c), [_panel(survey, model, c) for model in models]) for c in contexts]
    batches = Axis("requests at once (at most)", figure, tuple(survey.batches))
    return draw_curves(rows, survey.series, batches, TOKENS)


def _panel(survey: Survey, model: str, context: int) -> Panel:
    points = survey.at(model=model, context=context)
    curves = {
        name: [_mark(float(point.batch), point.runs[name]) for point in points if name in point.runs]
        for name in survey.series
    }
    found = {name: curve for name, curve in curves.items() if curve}
    return Panel(model_words(survey, model), found)


def _dots(point: Point) -> Panel:
    return Panel(str(point), {name: [_mark(1.0, run)] for name, run in point.runs.items()})


def _mark(x: float, run: Run) -> Mark:
    """The geometric mean of the repeats with its 95 % interval, from as many repeats as that needs."""
    values = [repeat.output_tokens_per_s for repeat in run.repeats]
    logs = np.log(np.asarray(values, dtype=np.float64))
    center = float(np.exp(logs.mean()))
    if len(values) < MIN_PAIRS:
        return Mark(x, center, raw=tuple(values))
    half = float(paired_t(logs).half)
    return Mark(x, center, center * float(np.exp(-half)), center * float(np.exp(half)), tuple(values))
