"""Calls the command line in this process. It does not know what is asked of it."""

import errno
from collections.abc import Callable
from pathlib import Path

import click.testing

from serbench.cli.commands import cli
from serbench.files import write_atomically

QUICK = ("--num-prompts", "4", "--input-len", "8", "--output-len", "4", "--repeats", "1", "--warmup", "0")
HERE = ("--model", "sim", "--executor", "inproc", *QUICK)
"""A run without processes that takes a moment."""


def call(*args: str, folder: Path | None = None) -> click.testing.Result:
    """The result of ``serbench ARGS``; runs are stored in ``folder``. An exception that is no exit is raised."""
    output = ("--output", str(folder)) if folder else ()
    return click.testing.CliRunner().invoke(cli, [*args, *output], catch_exceptions=False, prog_name="serbench")


def refused(*args: str, folder: Path | None = None) -> str:
    """The one line on stderr of a call that is bad input."""
    result = call(*args, folder=folder)
    assert result.exit_code == 2, result.output
    assert result.stdout == ""
    return one_line(result.stderr)


def one_line(stderr: str) -> str:
    """The only line there is."""
    [line] = stderr.splitlines()
    assert line.startswith("serbench: ")
    return line


def full_after(files: int) -> Callable[[Path, bytes], None]:
    """What writes files to a disk that has room for so many, in the place of ``write_atomically``."""
    written: list[Path] = []

    def write(path: Path, data: bytes) -> None:
        if len(written) == files:
            raise OSError(errno.ENOSPC, "No space left on device")
        written.append(path)
        write_atomically(path, data)

    return write
