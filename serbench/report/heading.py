"""The lines above a report that say what ran. It does not know what was measured of it."""

from collections.abc import Sequence
from statistics import median

from rich.text import Text

from serbench.experiment import Experiment
from serbench.report.figures import counted, figure
from serbench.report.survey import num_requests
from serbench.results import Run
from serbench.workload.spec import Arrivals, Dataset, Prompts, Synthetic
from serbench_engine.models.config import SimConfig
from serbench_engine.models.simulated_spec import parse_simulated


def run_heading(run: Run) -> Text:
    """Model, path of the payloads and workload of a run with at least one repeat."""
    spec = run.spec
    workers = f", {spec.workers} workers" if spec.workers > 1 else ""
    return Text.assemble(
        _model(run),
        "\n",
        (f"codec {spec.codec}", "bold"),
        f"  results {spec.result_format}, transport {spec.transport}, executor {spec.executor}{workers}\n",
        (f"{_workload(run)}; {_repeats(run)}{_arrivals(run)}\n{_limits(run)}", "dim"),
    )


def comparison_heading(runs: Sequence[Run]) -> Text:
    """What runs that are compared have in common, and how the table is read."""
    first = runs[0]
    paths = {f"transport {run.spec.transport}, executor {run.spec.executor}" for run in runs}
    path = f"{paths.pop()}\n" if len(paths) == 1 else ""
    together = ", interleaved" if len({run.session for run in runs}) == 1 else ""
    return Text.assemble(
        _model(first),
        "\n",
        path,
        (f"{_workload(first)}; {_repeats(first)}{together}{_arrivals(first)}\n{_limits(first)}\n", "dim"),
        (f"{steps_words(runs)} a repeat\n", "dim"),
        ("× is the ratio to the first, with its 95 % interval and verdict", "dim"),
    )


def _model(run: Run) -> Text:
    if run.weights.kind == "sim":
        return Text.assemble((run.spec.model, "bold"), f"  simulated: {_step_time(parse_simulated(run.spec.model))}")
    real = f"weights {run.weights.origin or f'from {run.weights.kind}'}"
    weights = "dummy weights" if run.weights.kind == "dummy" else real
    return Text.assemble((run.spec.model, "bold"), f"  {weights}, {run.spec.dtype} on {run.spec.device}")


def _step_time(config: SimConfig) -> str:
    step = f"a step takes {figure(config.step_us / 1e3)} ms"
    return f"{step} and {figure(config.token_us)} µs a token" if config.token_us else step


def limits_words(spec: Experiment) -> str:
    """The engine's limits, which decide what a step can hold."""
    blocks = "blocks" if spec.num_blocks is None else counted(spec.num_blocks, "block")
    cache = "prefix cache on" if spec.enable_prefix_caching else "no prefix cache"
    requests, tokens = counted(spec.max_num_seqs, "request"), counted(spec.max_num_batched_tokens, "token")
    return f"up to {requests}, {tokens} a step; {blocks} of {spec.block_size}; {cache}"


def steps_words(runs: Sequence[Run]) -> str:
    """Steps a repeat and the requests in one: medians over each run's repeats, a range where runs have others."""
    steps = [median(repeat.steps for repeat in run.repeats) for run in runs]
    known = [[one.batch_sizes.mean for one in run.repeats if one.batch_sizes is not None] for run in runs]
    words = f"{_range(steps)} step{'' if set(steps) == {1} else 's'}"
    if not all(known):
        return words
    batches = [median(sizes) for sizes in known]
    return f"{words} of {_range(batches)} request{'' if set(batches) == {1} else 's'} on average"


def _range(values: Sequence[float]) -> str:
    low, high = figure(min(values)), figure(max(values))
    return low if low == high else f"{low} to {high}"


def _limits(run: Run) -> str:
    """With what the prefix cache saved, if it was on."""
    found = [repeat.cached_tokens for repeat in run.repeats if repeat.cached_tokens is not None]
    if not run.spec.enable_prefix_caching or not found:
        return limits_words(run.spec)
    return f"{limits_words(run.spec)}, {figure(median(found))} tokens found in it a repeat"


def _workload(run: Run) -> str:
    tokens = f"{counted(run.repeats[0].input_tokens, 'token')} in, {run.repeats[0].output_tokens:,} out"
    match run.spec.workload:
        case Synthetic() as spec:
            return f"{counted(spec.num_prompts, 'random prompt')}: {tokens}"
        case Dataset() as spec:
            return f"{counted(num_requests(run), 'request')} of {spec.path} ({spec.format}): {tokens}"
        case Prompts() as spec:
            return f"{counted(len(spec.texts), 'prompt')}: {tokens}"


def _arrivals(run: Run) -> str:
    return "" if run.spec.arrivals == Arrivals() else f"\narrivals {run.spec.arrivals}"


def _repeats(run: Run) -> str:
    warm = f"{run.spec.warmup} to warm up" if run.spec.warmup else "no warm-up"
    return f"{counted(len(run.repeats), 'repeat')}, {warm}"
