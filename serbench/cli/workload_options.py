"""The options that say what is served and when it arrives, and what they mean together.

It does not know what commands do with them. Nothing heavy is imported before a command runs.
"""

from typing import TYPE_CHECKING, Any, Final

import click

from serbench.cli import ranges
from serbench.cli.options import Choices, Command, section
from serbench.errors import ExperimentError

if TYPE_CHECKING:
    from serbench.workload.spec import Arrivals, LengthRange, WorkloadSpec

DATASET_FORMATS: Final = ("sharegpt", "jsonl", "text", "openai-batch", "azure", "burstgpt", "mooncake")
"""Named here, too, because reading the table itself takes longer than a help page may."""


class Lengths(click.ParamType["LengthRange"]):
    """A length in tokens or a range of them."""

    name = "LENGTH[:LENGTH]"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        """A LengthRange, or a usage error."""
        from serbench.workload.spec import LengthRange

        if isinstance(value, LengthRange):
            return value
        try:
            return LengthRange.parse(value)
        except ExperimentError as error:
            self.fail(str(error), param, ctx)


_request_options: Final = section(
    "Workload",
    ("--num-prompts", {"type": ranges.REQUESTS, "metavar": "N", "help": "Requests a repeat.  [default: 32]"}),
    ("--input-len", {"type": Lengths(), "help": "Prompt tokens: 128, or a range such as 64:256.  [default: 128]"}),
    (
        "--output-len",
        {
            "type": Lengths(),
            "help": "Tokens to produce.  [default: 32; with --dataset as many as the file's answer has]",
        },
    ),
    (
        "--dataset",
        {
            "metavar": "FILE",
            "help": "Requests of a file: ShareGPT, JSON lines, OpenAI batch, text or trace; see `serbench workload`.",
        },
    ),
    (
        "--dataset-format",
        {"type": click.Choice(DATASET_FORMATS), "help": "What the file is.  [default: what its content shows]"},
    ),
    ("--strict", {"is_flag": True, "help": "Rows of the file that can't be used are an error, not left out."}),
    ("--prompt", {"multiple": True, "metavar": "TEXT", "help": "A prompt whose answer is shown; may be repeated."}),
    ("--chat", {"is_flag": True, "help": "Put each --prompt into the model's chat template."}),
)

_arrival_options: Final = section(
    "Arrivals",
    (
        "--request-rate",
        {
            "type": ranges.RATES,
            "metavar": "R",
            "help": "Requests arrive at random, R a second.  [default: all at once]",
        },
    ),
    (
        "--arrivals",
        {
            "type": click.Choice(["together", "poisson", "trace"]),
            "help": "trace: by the file's own clock.  [default: poisson with --request-rate, else together]",
        },
    ),
    (
        "--time-scale",
        {
            "type": ranges.TIME_SCALES,
            "metavar": "F",
            "help": "Makes the file's clock F times as slow; 0.5: twice as fast.  [default: 1]",
        },
    ),
    (
        "--max-concurrency",
        {
            "type": ranges.REQUESTS,
            "metavar": "N",
            "help": "Requests with the engine at once; others wait, and that counts.",
        },
    ),
)


def workload_options(command: Command) -> Command:
    """Add both groups to a command."""
    return _request_options(_arrival_options(command))


def workload_of(choices: Choices) -> "WorkloadSpec":
    """The workload that the options ask for.

    Raises:
        ExperimentError: options of two kinds of workload.
    """
    from serbench.workload.spec import DEFAULT_OUTPUT_LEN, Dataset, LengthRange, Prompts, Synthetic

    _refuse_mixtures(choices)
    length = LengthRange(DEFAULT_OUTPUT_LEN, DEFAULT_OUTPUT_LEN)
    if choices.prompt:
        return Prompts(texts=choices.prompt, output_len=(choices.output_len or length).high, chat=choices.chat)
    if choices.dataset is not None:
        return Dataset(
            path=choices.dataset,
            num_prompts=choices.num_prompts or 32,
            output_len=choices.output_len,
            format=choices.dataset_format,
            strict=choices.strict,
        )
    defaults = Synthetic()
    return Synthetic(
        num_prompts=choices.num_prompts or defaults.num_prompts,
        input_len=choices.input_len or defaults.input_len,
        output_len=choices.output_len or defaults.output_len,
    )


def arrivals_of(choices: Choices) -> "Arrivals":
    """When requests are to arrive.

    Raises:
        ExperimentError: options that can't go together.
    """
    from serbench.workload.spec import Arrivals

    rate, kind = choices.request_rate, choices.arrivals
    if rate is not None and kind in ("together", "trace"):
        raise ExperimentError(f"--request-rate {rate:g} is a way to arrive, and --arrivals {kind} another; give one")
    if rate is None and kind == "poisson":
        raise ExperimentError("--arrivals poisson needs a --request-rate")
    if choices.time_scale is not None and kind != "trace":
        raise ExperimentError("--time-scale goes with --arrivals trace, whose clock it changes")
    return Arrivals(
        kind="poisson" if rate is not None else "trace" if kind == "trace" else "together",
        request_rate=rate,
        time_scale=choices.time_scale or 1.0,
        max_concurrency=choices.max_concurrency,
    )


def _refuse_mixtures(choices: Choices) -> None:
    output_len: LengthRange | None = choices.output_len
    ranged = output_len is not None and output_len.low != output_len.high
    for together, message in (
        (choices.prompt and choices.dataset, "--prompt and --dataset are two workloads; give one of them"),
        (choices.prompt and choices.num_prompts, "--num-prompts does not go with --prompt, which may be repeated"),
        (choices.prompt and choices.input_len, "--input-len does not go with --prompt, whose texts have their lengths"),
        (choices.dataset and choices.input_len, "--input-len does not go with --dataset, whose prompts have theirs"),
        (choices.dataset_format and not choices.dataset, "--dataset-format goes with --dataset"),
        (choices.strict and not choices.dataset, "--strict goes with --dataset, whose rows it is about"),
        (choices.chat and not choices.prompt, "--chat goes with --prompt"),
        (choices.prompt and ranged, f"--output-len {output_len} with --prompt must be one number, not a range"),
    ):
        if together:
            raise ExperimentError(message)
