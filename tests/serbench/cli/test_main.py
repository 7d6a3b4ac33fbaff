"""Tests the entry: help, errors in one line, exit codes, readers that go away. They do not know what is measured."""

import errno
import os
import subprocess
import sys

import click
import click.testing
import pytest

from serbench.cli.commands import COMMANDS, SUMMARIES, Commands, cli, exit_code
from serbench.cli.main import Terminated
from serbench.errors import (
    DatasetError,
    ExperimentError,
    FaultError,
    NotWrittenError,
    OutputError,
    OutputsDifferError,
    ResultsError,
)
from serbench_engine.errors import ConfigError, EngineError, ModelError, RequestError, WorkerError, WorkerTimeout
from tests.serbench.cli.calling import call, refused


def test_help_names_every_command() -> None:
    for args in ((), ("--help",), ("-h",)):
        result = call(*args)
        assert result.exit_code == 0
        assert all(f"  {name} " in result.stdout for name in COMMANDS)


@pytest.mark.parametrize("name", COMMANDS)
def test_every_command_has_a_help_page(name: str) -> None:
    result = call(name, "--help")
    assert result.exit_code == 0
    assert result.stdout.startswith(f"Usage: serbench {name}")


def test_the_list_of_commands_says_what_they_say() -> None:
    commands = {name: cli.get_command(click.Context(cli), name) for name in COMMANDS}
    assert {name: command.short_help for name, command in commands.items() if command} == SUMMARIES


def test_quiet_has_a_short_form_wherever_it_is() -> None:
    commands = [cli.get_command(click.Context(cli), name) for name in COMMANDS]
    quiet = [param for command in commands if command for param in command.params if param.name == "quiet"]
    assert len(quiet) == 8
    assert all(param.opts == ["--quiet", "-q"] for param in quiet)


def test_the_version_is_that_of_the_distribution() -> None:
    assert "version" in call("--version").stdout


def test_a_command_that_there_isn_t_offers_the_nearest() -> None:
    assert refused("comapre") == "serbench: no command 'comapre'; did you mean compare?"
    assert refused("zzz") == "serbench: no command 'zzz'; there are " + ", ".join(COMMANDS)


def test_an_option_that_there_isn_t_offers_the_nearest() -> None:
    assert "No such option '--codc'" in refused("run", "--codc", "delta")
    assert "--codec" in refused("run", "--codc", "delta")


@pytest.mark.parametrize(
    ("error", "code"),
    [
        (ConfigError(""), 2),
        (ModelError(""), 2),
        (RequestError(""), 2),
        (EngineError(""), 1),
        (WorkerError(0, ""), 1),
        (WorkerTimeout(0, ""), 1),
        (ExperimentError(""), 2),
        (DatasetError(""), 2),
        (ResultsError(""), 2),
        (NotWrittenError(""), 1),
        (FaultError(""), 1),
        (OutputsDifferError(""), 1),
        (OutputError(""), 1),
        (click.UsageError(""), 2),
    ],
)
def test_exit_codes(error: Exception, code: int) -> None:
    assert exit_code(error) == code


def ended_by(error: BaseException) -> click.testing.Result:
    """How the command line ends when a command raises ``error``."""

    @click.group(cls=Commands, invoke_without_command=True)
    def failing() -> None:
        raise error

    return click.testing.CliRunner().invoke(failing, [], catch_exceptions=False)


def test_a_worker_s_traceback_stands_indented_below_the_line() -> None:
    trace = 'Traceback (most recent call last):\n  File "x.py", line 1\nValueError: no\n'
    result = ended_by(WorkerError(2, "raised ValueError: no", trace))
    assert result.exit_code == 1
    assert result.stderr.splitlines() == [
        "serbench: worker 2: raised ValueError: no",
        "    Traceback (most recent call last):",
        '      File "x.py", line 1',
        "    ValueError: no",
    ]


def test_a_message_of_several_lines_becomes_one() -> None:
    assert ended_by(ConfigError("first\n  second")).stderr == "serbench: first second\n"


def test_an_interrupt_ends_with_130() -> None:
    result = ended_by(KeyboardInterrupt())
    assert (result.exit_code, result.stderr.strip()) == (130, "serbench: interrupted")


def test_sigterm_ends_with_143() -> None:
    result = ended_by(Terminated())
    assert (result.exit_code, result.stderr.strip()) == (143, "serbench: terminated")


def became(error: Exception, interrupt: KeyboardInterrupt, *, explicitly: bool) -> Exception:
    """``error`` as it is raised where ``interrupt`` was caught."""
    error.__cause__, error.__context__ = (interrupt if explicitly else None), interrupt
    return error


@pytest.mark.parametrize("explicitly", [True, False])
def test_an_interrupt_that_became_an_import_error_is_one(explicitly: bool) -> None:
    result = ended_by(became(ImportError("initialization failed"), KeyboardInterrupt(), explicitly=explicitly))
    assert (result.exit_code, result.stderr.strip()) == (130, "serbench: interrupted")
    result = ended_by(became(ImportError("initialization failed"), Terminated(), explicitly=explicitly))
    assert (result.exit_code, result.stderr.strip()) == (143, "serbench: terminated")
    with pytest.raises(ImportError):
        ended_by(ImportError("no module"))


def test_an_error_while_an_interrupt_is_dealt_with_is_told() -> None:
    result = ended_by(became(ResultsError("it can't be kept"), KeyboardInterrupt(), explicitly=False))
    assert (result.exit_code, result.stderr.strip()) == (2, "serbench: it can't be kept")


def test_what_the_system_runs_out_of_is_told_in_one_line() -> None:
    result = ended_by(OSError(errno.EMFILE, "Too many open files"))
    told = "serbench: the system has no more of what is needed: Too many open files\n"
    assert (result.exit_code, result.stderr) == (1, told)


@pytest.mark.parametrize("columns", ["0", "99999999999"])
def test_a_width_that_no_terminal_has_is_taken_for_none(columns: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    usual = call("codecs").stdout
    monkeypatch.setenv("COLUMNS", columns)
    assert call("codecs").stdout == usual


def test_too_little_memory_is_told_in_one_line() -> None:
    result = ended_by(MemoryError("Unable to allocate 745. GiB"))
    assert (result.exit_code, result.stderr) == (1, "serbench: out of memory: Unable to allocate 745. GiB\n")


def test_a_bug_is_not_hidden() -> None:
    with pytest.raises(ZeroDivisionError):
        ended_by(ZeroDivisionError())


def test_inside_another_program_errors_are_raised() -> None:
    with pytest.raises(click.UsageError):
        cli.main(["run", "--no-such-option"], standalone_mode=False)


def test_a_reader_that_goes_away_is_no_traceback() -> None:
    read, write = os.pipe()
    os.close(read)
    with os.fdopen(write, "w") as gone:
        command = [sys.executable, "-c", "from serbench.cli.main import main; main()", "codecs"]
        done = subprocess.run(command, stdout=gone, stderr=subprocess.PIPE, text=True, timeout=60, check=False)
    assert (done.returncode, done.stderr) == (1, "")


def test_a_pipe_that_knows_no_such_character_gets_another() -> None:
    command = [sys.executable, "-c", "from serbench.cli.main import main; main()", "doctor"]
    environment = {**os.environ, "PYTHONIOENCODING": "ascii"}
    done = subprocess.run(command, capture_output=True, text=True, env=environment, timeout=60, check=False)
    assert done.stderr == ""
    assert "? " in done.stdout


def test_no_color_is_honoured() -> None:
    code = "from serbench.report.console import output_console; output_console().print('[red]x[/]')"
    environment = {**os.environ, "FORCE_COLOR": "1", "TERM": "xterm"}
    shown = [
        subprocess.run([sys.executable, "-c", code], capture_output=True, env=env, timeout=60, check=True).stdout
        for env in (environment, {**environment, "NO_COLOR": "1"})
    ]
    assert shown == [b"\x1b[31mx\x1b[0m\n", b"x\n"]


def test_help_imports_nothing_heavy() -> None:
    code = (
        "import sys\n"
        "from serbench.cli.commands import cli\n"
        "for args in ['--help'], ['run', '--help'], ['compare', '--help']:\n"
        "    try: cli(args)\n"
        "    except SystemExit: pass\n"
        "heavy = {'torch', 'transformers', 'pandas', 'matplotlib', 'numpy', 'scipy', 'rich'} & set(sys.modules)\n"
        "sys.exit(', '.join(heavy) or 0)\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=False)
    assert (done.returncode, done.stderr) == (0, "")
