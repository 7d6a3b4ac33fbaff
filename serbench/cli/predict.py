"""`serbench predict`: what throughput codecs allow with a model of a given speed. It does not know how to tell."""

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import click
from click.core import ParameterSource

from serbench.cli import ranges
from serbench.cli.comma_separated import Names
from serbench.cli.options import SectionCommand, SectionOption, measuring_options, path_options
from serbench.cli.simulated import path_experiment, progress_shown

if TYPE_CHECKING:
    from serbench.predict import ModelTime, Prediction

EXAMPLES = """
\b
Examples:
  serbench predict --step 2ms,10ms,50ms --batch 256 --context 512
  serbench predict --step 5ms --token 1us --codec pickle,columnar --batch 1024
  serbench predict --step 2ms results/A.json results/B.json
"""

CODECS: Final = "pickle,msgspec,delta,cached,columnar"
_FOR_STORED_RUNS: Final = frozenset({"runs", "steps", "token", "folder", "json", "quiet"})


@click.command("predict", cls=SectionCommand, short_help="Throughput at a model's speed.", epilog=EXAMPLES)
@click.argument("runs", nargs=-1, metavar="[RUN]...")
@click.option(
    "--step",
    "steps",
    cls=SectionOption,
    section="The model",
    type=Names(),
    required=True,
    metavar="TIME,TIME,...",
    help="What it takes for a step, such as 800us, 2ms or 0.5s.",
)
@click.option(
    "--token", cls=SectionOption, section="The model", default="0us", metavar="TIME", help="And for each token of it."
)
@click.option(
    "--codec",
    "codecs",
    cls=SectionOption,
    section="Host times",
    type=Names(),
    default=CODECS,
    help="To be measured now.",
)
@click.option(
    "--batch",
    cls=SectionOption,
    section="Host times",
    type=ranges.ROWS,
    metavar="N",
    default=256,
    help="Requests that decode.",
)
@click.option(
    "--context",
    cls=SectionOption,
    section="Host times",
    type=ranges.CONTEXTS,
    metavar="N",
    default=512,
    help="Tokens of each.",
)
@path_options
@measuring_options
@click.option(
    "--results",
    "folder",
    cls=SectionOption,
    section="Output",
    default="results",
    metavar="DIR",
    help="Where RUNs are looked for.",
)
@click.option("--json", cls=SectionOption, section="Output", is_flag=True, help="Print the document on stdout.")
@click.option("--quiet", "-q", cls=SectionOption, section="Output", is_flag=True, help="No progress.")
@click.pass_context
def command(
    ctx: click.Context,
    /,
    runs: tuple[str, ...],
    steps: tuple[str, ...],
    token: str,
    folder: str,
    json: bool,
    quiet: bool,
    **measuring: Any,
) -> None:
    """Predict the throughput that each codec allows with a model that takes a given time, and say what that assumes.

    Host times are measured now, for a steady decode; or, with RUNs, which are files or ids of stored runs, taken from
    them: what they would have made had their model taken that time. Refuses runs that can't be compared, and exits with
    1 where their outputs differ that must not or payloads were refused.
    """
    from serbench.predict import encode_prediction
    from serbench.report.console import output_console
    from serbench.report.prediction_table import prediction_report

    models = [model_time(step, token) for step in steps]
    if runs:
        _refuse_measuring(ctx)
        prediction = _from_runs(runs, Path(folder), models)
    else:
        prediction = _measured(models, measuring, quiet)
    if json:
        click.echo(encode_prediction(prediction), nl=False)
        return
    output_console().print(prediction_report(prediction))


def model_time(step: str, token: str) -> "ModelTime":
    """What --step and --token say.

    Raises:
        UsageError: one of them is no time.
    """
    from serbench.predict import ModelTime

    return ModelTime(_time_us("--step", step), _time_us("--token", token))


def _time_us(option: str, time: str) -> float:
    from serbench_engine.errors import ConfigError
    from serbench_engine.models.simulated_spec import parse_simulated

    wanted = f"{option} {time!r} is no time; write one such as 800us, 2ms or 0.5s, at most 60s"
    if ":" in time:
        raise click.UsageError(wanted)
    try:
        return parse_simulated(f"sim:step={time}").step_us
    except ConfigError as error:
        raise click.UsageError(wanted) from error


def _measured(models: "Sequence[ModelTime]", options: dict[str, Any], quiet: bool) -> "Prediction":
    from serbench.hostpath import Shape
    from serbench.hostpath_cells import measure_hostpath
    from serbench.predict import host_spec, predict_steady

    shape, base, measured = Shape(options["batch"], options["context"]), path_experiment(options), []
    for model in models:
        spec = host_spec(model, options["codecs"], shape, base)
        with progress_shown(quiet) as progress:
            measured.append((model, measure_hostpath(spec, progress)))
    return predict_steady(measured)


def _from_runs(names: Sequence[str], folder: Path, models: "Sequence[ModelTime]") -> "Prediction":
    from serbench.predict import predict_runs
    from serbench.results import find_run, read_run

    return predict_runs([read_run(find_run(name, folder)) for name in names], models)


def _refuse_measuring(ctx: click.Context) -> None:
    for option in ctx.params:
        if option not in _FOR_STORED_RUNS and ctx.get_parameter_source(option) is ParameterSource.COMMANDLINE:
            flag = "--codec" if option == "codecs" else f"--{option.replace('_', '-')}"
            raise click.UsageError(f"host times of stored runs are as they are, so {flag} means nothing here")
