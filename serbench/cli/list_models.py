"""`serbench models`: which models are known by name. It does not know where weights are found."""

import click


@click.command("models", short_help="List the models.")
def command() -> None:
    """List the models that work by name with no network; any folder or hub name of their families works too."""
    from rich.text import Text

    from serbench.report.console import output_console
    from serbench.report.lists import models_table
    from serbench_engine.models.catalogue import KNOWN_MODELS

    console = output_console()
    console.print(models_table(KNOWN_MODELS))
    console.print(Text("\n also: a folder with config.json, a GGUF file, or ORG/NAME on the hub,"))
    console.print(Text(" of the OPT, Llama, Mistral or Qwen2/3 family"))
