"""`serbench codecs`: which codecs there are. It does not know how they work."""

import click


@click.command("codecs", short_help="List the codecs.")
def command() -> None:
    """List the codecs with what they send, their options and traits; plug-ins too."""
    from rich.text import Text

    from serbench.report.console import output_console
    from serbench.report.lists import codecs_table
    from serbench_codecs.registry import RESULT_FORMATS, list_codecs

    console = output_console()
    console.print(codecs_table(list_codecs()))
    console.print(Text(f"\n result formats: {', '.join(RESULT_FORMATS)}"))
    console.print(Text(" also: --codec package.module:NAME, and plug-ins of the entry-point group serbench.codecs"))
