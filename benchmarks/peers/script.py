"""What the scripts of benchmarks have in common as commands: errors of one line, what --quick stands for, and that what
was measured is told and written however measuring ended. It does not know what is measured.

Exit codes: 0 done; 1 measuring failed or was interrupted, or its figures can't be written; 2 bad input.
"""

import signal
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, TypeVar

import click

from benchmarks.peers.children import ChildError
from serbench.cli.commands import BAD_INPUT, exit_code
from serbench.errors import NotWrittenError, ResultsError, SerbenchError
from serbench.paths import check_can_write
from serbench_engine.errors import EngineError

Decorated = TypeVar("Decorated", bound=Callable[..., Any])


class Refused(click.ClickException):
    """What the user can put right in the command."""

    exit_code = BAD_INPUT


class Script(click.Command):
    """A command that tells the errors of serbench's own trees in a line, with their exit codes."""

    def invoke(self, ctx: click.Context) -> Any:
        """Run it."""
        try:
            return super().invoke(ctx)
        except (SerbenchError, EngineError) as error:
            kind = Refused if exit_code(error) == BAD_INPUT else click.ClickException
            raise kind(str(error)) from None


def quick_option(meaning: str, **defaults: object) -> Callable[[Decorated], Decorated]:
    """``--quick``, which changes the defaults of the named parameters: what is given beside it holds."""

    def change(ctx: click.Context, param: click.Parameter, quick: bool) -> None:
        if quick:
            ctx.default_map = {**(ctx.default_map or {}), **defaults}

    help_ = f"{meaning} Options given beside it hold."
    return click.option("--quick", is_flag=True, is_eager=True, expose_value=False, callback=change, help=help_)


def json_option(command: Decorated) -> Decorated:
    """``--json FILE``, refused before anything is measured if it can't be written; the parameter is ``path``."""

    def check(ctx: click.Context, param: click.Parameter, path: Path | None) -> Path | None:
        if path is not None:
            try:
                check_can_write("the file", path)
            except ResultsError as error:
                raise click.BadParameter(str(error), ctx, param) from None
        return path

    kind, meaning = click.Path(path_type=Path), "Also write every figure to this file."
    return click.option("--json", "path", type=kind, callback=check, help=meaning)(command)


def measure_and_tell(
    measure: Callable[[], None],
    report: Callable[[], str],
    document: Callable[[], bytes] = bytes,
    path: Path | None = None,
    warnings: Sequence[str] = (),
) -> None:
    """Measure, then print the report and write the document, if there is a path: all that, however measuring ended.
    Warnings are told on stderr first, and stand above the report.

    Raises:
        click.ClickException: measuring failed or was interrupted (Ctrl-C, SIGTERM), or the document can't be written.
    """
    faults: list[str] = []
    marked = [f"warning: {line}" for line in warnings]
    for line in marked:
        click.echo(line, err=True)
    before = signal.signal(signal.SIGTERM, signal.default_int_handler)
    try:
        with _noted(faults):
            measure()
    finally:
        signal.signal(signal.SIGTERM, before)
        try:
            print("\n\n".join([*marked, report()]), flush=True)
        finally:
            with _noted(faults):
                _write(path, document)
    if faults:
        raise click.ClickException("\n".join(faults))


@contextmanager
def _noted(faults: list[str]) -> Iterator[None]:
    """What ends the block is added to the faults; errors that nobody expects go on."""
    try:
        yield
    except KeyboardInterrupt:
        faults.append("interrupted")
    except click.ClickException as error:
        faults.append(error.format_message())
    except (ChildError, SerbenchError, EngineError, OSError) as error:
        faults.append(str(error))


def _write(path: Path | None, document: Callable[[], bytes]) -> None:
    if path is None:
        return
    try:
        path.write_bytes(document())
    except OSError as error:
        raise NotWrittenError(f"{path} can't be written: {error.strerror or error}") from None
