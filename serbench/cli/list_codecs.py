"""`serbench codecs`: which codecs there are, and whether one keeps the contract. It does not know how they work."""

import click

from serbench.cli import ranges


@click.command("codecs", short_help="List the codecs, or check one.")
@click.option("--check", "name", metavar="CODEC", help="Put this codec to the test that every codec must pass.")
@click.option("--examples", type=ranges.PASSES, default=50, show_default=True, help="Conversations that --check plays.")
@click.option("--seed", type=ranges.SEEDS, default=0, show_default=True, help="Of the conversations.")
def command(name: str | None, examples: int, seed: int) -> None:
    """List the codecs with what they send, their options and traits; plug-ins too.

    --check plays conversations, random ones and a few large ones, between a scheduler and three workers through a
    codec, and garbles payloads; it takes names as --codec does, package.module:NAME too. Exit code 1 if the codec
    breaks the contract.
    """
    if name is not None:
        _check(name, examples, seed)
        return
    from rich.text import Text

    from serbench.report.console import output_console
    from serbench.report.lists import codecs_table
    from serbench_codecs.registry import RESULT_FORMATS, list_codecs

    console = output_console()
    console.print(codecs_table(list_codecs()))
    console.print(Text(f"\n result formats: {', '.join(RESULT_FORMATS)}"))
    console.print(Text(" also: --codec package.module:NAME, and plug-ins of the entry-point group serbench.codecs"))


def _check(name: str, examples: int, seed: int) -> None:
    """Say whether the codec passes.

    Raises:
        BrokenContractError: it does not; with the conversation that shows it.
        ExperimentError: there is no such codec, or the kit lacks hypothesis.
    """
    from serbench.errors import BrokenContractError, ExperimentError
    from serbench.report.figures import counted
    from serbench_codecs.errors import UnknownCodecError
    from serbench_codecs.registry import get_codec

    try:
        codec = get_codec(name)
    except UnknownCodecError as error:
        raise ExperimentError(str(error)) from None
    try:
        from serbench_codecs.conformance import LARGE, check_codec
    except ModuleNotFoundError as error:
        raise ExperimentError(f"--check needs {error.name}: pip install 'serbench[conformance]'") from None
    try:
        check_codec(codec, max_examples=examples, seed=seed)
    except AssertionError as error:
        rule, _, below = str(error).partition("\n")
        made = f"from serbench_codecs.registry import get_codec\ncodec = get_codec({name!r})"
        raise BrokenContractError(rule, f"{made}\n{below}") from error
    click.echo(
        f"codec {codec.name} keeps the contract: {counted(examples, 'conversation')} and {len(LARGE)} large ones with "
        "three workers, and faulty payloads"
    )
