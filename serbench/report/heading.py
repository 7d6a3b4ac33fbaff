"""The lines above a report that say what ran. It does not know what was measured of it."""

from collections.abc import Sequence
from statistics import median

from rich.text import Text

from serbench.experiment import Experiment
from serbench.report.figures import counted, figure
from serbench.results import Run
from serbench.workload.spec import Arrivals, Dataset, Prompts, Synthetic


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
        ("× is the ratio to the first, with its 95 % interval and verdict", "dim"),
    )


def _model(run: Run) -> Text:
    real = f"weights {run.weights.origin or f'from {run.weights.kind}'}"
    weights = {"dummy": "dummy weights", "sim": "simulated"}.get(run.weights.kind, real)
    return Text.assemble((run.spec.model, "bold"), f"  {weights}, {run.spec.dtype} on {run.spec.device}")


def limits_words(spec: Experiment) -> str:
    """The engine's limits, which decide what a step can hold."""
    blocks = "blocks" if spec.num_blocks is None else counted(spec.num_blocks, "block")
    cache = "prefix cache on" if spec.enable_prefix_caching else "no prefix cache"
    requests, tokens = counted(spec.max_num_seqs, "request"), counted(spec.max_num_batched_tokens, "token")
    return f"up to {requests}, {tokens} a step; {blocks} of {spec.block_size}; {cache}"


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
            return f"{spec.path} ({spec.format}): {tokens}"
        case Prompts() as spec:
            return f"{counted(len(spec.texts), 'prompt')}: {tokens}"


def _arrivals(run: Run) -> str:
    return "" if run.spec.arrivals == Arrivals() else f"\narrivals {run.spec.arrivals}"


def _repeats(run: Run) -> str:
    warm = f"{run.spec.warmup} to warm up" if run.spec.warmup else "no warm-up"
    return f"{counted(len(run.repeats), 'repeat')}, {warm}"
