"""Lays stored runs out as points of a grid (model, batch, context) with one run a series (codec) at each.

It does not know how points are drawn or told.
"""

from collections import Counter
from collections.abc import Mapping, Sequence
from functools import cached_property
from statistics import median, mode
from typing import Final

import msgspec

from serbench.comparison import Comparison, compare_runs
from serbench.differences import PATH, differing, in_words, path_apart
from serbench.errors import SerbenchError
from serbench.experiment import Experiment
from serbench.report.figures import counted
from serbench.results import Run
from serbench.workload.spec import Dataset, LengthRange, Synthetic
from serbench_engine.models.simulated_spec import is_simulated, parse_simulated

CODECS: Final = ("none", "pickle", "cloudpickle", "msgspec", "delta", "cached", "columnar")
"""The order in which codecs are shown; others come after them, by name."""

BASELINES: Final = ("pickle", "cloudpickle", "msgspec", "delta", "cached", "columnar")
"""What the others at a place are compared with, if the user does not say: the first of these that is there."""

_ONE: Final = LengthRange(1, 1)
_USUAL: Final = Experiment()

_FREE: Final = (
    "model",
    "tokenizer",
    "codec",
    "result_format",
    "max_num_seqs",
    "max_model_len",
    "num_blocks",
    "kv_memory_share",
    "repeats",
    "warmup",
    "step_timeout_s",
)
"""Fields in which runs of one picture may differ."""


class Point:
    """One place in the grid: ``runs`` by series, in the order in which series are shown.

    ``batch``: how many requests could run at once; ``context``: prompt tokens of a request, on average;
    ``setting``: what tells it from places of other surveys; ``baseline``: the series that the others are compared
    with, None if it isn't there; ``model_step_us``: median over the runs of the mean time of forward and sample.
    """

    def __init__(self, place: tuple[str, int, int], setting: str, runs: dict[str, Run], baseline: str | None) -> None:
        self.model, self.batch, self.context = place
        self.setting = setting
        self.runs = runs
        self.baseline = baseline
        self.model_step_us = median(_model_us(run) for run in runs.values())

    @cached_property
    def compared(self) -> tuple[Comparison | None, str]:
        """All runs against the baseline's, by series in the order of ``series``; or why there is no comparison."""
        if self.baseline is None or len(self.runs) < 2:
            return None, "there is no other codec to compare with"
        try:
            return compare_runs([self.runs[name] for name in self.series]), ""
        except SerbenchError as error:
            return None, str(error)

    @property
    def series(self) -> list[str]:
        """The baseline first, then the others in the order in which they are shown."""
        first = [self.baseline] if self.baseline is not None else []
        return [*first, *(name for name in self.runs if name != self.baseline)]

    def __str__(self) -> str:
        place = f"{self.model}, {counted(self.batch, 'request')} at once, {self.context:,} prompt tokens"
        return f"{place}, {self.setting}" if self.setting else place


class Survey:
    """Every run, and those that can stand in one grid. ``notes``: a line for whatever the grid leaves out.

    ``others``: a survey for each further setting, since its runs have no place in this grid; ``setting`` says what
    tells this one's from theirs. ``baseline``: what the others are compared with, at most places if not at all.
    """

    def __init__(self, runs: Sequence[Run], baseline: str | None = None, setting: str = "") -> None:
        self.runs = list(runs)
        self.notes: list[str] = []
        kept, *rest = _by_setting(self.runs)
        self.setting = setting or _set_apart(kept, rest)
        self.others = [Survey(runs, baseline, _set_apart(runs, [kept])) for runs in rest]
        self._names = _series_names(kept)
        self.series = sorted({self._names[run.id] for run in kept}, key=_place)
        self.points = self._points(kept, baseline)
        if baseline is not None and all(point.baseline is None for point in self.points):
            self.notes.append(f"no run of {baseline}{self._here}, so nothing is compared with it")
        found = [point.baseline for point in self.points if len(point.runs) > 1 and point.baseline is not None]
        self.baseline = mode(found) if found else baseline or min(self.series, key=rank)
        quickest = {model: place for place, model in enumerate(self.models)}
        self.points.sort(key=lambda point: (quickest[point.model], point.batch, point.context))
        self.notes += [line for other in self.others for line in (_not_plotted(other), *other.notes)]

    @property
    def all_points(self) -> list[Point]:
        """Its own, then those of the other settings."""
        return [*self.points, *(point for other in self.others for point in other.points)]

    @property
    def models(self) -> list[str]:
        """By the time of their steps, the quickest first."""
        names = {point.model for point in self.points}
        times = {name: median(point.model_step_us for point in self.points if point.model == name) for name in names}
        return sorted(times, key=lambda name: (times[name], name))

    @property
    def batches(self) -> list[int]:
        return sorted({point.batch for point in self.points})

    @property
    def contexts(self) -> list[int]:
        return sorted({point.context for point in self.points})

    @property
    def in_order(self) -> list[Run]:
        """All runs, place by place and series by series, then those that are in no place."""
        placed = [run for point in self.all_points for run in point.runs.values()]
        known = {run.id for run in placed}
        return [*placed, *(run for run in self.runs if run.id not in known)]

    def at(self, *, model: str | None = None, batch: int | None = None, context: int | None = None) -> list[Point]:
        """The points that have what is given."""
        return [
            point
            for point in self.points
            if (model is None or point.model == model)
            and (batch is None or point.batch == batch)
            and (context is None or point.context == context)
        ]

    @property
    def hardest(self) -> Point:
        """Where the scheduler has most to tell the workers, the model leaving it the least time.

        Of the places with two series or more, if there are any: the most requests at once, the longest context there,
        the quickest model there.
        """
        quickest = {model: place for place, model in enumerate(self.models)}
        several = [point for point in self.points if len(point.runs) > 1] or self.points
        return max(several, key=lambda point: (point.batch, point.context, -quickest[point.model]))

    @property
    def _here(self) -> str:
        return f" with {self.setting}" if self.setting else ""

    def _points(self, runs: Sequence[Run], baseline: str | None) -> list[Point]:
        places: dict[tuple[str, int, int], dict[str, Run]] = {}
        again = 0
        for run in sorted(runs, key=lambda run: run.created):
            place = places.setdefault((run.spec.model, batch_limit(run), mean_context(run)), {})
            again += self._names[run.id] in place
            place[self._names[run.id]] = run
        if again:
            self.notes.append(
                f"{counted(again, 'run')} measured again later{self._here}: plots and ratios are of the latest, the "
                "other tables hold all"
            )
        found = {place: {name: runs[name] for name in self.series if name in runs} for place, runs in places.items()}
        often = Counter(name for runs in found.values() if len(runs) > 1 for name in runs)
        return [Point(place, self.setting, runs, _first(runs, baseline, often)) for place, runs in found.items()]


def batch_limit(run: Run) -> int:
    """How many requests could run at once: as many as there were, or as a limit allowed."""
    limits = (run.spec.max_num_seqs, run.spec.arrivals.max_concurrency)
    return min(num_requests(run), *(limit for limit in limits if limit is not None))


def num_requests(run: Run) -> int:
    """How many requests a repeat had."""
    return round(run.repeats[0].requests_per_s * run.repeats[0].wall_s)


def mean_context(run: Run) -> int:
    """Prompt tokens of a request: the middle of what was asked for where lengths were drawn, else what they were."""
    match run.spec.workload:
        case Synthetic() as spec:
            return round((spec.input_len.low + spec.input_len.high) / 2)
        case _:
            tokens = sum(repeat.input_tokens for repeat in run.repeats)
            return round(tokens / max(1, num_requests(run) * len(run.repeats)))


def model_label(model: str) -> str:
    """A simulated model by the time of its step, others by name, a folder's last part of it."""
    if is_simulated(model):
        config = parse_simulated(model)
        if not config.token_us:
            return f"model step {config.step_us / 1e3:g} ms"
    return model.rstrip("/").rpartition("/")[2] if model.startswith(("/", ".", "~")) else model


def _model_us(run: Run) -> float:
    return median(repeat.phases_us["forward"].mean + repeat.phases_us["sample"].mean for repeat in run.repeats)


# --- what runs may differ in ----------------------------------------------------------------------------------------


def _setting(spec: Experiment) -> Experiment:
    """The experiment without what series and axes are made of, and what has no say in the figures."""
    workload = spec.workload
    if isinstance(workload, Synthetic):
        workload = msgspec.structs.replace(workload, num_prompts=1, input_len=_ONE)
    elif isinstance(workload, Dataset):
        workload = msgspec.structs.replace(workload, num_prompts=1)
    arrivals = msgspec.structs.replace(spec.arrivals, max_concurrency=None)
    usual = {name: getattr(_USUAL, name) for name in (*PATH, *_FREE)}
    return msgspec.structs.replace(spec, workload=workload, arrivals=arrivals, **usual)


def _by_setting(runs: Sequence[Run]) -> list[list[Run]]:
    """Runs that differ only in a grid's axes and its series together, the setting of most runs first."""
    found: dict[tuple[bytes, bool], list[Run]] = {}
    for run in runs:
        found.setdefault((msgspec.json.encode(_setting(run.spec)), bool(run.without_kernels)), []).append(run)
    return sorted(found.values(), key=len, reverse=True)


def _set_apart(runs: Sequence[Run], others: Sequence[Sequence[Run]]) -> str:
    """What of the runs' setting is different from the others'."""
    mine = _setting(runs[0].spec)
    found = {name: value for theirs in others for name, value, _ in differing(mine, _setting(theirs[0].spec))}
    words = [f"{name} {in_words(value)}" for name, value in found.items()]
    kernels = bool(runs[0].without_kernels)
    if any(bool(theirs[0].without_kernels) != kernels for theirs in others):
        words.append("no C++ kernels" if kernels else "C++ kernels")
    return ", ".join(words)


def _not_plotted(other: Survey) -> str:
    return f"{counted(len(other.runs), 'run')} with {other.setting}: in tables only, plots are of one setting"


# --- series ---------------------------------------------------------------------------------------------------------


def _series_names(runs: Sequence[Run]) -> dict[str, str]:
    """By run id: its codec, and whatever else the runs' paths differ in."""
    varying = path_apart([run.spec for run in runs])
    formats: dict[str, set[str | None]] = {}
    for run in runs:
        formats.setdefault(run.spec.codec, set()).add(run.spec.result_format)
    names = {}
    for run in runs:
        words = [run.spec.codec, *(str(getattr(run.spec, name)) for name in varying)]
        if len(formats[run.spec.codec]) > 1:
            words.append(f"results {run.spec.result_format}")
        names[run.id] = " ".join(words)
    return names


def _place(series: str) -> tuple[int, str]:
    codec = series.split(" ")[0].split(":")[0]
    return (CODECS.index(codec) if codec in CODECS else len(CODECS), series)


def rank(series: str) -> int:
    """How soon the series, named by its codec first, is what others are compared with."""
    return BASELINES.index(series.split(" ")[0]) if series.split(" ")[0] in BASELINES else len(BASELINES)


def _first(runs: dict[str, Run], asked: str | None, often: Mapping[str, int]) -> str | None:
    """The series that the others at a place are compared with: of a codec's series the one that is at most places."""
    if asked is not None:
        fit = [name for name in runs if asked in (name, name.split(" ")[0])]
    else:
        fit = [name for name in runs if rank(name) == min(map(rank, runs))]
    return max(fit, key=lambda name: often[name], default=None)
