"""`serbench check`: gates for CI. It does not know what is gated or how (serbench.gates)."""

import os
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import click
import msgspec
from click.core import ParameterSource

from serbench.cli.options import (
    Choices,
    SectionCommand,
    SectionOption,
    engine_options,
    experiments_of,
    measuring_options,
    model_options,
    output_options,
    path_options,
)
from serbench.cli.workload_options import workload_options

if TYPE_CHECKING:
    from serbench.cli.measure import Measured
    from serbench.experiment import Experiment
    from serbench.gates.judging import Gate, Outcome

CODECS: Final = "pickle,msgspec,delta,cached,columnar"
STEP_SUMMARY: Final = "GITHUB_STEP_SUMMARY"

EXAMPLES = """
\b
Examples:
  serbench check mine --update --model sim --executor inproc --num-prompts 64 --num-blocks 600
  serbench check sim
  serbench check sim --no-times --markdown summary.md --github-json benchmark.json
"""

_NOT_MEASURED: Final = frozenset(
    {"baseline", "update", "no_times", "tolerances", "markdown", "github_json", "output", "json", "quiet", "trace"}
)

_FIELDS: Final = {
    "kv_memory": "kv_memory_share",
    "step_timeout": "step_timeout_s",
    "dataset": "path",
    "dataset_format": "format",
    "prompt": "texts",
    "arrivals": "kind",
}
"""Options that the fields of an experiment, its workload or its arrivals have other names for."""


def _check_option(flag: str, *names: str, **attributes: Any) -> Callable[[Any], Any]:
    return click.option(flag, *names, cls=SectionOption, section="Check", **attributes)


@click.command("check", cls=SectionCommand, short_help="Fail where something got worse: for CI.", epilog=EXAMPLES)
@click.argument("baseline", metavar="BASELINE")
@_check_option("--update", is_flag=True, help="Measure, and write the baseline.")
@_check_option("--no-times", is_flag=True, help="Leave out the ratios of times, which hold for one class of machine.")
@_check_option(
    "--tolerance",
    "tolerances",
    multiple=True,
    metavar="METRIC=SHARE",
    help="With --update: how much worse a metric may get, as in host_time=0.2; may be repeated.",
)
@_check_option(
    "--markdown", metavar="FILE", help=f"Write a summary; one is added to ${STEP_SUMMARY} where that is set."
)
@_check_option(
    "--github-json", metavar="FILE", help="Write what github-action-benchmark reads (customSmallerIsBetter)."
)
@model_options
@click.option(
    "--codec",
    "codecs",
    cls=SectionOption,
    section="Between scheduler and workers",
    default=CODECS,
    metavar="NAME,NAME,...",
    help="The first is what the others' times are ratios to.",
)
@path_options
@workload_options
@engine_options
@measuring_options
@output_options
@click.pass_context
def command(
    ctx: click.Context,
    /,
    baseline: str,
    update: bool,
    no_times: bool,
    tolerances: tuple[str, ...],
    markdown: str | None,
    github_json: str | None,
    codecs: str,
    **options: Any,
) -> None:
    """Measure what BASELINE holds (a file, or a name in results/baselines/) and fail where it got worse.

    Bytes, counts and outputs are gated as they are, times as ratios to the first codec's in the same run. What fails is
    measured a second time before it counts. Experiment and tolerances are the baseline's; the options that say what is
    measured are for --update.

    Exits with 0 if all gates hold, 1 if one failed or the run did, 2 for bad input or a baseline that can't be
    compared.
    """
    from serbench.gates.baseline import baseline_path

    choices = Choices(**options)
    path = baseline_path(baseline)
    if update:
        _update(ctx, path, codecs, choices, _shares(tolerances), times=not no_times)
        return
    if tolerances:
        raise click.UsageError("--tolerance goes with --update: a check takes the tolerances that the baseline has")
    outputs = {"--markdown": markdown, f"${STEP_SUMMARY}": os.environ.get(STEP_SUMMARY), "--github-json": github_json}
    outcome = _check(ctx, path, codecs, choices, outputs, times=not no_times)
    _tell(outcome, choices, markdown, github_json)
    ctx.exit(0 if outcome.passed else 1)


# --- checking ---------------------------------------------------------------------------------------------------------


def _check(
    ctx: click.Context,
    path: Path,
    codecs: str,
    choices: Choices,
    outputs: Mapping[str, str | None],
    *,
    times: bool,
) -> "Outcome":
    from serbench.environment import describe_environment
    from serbench.gates.baseline import read_baseline
    from serbench.gates.judging import Outcome, check_comparable, confirmed, hold_against
    from serbench.paths import check_can_write, refuse_overwriting
    from serbench.prepare import prepare
    from serbench.report.console import error_console, tell

    baseline = read_baseline(path)
    experiments = [one.spec for one in baseline.codecs]
    _refuse_imports(ctx, path, codecs, experiments)
    for what, output in outputs.items():
        if output:
            check_can_write(what, Path(output))
    refuse_overwriting(outputs, {"the baseline": path, "the dataset": getattr(experiments[0].workload, "path", None)})
    here = describe_environment()
    differing = _asked_otherwise(ctx, codecs, choices, experiments)
    check_comparable(baseline, prepare(experiments), here, times=times, differing=differing)

    def gates() -> "list[Gate]":
        return hold_against(baseline, _measure(experiments, choices).runs, here, times=times)

    found, measurements = gates(), 1
    failed = [f"{gate.codec} {gate.metric}" for gate in found if gate.state == "failed"]
    if failed:
        if not choices.quiet:
            tell(error_console(), f"measuring again to confirm: {', '.join(failed)}")
        found, measurements = confirmed(found, gates()), 2
    return Outcome(name=baseline.name, gates=found, measurements=measurements, times=times)


def _asked_otherwise(
    ctx: click.Context, codecs: str, choices: Choices, experiments: "Sequence[Experiment]"
) -> list[str]:
    """Options on the command line that ask for something else than the baseline holds."""
    given = [name for name in ctx.params if name not in _NOT_MEASURED and _is_given(ctx, name)]
    if not given:
        return []
    asked = experiments_of(choices, [experiments[0].codec])[0]
    differing = []
    for name in given:
        mine, theirs = _setting(asked, name), [_setting(one, name) for one in experiments]
        if name == "codecs":
            mine, theirs = codecs.replace(" ", ""), [",".join(one.codec for one in experiments)]
        if any(one != mine for one in theirs) and mine != "auto":
            flag = "codec" if name == "codecs" else name.replace("_", "-")
            has = " and ".join(dict.fromkeys(map(str, theirs)))
            differing.append(f"--{flag} asks for {mine}, it has {has}")
    return differing


def _refuse_imports(ctx: click.Context, path: Path, codecs: str, experiments: "Sequence[Experiment]") -> None:
    """A baseline is data, which runs no code: modules are imported that the command line names, and no others."""
    from serbench.errors import ExperimentError
    from serbench_codecs.registry import names_module

    named = codecs.replace(" ", "").split(",") if _is_given(ctx, "codecs") else []
    for codec in [one.codec for one in experiments]:
        if names_module(codec) and codec not in named:
            every = ",".join(one.codec for one in experiments)
            raise ExperimentError(
                f"{path} has codec {codec}, a module that would be imported; if you trust it, add --codec {every}"
            )


def _is_given(ctx: click.Context, name: str) -> bool:
    return ctx.get_parameter_source(name) is ParameterSource.COMMANDLINE


def _setting(experiment: "Experiment", name: str) -> object:
    """What ``experiment`` has of an option; None for one that is another workload's."""
    name = _FIELDS.get(name, name)
    for place in (experiment.arrivals, experiment, experiment.workload):
        if hasattr(place, name):
            return getattr(place, name)
    return None


def _measure(experiments: "Sequence[Experiment]", choices: Choices) -> "Measured":
    from serbench.cli.measure import measure
    from serbench.noise import kernels_warning
    from serbench.refusals import check_refusals
    from serbench.report.console import error_console, tell

    measured = measure(experiments, msgspec.structs.replace(choices, device="cpu"))  # settled: nothing to tell about it
    for line in dict.fromkeys(line for run in measured.runs for line in kernels_warning(run.without_kernels)):
        tell(error_console(), f"warning: {line}")
    check_refusals(measured.runs)
    return measured


# --- updating ---------------------------------------------------------------------------------------------------------


def _update(
    ctx: click.Context, path: Path, codecs: str, choices: Choices, shares: Mapping[str, float], *, times: bool
) -> None:
    from serbench.comparison import compare_runs
    from serbench.gates.baseline import baseline_of, read_baseline, write_baseline
    from serbench.paths import check_can_replace, kind_of
    from serbench.report.console import error_console, tell

    check_can_replace("the baseline", path)
    before = read_baseline(path) if kind_of(path) is not None else None
    if before is None:
        experiments = experiments_of(choices, [name.strip() for name in codecs.split(",") if name.strip()])
    else:
        experiments = [one.spec for one in before.codecs]
        if differing := _asked_otherwise(ctx, codecs, choices, experiments):
            raise click.UsageError(
                f"the baseline {path} holds another experiment, which --update measures again: {'; '.join(differing)}; "
                "give another name, or remove the file first"
            )
    _refuse_imports(ctx, path, codecs, experiments)
    if times and len(experiments) < 2:
        raise click.UsageError(
            "one codec gives no ratio of times; name two or more, or leave times out with --no-times"
        )
    if experiments[0].arrivals.kind != "together":
        raise click.UsageError("requests that arrive one by one are batched as time has it: no count could be gated")
    runs = _measure(experiments, choices).runs
    compare_runs(runs)  # outputs that differ must never become the baseline
    tolerances = {**(before.tolerances if before is not None else {}), **shares}
    write_baseline(path, baseline_of(path.stem, runs, tolerances=tolerances, times=times, before=before))
    if not choices.quiet:
        tell(error_console(), f"the baseline is in {path}")


def _shares(tolerances: Sequence[str]) -> dict[str, float]:
    from serbench.gates.baseline import MOST_TOLERATED
    from serbench.gates.metrics import NAMES

    shares = {}
    for text in tolerances:
        name, _, share = text.partition("=")
        try:
            shares[name] = float(share)
        except ValueError:
            raise click.UsageError(f"--tolerance {text!r}: write METRIC=SHARE, as in host_time=0.2") from None
        if name not in NAMES:
            raise click.UsageError(f"--tolerance {text!r}: there is no metric {name!r}; there are {', '.join(NAMES)}")
        if not 0 <= shares[name] <= MOST_TOLERATED:
            raise click.UsageError(f"--tolerance {text!r}: a tolerance is a share between 0 and {MOST_TOLERATED:g}")
    return shares


# --- telling ----------------------------------------------------------------------------------------------------------


def _tell(outcome: "Outcome", choices: Choices, markdown_file: str | None, github_file: str | None) -> None:
    from serbench.report.console import output_console
    from serbench.report.gate_report import gate_report, github_benchmark_json, markdown

    if choices.json:
        click.echo(msgspec.json.format(msgspec.json.encode(outcome), indent=2))
    else:
        output_console().print(gate_report(outcome))
    if markdown_file is not None:
        _write(markdown_file, markdown(outcome), "w")
    if os.environ.get(STEP_SUMMARY):
        _write(os.environ[STEP_SUMMARY], markdown(outcome) + "\n", "a")
    if github_file is not None:
        _write(github_file, github_benchmark_json(outcome), "w")


def _write(file: str, text: str, mode: str) -> None:
    from serbench.errors import NotWrittenError

    try:
        with open(file, mode, encoding="utf-8") as out:
            out.write(text)
    except OSError as error:
        raise NotWrittenError(f"{file} can't be written: {error.strerror}") from error
