"""`serbench workload`: what a file of requests holds. It does not know formats, nor how requests are served."""

import click

from serbench.cli import completing, ranges
from serbench.cli.workload_options import DATASET_FORMATS

EXAMPLES = """
\b
Examples:
  serbench workload trace.jsonl.gz
  serbench workload ShareGPT.json --model smollm2-135m --max-model-len 2048
"""


@click.command("workload", short_help="Say what a file of requests holds.", epilog=EXAMPLES)
@click.argument("file", shell_complete=completing.files)
@click.option("--dataset-format", type=click.Choice(DATASET_FORMATS), help="What it is.  [default: what it looks like]")
@click.option(
    "--model",
    metavar="NAME",
    help="Count texts in tokens of this model, and leave out what is too long for it.",
    shell_complete=completing.models,
)
@click.option(
    "--tokenizer",
    metavar="DIR",
    help="Count texts in tokens of the tokenizer in this folder.",
    shell_complete=completing.folders,
)
@click.option("--max-model-len", type=ranges.CONTEXTS, metavar="N", help="Leave out requests that are longer.")
@click.option("--strict", is_flag=True, help="Rows that can't be used are an error.")
@click.option("--json", "as_json", is_flag=True, help="Print the document, and nothing else, on stdout.")
def command(
    file: str,
    dataset_format: str | None,
    model: str | None,
    tokenizer: str | None,
    max_model_len: int | None,
    strict: bool,
    as_json: bool,
) -> None:
    """Describe FILE as --dataset would use it: format, requests, lengths, rate over time, shared prefixes, and which
    rows are left out, and why.

    Lengths of texts are in bytes without --model or --tokenizer; traces bring theirs along.
    """
    from pathlib import Path

    import msgspec

    from serbench.report.console import output_console
    from serbench.report.workload_table import workload_report
    from serbench.text import ModelText
    from serbench.workload.describe import describe
    from serbench_engine.models.catalogue import resolve_model

    resolved = resolve_model(model or "sim", weights="auto" if model is None else "dummy", tokenizer=tokenizer)
    limit = max_model_len or (resolved.config.max_model_len if model is not None else None)
    found = describe(
        Path(file),
        ModelText(resolved),
        f"tokens of {tokenizer or model}" if resolved.tokenizer else _bytes(model),
        form=dataset_format,
        max_model_len=limit,
        strict=strict,
    )
    if as_json:
        click.echo(msgspec.json.format(msgspec.json.encode(found), indent=2))
    else:
        output_console().print(workload_report(found))


def _bytes(model: str | None) -> str:
    return "bytes of UTF-8" if model is None else f"bytes of UTF-8, since {model} has no tokenizer here"
