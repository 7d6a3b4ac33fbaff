"""`serbench completion`: the script that makes a shell complete serbench's commands, options and names.

It does not know what is completed (completing.py).
"""

from typing import Final

import click

HOW: Final = {
    "bash": 'eval "$(serbench completion bash)"       in ~/.bashrc (bash 4.4 or later)',
    "zsh": 'eval "$(serbench completion zsh)"        in ~/.zshrc, after compinit',
    "fish": "serbench completion fish | source        in ~/.config/fish/config.fish",
}

EPILOG = "\b\nTo use it:\n" + "\n".join(f"  {line}" for line in HOW.values())


@click.command("completion", short_help="Print a shell's completion script.", epilog=EPILOG)
@click.argument("shell", type=click.Choice(list(HOW)))
def command(shell: str) -> None:
    """Print the script that completes commands, options, codecs, models and files when tab is pressed."""
    from click.shell_completion import get_completion_class

    from serbench.cli.commands import cli

    kind = get_completion_class(shell)
    assert kind is not None, "click knows all three"
    script = kind(cli, {}, "serbench", "_SERBENCH_COMPLETE")
    click.echo(script.source_template % script.source_vars())
