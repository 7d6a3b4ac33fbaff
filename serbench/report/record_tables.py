"""What a written report says in tables (runs, ratios, phases, repeats, environments) and in warnings, as plain words.

It does not know whether they become HTML or Markdown.
"""

import re
from collections.abc import Sequence
from statistics import median
from typing import Final

import msgspec

from serbench.report.figures import counted, figure, seconds, share, times
from serbench.report.heading import limits_words
from serbench.report.survey import Point, Survey, batch_limit, mean_context
from serbench.results import MODEL_PHASES, Latency, Repeat, Run
from serbench.stats import Finding

NOT_MEASURED: Final = "–"

_NUMBER: Final = re.compile(r"\d+(?:\.\d+)?", re.ASCII)


class WordTable(msgspec.Struct, frozen=True):
    """A table; ``words`` says how many of its columns, from the left, hold words and not figures."""

    title: str
    note: str
    columns: list[str]
    rows: list[list[str]]
    words: int = 1
    long: bool = False


def all_tables(survey: Survey) -> list[WordTable]:
    """In the order in which they are shown; those that would be empty are left out."""
    tables = (
        runs_table(survey.in_order),
        ratios_table(survey.all_points),
        phases_table(survey.in_order),
        repeats_table(survey.in_order),
        environments_table(survey.runs),
    )
    return [table for table in tables if table.rows]


def runs_table(runs: Sequence[Run]) -> WordTable:
    """One run a row: medians over its repeats."""
    columns = ["model", "codec", "requests at once", "mean batch", "prompt tokens", "repeats", "output tokens/s"]
    columns += ["min … max", "host µs a step", "without adapt", "plan bytes, mean step", "plan bytes, median step"]
    columns += ["result bytes, mean step", "scheduler CPU s", "workers CPU s", "preemptions", "cached tokens"]
    columns += ["limits", "path", "run"]
    note = (
        "Medians over the repeats. Requests at once: the most that could run. Bytes of the mean step hold admissions "
        "with their whole prompts. Cached tokens were found in the prefix cache."
    )
    return WordTable("Runs", note, columns, [_run_row(run) for run in runs], words=2)


def _run_row(run: Run) -> list[str]:
    spec, repeats = run.spec, run.repeats
    rates = [repeat.output_tokens_per_s for repeat in repeats]
    batches = [None if repeat.batch_sizes is None else repeat.batch_sizes.mean for repeat in repeats]
    figures: tuple[Sequence[float | None], ...] = (
        [repeat.host_us_per_step for repeat in repeats],
        [repeat.host_us_without_adapt for repeat in repeats],
        [repeat.payload_bytes.plan.mean for repeat in repeats],
        [repeat.payload_bytes.plan.p50 for repeat in repeats],
        [repeat.payload_bytes.result.mean for repeat in repeats],
        [repeat.cpu_s.scheduler for repeat in repeats],
        [repeat.cpu_s.workers for repeat in repeats],
        [repeat.preemptions for repeat in repeats],
        [repeat.cached_tokens for repeat in repeats],
    )
    return [
        spec.model,
        spec.codec,
        figure(batch_limit(run)),
        _median(batches),
        figure(mean_context(run)),
        f"{len(repeats)} of {spec.repeats}" if len(repeats) != spec.repeats else str(spec.repeats),
        figure(median(rates)),
        f"{figure(min(rates))} … {figure(max(rates))}",
        *map(_median, figures),
        limits_words(spec),
        f"{spec.transport}, {spec.executor}, results {spec.result_format}",
        run.id,
    ]


def _median(values: Sequence[float | None]) -> str:
    known = [value for value in values if value is not None]
    return figure(median(known)) if known else NOT_MEASURED


def ratios_table(points: Sequence[Point]) -> WordTable:
    """Every series against the baseline, place by place."""
    columns = ["place", "codec", "throughput", "95 %", "verdict", "host time", "95 %", "verdict"]
    columns += ["host time without adapt", "95 %", "verdict", "outputs"]
    baselines = sorted({point.baseline for point in points if point.baseline is not None})
    note = (
        f"To {' or '.join(baselines)}, paired repeat by repeat: geometric means of the pairs' ratios, so not "
        "quotients of the medians above. Above 1 is better for throughput, below 1 for time."
    )
    rows = [row for point in points for row in _ratio_rows(point, say_to=len(baselines) > 1)]
    return WordTable("Ratios", note, columns, rows, words=2)


def _ratio_rows(point: Point, *, say_to: bool) -> list[list[str]]:
    comparison, why = point.compared
    if comparison is None:
        return [[str(point), "", why, *[""] * 9]] if len(point.runs) > 1 else []
    to = f" to {point.baseline}" if say_to else ""
    return [
        [
            str(point),
            f"{name}{to}",
            *_told(row.throughput),
            *_told(row.host),
            *_told(row.host_without_adapt),
            row.outputs,
        ]
        for name, row in zip(point.series[1:], comparison.rows[1:], strict=True)
    ]


def _told(finding: Finding | None) -> list[str]:
    if finding is None:
        return ["–", "–", "–"]
    known = finding.low is not None and finding.high is not None
    interval = f"{times(finding.low or 0)} … {times(finding.high or 0)}" if known else "–"
    return [f"×{times(finding.ratio)}", interval, finding.verdict]


def phases_table(runs: Sequence[Run]) -> WordTable:
    """Mean µs a step of every phase."""
    names = list(dict.fromkeys(name for run in runs for repeat in run.repeats for name in repeat.phases_us))
    rows = [[run.id, run.spec.codec, *_phase_means(run.repeats, names)] for run in runs]
    note = "Mean µs over all steps of all repeats; together they are the step."
    return WordTable("Phases of a step", note, ["run", "codec", *names, "step", "host share"], rows, words=2, long=True)


def _phase_means(repeats: Sequence[Repeat], names: Sequence[str]) -> list[str]:
    steps = max(1, sum(repeat.steps for repeat in repeats))
    means = {
        name: sum(repeat.phases_us[name].total for repeat in repeats) / steps
        for name in names
        if all(name in repeat.phases_us for repeat in repeats)
    }
    step = sum(means.values())
    host = step - sum(means[name] for name in MODEL_PHASES)
    cells = [figure(means[name]) if name in means else NOT_MEASURED for name in names]
    return [*cells, figure(step), share(host, step)]


def repeats_table(runs: Sequence[Run]) -> WordTable:
    """Every repeat as it was measured."""
    columns = ["run", "codec", "outputs", "repeat", "order", "wall time", "steps", "tokens in", "tokens out"]
    columns += ["output tokens/s", "host µs a step", "plan bytes", "TTFT p50", "TTFT p99", "TPOT p50", "TPOT p99"]
    columns += ["E2E p50", "E2E p99", "scheduler CPU s", "workers CPU s"]
    rows = [[run.id, run.spec.codec, *_repeat_row(repeat)] for run in runs for repeat in run.repeats]
    note = "Raw figures; order: the turn among all repeats measured together; outputs: a digest of all tokens."
    return WordTable("Raw repeats", note, columns, rows, words=3, long=True)


def _repeat_row(repeat: Repeat) -> list[str]:
    latency = repeat.latency_s
    return [
        repeat.outputs_digest[:8],
        str(repeat.group),
        str(repeat.order),
        seconds(repeat.wall_s),
        figure(repeat.steps),
        figure(repeat.input_tokens),
        figure(repeat.output_tokens),
        figure(repeat.output_tokens_per_s),
        figure(repeat.host_us_per_step),
        figure(repeat.payload_bytes.plan.total),
        *(_latency(one, which) for one in (latency.ttft, latency.tpot, latency.e2e) for which in ("p50", "p99")),
        figure(repeat.cpu_s.scheduler),
        figure(repeat.cpu_s.workers),
    ]


def _latency(latency: Latency | None, which: str) -> str:
    return "–" if latency is None else seconds(getattr(latency, which))


def environments_table(runs: Sequence[Run]) -> WordTable:
    """What the runs ran on, a column an environment; loads are those before each first repeat."""
    found: dict[str, list[Run]] = {}
    for run in runs:
        same = msgspec.structs.replace(run.environment, load_average=0.0)
        found.setdefault(msgspec.json.encode(same).decode(), []).append(run)
    groups = list(found.values())
    names = [
        "runs",
        "processor",
        "cores",
        "memory",
        "system",
        "Python",
        "versions",
        "threads",
        "load average",
        "revision",
    ]
    cells = zip(*(_environment(group) for group in groups), strict=True)
    rows = [[name, *values] for name, values in zip(names, cells, strict=True)]
    columns = ["", *(f"machine {i + 1}" if len(groups) > 1 else "" for i in range(len(groups)))]
    return WordTable("Environment", "", columns, rows, words=1 + len(groups))


def _environment(runs: Sequence[Run]) -> list[str]:
    one = runs[0].environment
    loads = [run.environment.load_average for run in runs]
    return [
        counted(len(runs), "run"),
        f"{one.cpu}, {one.architecture}",
        f"{one.cores} of {one.machine_cores}",
        f"{one.memory_bytes / 1e9:.1f} GB",
        one.system,
        one.python,
        ", ".join(f"{name} {version}" for name, version in one.versions.items() if version is not None),
        ", ".join(f"{name}={value}" for name, value in one.threads.items()) or "none set",
        f"{min(loads):.1f} … {max(loads):.1f}" if len(runs) > 1 else f"{loads[0]:.1f}",
        one.git_revision or "–",
    ]


def all_warnings(survey: Survey) -> list[str]:
    """Every warning, those that differ only in their numbers once, and the runs that it holds for unless it is all."""
    holders: dict[str, dict[str, list[str]]] = {}
    for run in survey.runs:
        for line in run.warnings:
            holders.setdefault(_NUMBER.sub("#", line), {}).setdefault(line, []).append(run.id)
    found = [(_ranged(list(lines)), [id_ for ids in lines.values() for id_ in ids]) for lines in holders.values()]
    lines = [f"{line}{_held(ids, len(survey.runs))}" for line, ids in found]
    for point in survey.all_points:
        comparison, why = point.compared
        if comparison is None and len(point.runs) > 1:
            lines.append(f"{point}: {why}")
        lines += [f"{point}: {line}" for line in (comparison.warnings if comparison else [])]
    return list(dict.fromkeys(lines))


def _ranged(lines: Sequence[str]) -> str:
    """One line for lines that differ in their numbers, each number as the range that it has in them."""
    columns = zip(*(_NUMBER.findall(line) for line in lines), strict=True)
    ranges = iter([_range(sorted(set(values), key=float)) for values in columns])
    return _NUMBER.sub(lambda _: next(ranges), lines[0])


def _range(values: Sequence[str]) -> str:
    return values[0] if len(values) == 1 else f"{values[0]} to {values[-1]}"


def _held(ids: Sequence[str], everywhere: int) -> str:
    runs = list(dict.fromkeys(ids))
    if len(runs) == everywhere:
        return ""
    return f" ({', '.join(runs)})" if len(runs) <= 3 else f" ({len(runs)} of {everywhere:,} runs)"
