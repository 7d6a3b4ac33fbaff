"""The options that commands share, each declared once, and what they mean together as experiments.

It does not know what commands do with them. Nothing heavy is imported before a command runs.
"""

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, Final, TypeVar

import click
import msgspec

from serbench.cli import completing, ranges

if TYPE_CHECKING:
    from serbench.experiment import Experiment

Command = TypeVar("Command", bound=Callable[..., Any])


COMPLETED: Final = {
    "--codec": completing.codecs,
    "--result-format": completing.result_formats,
    "--model": completing.models,
    "--tokenizer": completing.folders,
    "--output": completing.folders,
    "--dataset": completing.files,
    "--grid": completing.files,
}
"""What the shell is offered after an option of that name, whatever command has it."""


class SectionOption(click.Option):
    """An option under a heading of the help page."""

    def __init__(self, flags: Sequence[str], *, section: str, **attributes: Any) -> None:
        completed = next((COMPLETED[flag] for flag in flags if flag in COMPLETED), None)
        super().__init__(flags, **{"shell_complete": completed, **attributes})
        self.section = section


class SectionCommand(click.Command):
    """A command whose help lists its options under headings."""

    def format_options(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write the options by section, in the order in which sections first appear."""
        sections: dict[str, list[tuple[str, str]]] = {}
        for param in self.get_params(ctx):
            line = param.get_help_record(ctx)
            if line is not None:
                sections.setdefault(getattr(param, "section", "Other"), []).append(line)
        for section, lines in sections.items():
            with formatter.section(section):
                formatter.write_dl(lines)


def section(name: str, *options: tuple[str, dict[str, Any]]) -> Callable[[Command], Command]:
    """A decorator that adds the options to a command under the heading ``name``; flags have spaces in between."""

    def add(command: Command) -> Command:
        for flag, attributes in reversed(options):
            command = click.option(*flag.split(), cls=SectionOption, section=name, **attributes)(command)
        return command

    return add


model_options: Final = section(
    "Model",
    (
        "--model",
        {
            "default": "facebook/opt-125m",
            "metavar": "NAME",
            "help": "See `serbench models`; or a folder.",
        },
    ),
    (
        "--weights",
        {
            "type": click.Choice(["auto", "real", "dummy"]),
            "default": "auto",
            "help": "auto: real ones where there are any, else dummy ones.",
        },
    ),
    (
        "--tokenizer",
        {
            "metavar": "DIR",
            "help": "A folder with a tokenizer, in place of the model's own.",
        },
    ),
    (
        "--dtype",
        {
            "type": click.Choice(["auto", "float32", "bfloat16", "float16"]),
            "default": "auto",
            "help": "auto: float32, in which outputs can be compared token for token.",
        },
    ),
    ("--device", {"type": click.Choice(["auto", "cpu", "cuda"]), "default": "auto", "help": "auto: cpu."}),
)

path_options: Final = section(
    "Between scheduler and workers",
    (
        "--result-format",
        {
            "metavar": "NAME",
            "help": "Encoding of results.  [default: the codec's]",
        },
    ),
    (
        "--transport",
        {
            "type": click.Choice(["inproc", "pipe", "shm", "zmq"]),
            "help": "How payloads travel.  [default: shm; inproc with --executor inproc]",
        },
    ),
    (
        "--wait",
        {
            "type": click.Choice(["auto", "spin", "block"]),
            "default": "auto",
            "help": "How payloads are waited for; auto spins where it takes no core from the model.",
        },
    ),
    (
        "--executor",
        {
            "type": click.Choice(["inproc", "mp"]),
            "default": "mp",
            "help": "Workers in processes of their own, or in this one.",
        },
    ),
    (
        "--workers",
        {"type": ranges.WORKERS, "metavar": "N", "default": 1, "help": "Workers that receive every plan (sim only)."},
    ),
    (
        "--step-timeout",
        {
            "type": ranges.SECONDS,
            "default": 120.0,
            "metavar": "SECONDS",
            "help": "A worker that takes longer for a step counts as hung.",
        },
    ),
)

engine_options: Final = section(
    "Engine limits",
    ("--max-num-seqs", {"type": ranges.ROWS, "metavar": "N", "default": 256, "help": "Requests that run at once."}),
    ("--max-num-batched-tokens", {"type": ranges.TOKENS, "metavar": "N", "default": 2048, "help": "Tokens a step."}),
    (
        "--max-model-len",
        {
            "type": ranges.CONTEXTS,
            "metavar": "N",
            "help": "Prompt and output tokens together.  [default: the model's]",
        },
    ),
    ("--block-size", {"type": ranges.TOKENS, "metavar": "N", "default": 16, "help": "Tokens a block of KV cache."}),
    (
        "--num-blocks",
        {"type": ranges.BLOCKS, "metavar": "N", "help": "Blocks of KV cache.  [default: what --kv-memory holds]"},
    ),
    (
        "--kv-memory",
        {
            "type": ranges.SHARES,
            "default": 0.5,
            "metavar": "SHARE",
            "help": "Share of the free memory that the KV cache may take.",
        },
    ),
    ("--enable-prefix-caching", {"is_flag": True, "help": "Share the KV of equal beginnings."}),
)


def _measuring(repeats: str, seed: str) -> Callable[[Command], Command]:
    """The options of how often is measured; what two of them say depends on what a pass is."""
    return section(
        "Measuring",
        ("--repeats", {"type": ranges.PASSES, "metavar": "N", "default": 5, "help": repeats}),
        (
            "--warmup",
            {"type": ranges.WARM_UPS, "metavar": "N", "default": 1, "help": "Passes before that, not timed."},
        ),
        ("--seed", {"type": ranges.SEEDS, "metavar": "N", "default": 0, "help": seed}),
    )


measuring_options: Final = _measuring(
    "Timed passes, each with other prompts.", "Of prompts, order, sampling and dummy weights."
)
replaying_options: Final = _measuring(
    "Timed passes through each codec, all of the same steps.", "Of the order in which codecs and transports take turns."
)

output_options: Final = section(
    "Output",
    (
        "--output",
        {
            "default": "results",
            "metavar": "DIR",
            "help": "Where runs are stored.",
        },
    ),
    (
        "--trace",
        {"is_flag": True, "help": "Keep the time stamps of every step beside the run, for `serbench trace`."},
    ),
    ("--json", {"is_flag": True, "help": "Print the document, and nothing else, on stdout."}),
    ("--quiet -q", {"is_flag": True, "help": "Results and errors only: no progress, no notes."}),
)


class Choices(msgspec.Struct, frozen=True, kw_only=True):
    """What the options above were set to, under their names."""

    model: str
    weights: str
    tokenizer: str | None
    dtype: str
    device: str
    result_format: str | None
    transport: str | None
    wait: str
    executor: str
    workers: int
    step_timeout: float
    num_prompts: int | None
    input_len: Any
    output_len: Any
    dataset: str | None
    dataset_format: str | None
    strict: bool
    request_rate: float | None
    arrivals: str | None
    time_scale: float | None
    max_concurrency: int | None
    prompt: tuple[str, ...]
    chat: bool
    max_num_seqs: int
    max_num_batched_tokens: int
    max_model_len: int | None
    block_size: int
    num_blocks: int | None
    kv_memory: float
    enable_prefix_caching: bool
    repeats: int
    warmup: int
    seed: int
    output: str
    json: bool
    quiet: bool
    trace: bool = False


def experiments_of(choices: Choices, codecs: Sequence[str]) -> "list[Experiment]":
    """One experiment a codec.

    Raises:
        ExperimentError: choices that can't go together.
    """
    from serbench.cli.workload_options import arrivals_of, workload_of  # which imports this module
    from serbench.experiment import Experiment

    same = {
        name: getattr(choices, name)
        for name in msgspec.structs.asdict(choices)
        if name in Experiment.__struct_fields__ and name not in ("codec", "arrivals")
    }
    return [
        Experiment(
            **same,
            codec=codec,
            workload=workload_of(choices),
            arrivals=arrivals_of(choices),
            kv_memory_share=choices.kv_memory,
            step_timeout_s=choices.step_timeout,
        )
        for codec in codecs
    ]
