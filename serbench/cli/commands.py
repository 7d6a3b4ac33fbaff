"""The command line's commands: which there are, and how errors end them. It does not know what commands do.

Errors are one clear line on stderr. Exit codes: 0 done; 1 a run failed, its outputs can't be right, or the output can't
be written or read by anyone; 2 bad input; 130 interrupted (Ctrl-C); 143 terminated (SIGTERM).
"""

import difflib
import errno
import os
import sys
import textwrap
from collections.abc import Callable, Sequence
from contextlib import suppress
from importlib import import_module
from typing import Any, Final

import click

from serbench.cli.main import Terminated, interrupt_behind, raise_no_more
from serbench.errors import BrokenContractError, FaultError, NotWrittenError, OutputError, SerbenchError
from serbench.report.harmless import harmless
from serbench_engine.errors import BrokenCodecError, ConfigError, EngineError, RequestError, WorkerError

COMMANDS: Final[dict[str, str]] = {
    "run": "serbench.cli.run",
    "compare": "serbench.cli.compare",
    "sweep": "serbench.cli.sweep",
    "check": "serbench.cli.check",
    "report": "serbench.cli.write_report",
    "trace": "serbench.cli.show_trace",
    "hostpath": "serbench.cli.hostpath",
    "predict": "serbench.cli.predict",
    "record": "serbench.cli.record",
    "replay": "serbench.cli.replay",
    "workload": "serbench.cli.workload",
    "codecs": "serbench.cli.list_codecs",
    "models": "serbench.cli.list_models",
    "doctor": "serbench.cli.doctor",
    "completion": "serbench.cli.completion",
}
"""Each command's module, which holds it under the name ``command``."""

SUMMARIES: Final[dict[str, str]] = {
    "run": "Measure one experiment.",
    "compare": "Tell codecs apart.",
    "sweep": "Measure a grid; resumes where it was.",
    "check": "Fail where something got worse: for CI.",
    "report": "Stored runs as HTML and Markdown with plots.",
    "trace": "Show a run's steps in Perfetto.",
    "hostpath": "Measure steps without the model.",
    "predict": "Throughput at a model's speed.",
    "record": "Keep the plans of a run.",
    "replay": "Send recorded plans again.",
    "workload": "Say what a file of requests holds.",
    "codecs": "List the codecs, or check one.",
    "models": "List the models.",
    "doctor": "Look at the machine.",
    "completion": "Print a shell's completion script.",
}
"""What the list of commands says of each, so that showing it imports none of them; a test holds them to it."""

_USED_UP: Final = (errno.EMFILE, errno.ENFILE, errno.ENOMEM, errno.EAGAIN, errno.ENOSPC, errno.EDQUOT)
"""What the system says where files, memory, processes or room on a disk run out: no fault of ours."""

_MOST_OF_A_LINE: Final = 2000
_MOST_OF_A_TRACEBACK: Final = 8000

FAILED, BAD_INPUT, INTERRUPTED, TERMINATED = 1, 2, 130, 143


class Commands(click.Group):
    """Commands that are imported when they are used, and errors told in one line."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        """In the order of the table."""
        return list(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """Import the command's module."""
        if cmd_name not in COMMANDS:
            return None
        command: click.Command = import_module(COMMANDS[cmd_name]).command
        return command

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write the list without importing what is in it."""
        with formatter.section("Commands"):
            formatter.write_dl([(name, SUMMARIES.get(name, "")) for name in COMMANDS])

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """Offer the nearest name for a command that there isn't."""
        if args and args[0] not in COMMANDS and not args[0].startswith("-"):
            near = difflib.get_close_matches(args[0], COMMANDS, n=1)
            hint = f"did you mean {near[0]}?" if near else f"there are {', '.join(COMMANDS)}"
            raise click.UsageError(f"no command {args[0]!r}; {hint}", ctx)
        return super().resolve_command(ctx, args)

    def main(
        self,
        args: Sequence[str] | None = None,
        prog_name: str | None = None,
        complete_var: str | None = None,
        standalone_mode: bool = True,
        **extra: Any,
    ) -> Any:
        """Run, and end the process with the exit code, as click does, but tell errors in our way."""

        def run() -> Any:
            return super(Commands, self).main(args, prog_name, complete_var, standalone_mode=False, **extra)

        if not standalone_mode:
            return run()
        sys.exit(_guarded(run))


def _guarded(run: Callable[[], Any]) -> int:
    """The exit code of ``run``; what it raised is told."""
    try:
        result = _uncovered(run)
        sys.stdout.flush()
    except BrokenPipeError:
        _forget_stdout()
        return FAILED
    except (KeyboardInterrupt, click.Abort) as error:
        raise_no_more()
        terminated = isinstance(error, Terminated)
        click.echo(f"serbench: {'terminated' if terminated else 'interrupted'}", err=True)
        return TERMINATED if terminated else INTERRUPTED
    except MemoryError as error:
        click.echo(f"serbench: out of memory: {str(error) or 'it asked for more than there is'}", err=True)
        return FAILED
    except OSError as error:
        if error.errno not in _USED_UP:
            raise
        click.echo(f"serbench: the system has no more of what is needed: {error.strerror}", err=True)
        return FAILED
    except (click.ClickException, SerbenchError, EngineError) as error:
        if isinstance(error, OutputError):
            _forget_stdout()
        _tell(error)
        return exit_code(error)
    return result if isinstance(result, int) else 0


def _uncovered(run: Callable[[], Any]) -> Any:
    """What ``run`` returns; an interrupt that became another error, as click's Abort, is an interrupt again."""
    try:
        return run()
    except Exception as error:
        interrupt = interrupt_behind(error)
        if interrupt is None:
            raise
        raise interrupt from None


def exit_code(error: Exception) -> int:
    """2 for what the user can put right in the command, 1 for what went wrong while it ran."""
    if isinstance(error, click.ClickException):
        return error.exit_code
    if isinstance(error, (ConfigError, RequestError)):
        return BAD_INPUT
    if isinstance(error, (EngineError, FaultError, NotWrittenError, OutputError)):
        return FAILED
    return BAD_INPUT


def _tell(error: Exception) -> None:
    """One line; below it, indented, the traceback of a worker or a codec that raised, or what shows its fault."""
    if isinstance(error, WorkerError):
        line, below = f"worker {error.rank}: {error.reason}", error.traceback_text
    elif isinstance(error, BrokenCodecError):
        line, below = str(error), error.traceback_text
    elif isinstance(error, click.ClickException):
        line, below = error.format_message(), ""
    else:
        line, below = str(error), ""
    click.echo(f"serbench: {harmless(_shortened(' '.join(line.split()), _MOST_OF_A_LINE))}", err=True)
    if isinstance(error, BrokenContractError):
        click.echo(harmless(error.shown_by), err=True)
    if below:
        below = _shortened(below.rstrip(), _MOST_OF_A_TRACEBACK)
        click.echo(harmless(textwrap.indent(below, "    ", lambda _: True)), err=True)


def _shortened(text: str, most: int) -> str:
    """``text`` without its middle where it is long: what a plug-in raises says as much as it likes."""
    left_out = len(text) - most
    if left_out <= 0:
        return text
    return f"{text[: most // 2]} … ({left_out} characters left out) … {text[-(most // 2) :]}"


def _forget_stdout() -> None:
    """Nobody reads it any more: what is still buffered must not raise again when Python ends."""
    with suppress(OSError, ValueError):
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


@click.group(
    cls=Commands,
    invoke_without_command=True,
    context_settings={"help_option_names": ["-h", "--help"], "show_default": True, "max_content_width": 100},
)
@click.version_option(package_name="serbench")
@click.pass_context
def cli(ctx: click.Context) -> None:
    """Measure what the scheduler-to-worker path of an LLM inference engine costs, codec by codec."""
    if ctx.invoked_subcommand is None:
        click.echo(ctx.get_help())
