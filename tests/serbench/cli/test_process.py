"""Tests what the process has of its surroundings: signals, standard streams, the current folder. They measure nothing
but a moment's run.
"""

import ast
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Final

import pytest

from serbench.cli import main
from serbench.results import read_run
from tests.serbench.cli.calling import HERE, one_line

SCRIPT: Final = (sys.executable, "-P", "-c", "from serbench.cli.main import main; main()")
"""As the installed script runs: the current folder is not among those in which Python looks for modules."""

LISTENING: Final = "import signal; signal.signal(signal.SIGINT, signal.default_int_handler);"
"""A shell's background jobs ignore SIGINT, and so would their children."""


def test_next_to_nothing_is_imported_before_signals_are_handled() -> None:
    module = ast.parse(Path(main.__file__).read_text())
    imported = [name.name for node in module.body if isinstance(node, ast.Import) for name in node.names]
    assert imported == ["os", "signal", "sys"]
    assert not [node for node in module.body if isinstance(node, ast.ImportFrom)]


def environment(*folders: Path) -> dict[str, str]:
    return {**os.environ, "PYTHONPATH": os.pathsep.join([*map(str, folders), *filter(None, sys.path)])}


@pytest.mark.parametrize(
    ("number", "code", "said"), [(signal.SIGINT, 130, "interrupted"), (signal.SIGTERM, 143, "terminated")]
)
def test_a_signal_while_modules_are_imported_is_told_in_one_line(
    number: int, code: int, said: str, tmp_path: Path
) -> None:
    (tmp_path / "click.py").write_text(f"import os\nos.kill(os.getpid(), {number:d})\nraise RuntimeError('went on')\n")
    command = [*SCRIPT[:-1], LISTENING + SCRIPT[-1], "codecs"]
    done = subprocess.run(
        command, env=environment(tmp_path), capture_output=True, text=True, timeout=60, check=False, cwd=tmp_path
    )
    assert (done.returncode, done.stdout, done.stderr) == (code, "", f"serbench: {said}\n")


@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_a_signal_that_comes_through_exec_ends_with_its_exit_code(number: int, code: int, tmp_path: Path) -> None:
    (tmp_path / "codec_here.py").write_text(f"import os\nexec('os.kill(os.getpid(), {number:d}); len(str())')\n")
    done = subprocess.run(
        [sys.executable, "-m", "serbench", "codecs", "--check", "codec_here:NAME"],  # a script is not affected
        env=environment(),
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
        cwd=tmp_path,
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),
    )
    assert done.returncode == code, done.stderr


IN_ITS_HANDLING = (
    "import serbench.cli.main as main\n"
    "later = main._send_later\n"
    "def meanwhile(number):\n"
    "    main._send_later = later\n"
    "    os.kill(os.getpid(), number); len(str())\n"
    "main._send_later = meanwhile\n"
)
"""Has the signal come again while it is seen to that it is not lost."""


@pytest.mark.parametrize("more", ["", IN_ITS_HANDLING], ids=["once", "again meanwhile"])
@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_a_signal_while_an_object_is_thrown_away_is_not_lost(number: int, code: int, more: str, tmp_path: Path) -> None:
    (tmp_path / "codec_here.py").write_text(
        f"import os, time\n{more}"
        "class Last:\n"
        f"    def __del__(self): os.kill(os.getpid(), {number:d}); len(str())\n"
        "Last()\n"
        "time.sleep(200)\n"
    )
    command = [*SCRIPT[:-1], LISTENING + SCRIPT[-1], "codecs", "--check", "codec_here:NAME"]
    done = subprocess.run(
        command, env=environment(), capture_output=True, text=True, timeout=150, check=False, cwd=tmp_path
    )
    assert (done.returncode, len(done.stderr.split())) == (code, 2), done.stderr


def test_a_second_signal_while_the_process_ends_is_no_traceback(tmp_path: Path) -> None:
    again = f"import atexit, os; atexit.register(os.kill, os.getpid(), {signal.SIGINT:d})\n"
    (tmp_path / "codec_here.py").write_text(f"{again}os.kill(os.getpid(), {signal.SIGINT:d})\n")
    command = [*SCRIPT[:-1], LISTENING + SCRIPT[-1], "codecs", "--check", "codec_here:NAME"]
    done = subprocess.run(
        command, env=environment(), capture_output=True, text=True, timeout=60, check=False, cwd=tmp_path
    )
    assert done.stderr.split() == ["serbench:", "interrupted"]
    assert done.returncode == -signal.SIGINT


def test_a_signal_that_is_to_be_ignored_is_ignored(tmp_path: Path) -> None:
    (tmp_path / "codec_here.py").write_text("import os\nos.kill(os.getpid(), 2)\nos.kill(os.getpid(), 15)\n")
    ignoring = "import signal; [signal.signal(number, signal.SIG_IGN) for number in (2, 15)];"
    command = [*SCRIPT[:-1], ignoring + SCRIPT[-1], "codecs", "--check", "codec_here:NAME"]
    done = subprocess.run(
        command, env=environment(), capture_output=True, text=True, timeout=60, check=False, cwd=tmp_path
    )
    assert "module codec_here has no NAME" in done.stderr
    assert done.returncode == 2


@pytest.mark.parametrize(("redirected", "why"), [(">&-", "Bad file descriptor"), (">/dev/full", "No space left")])
def test_output_that_can_t_be_written_is_told_and_the_run_is_kept(redirected: str, why: str, tmp_path: Path) -> None:
    shell = ["/bin/sh", "-c", f'exec "$@" {redirected}', "sh"]
    command = [*shell, *SCRIPT, "run", *HERE, "--quiet", "--output", str(tmp_path)]
    done = subprocess.run(
        command, env=environment(), stderr=subprocess.PIPE, text=True, timeout=120, check=False, cwd=tmp_path
    )
    assert done.returncode == 1
    assert f"standard output can't be written: {why}" in one_line(done.stderr)
    [path] = tmp_path.glob("*.json")
    assert len(read_run(path).repeats) == 1


@pytest.mark.parametrize("redirected", ["2>&-", "2>/dev/full", "2>&- <&-"])
def test_notes_that_can_t_be_written_end_nothing(redirected: str, tmp_path: Path) -> None:
    shell = ["/bin/sh", "-c", f'exec "$@" {redirected}', "sh"]
    command = [*shell, *SCRIPT, "run", *HERE, "--json", "--output", str(tmp_path)]
    done = subprocess.run(
        command, env=environment(), stdout=subprocess.PIPE, text=True, timeout=120, check=False, cwd=tmp_path
    )
    assert done.returncode == 0
    [path] = tmp_path.glob("*.json")
    assert done.stdout == path.read_text()


def test_a_codec_of_the_current_folder_is_found_and_hides_no_module(tmp_path: Path) -> None:
    (tmp_path / "codec_here.py").write_text("from serbench_codecs.cached import CachedCodec as NAME\n")
    (tmp_path / "rich.py").write_text("raise RuntimeError('not the library')\n")
    command = [*SCRIPT, "run", *HERE[2:], "--model", "sim", "--executor", "mp", "--codec", "codec_here:NAME"]
    done = subprocess.run(
        command, env=environment(), capture_output=True, text=True, timeout=120, check=False, cwd=tmp_path
    )
    assert done.returncode == 0, done.stderr
    [path] = (tmp_path / "results").glob("*.json")
    assert read_run(path).spec.codec == "codec_here:NAME"


def test_a_current_folder_that_was_removed_is_no_traceback(tmp_path: Path) -> None:
    shell = ["/bin/sh", "-c", f'mkdir gone && cd gone && rmdir ../gone && exec "$@" --output {tmp_path}', "sh"]
    command = [*shell, *SCRIPT, "run", *HERE, "--quiet"]
    done = subprocess.run(
        command, env=environment(), capture_output=True, text=True, timeout=120, check=False, cwd=tmp_path
    )
    assert (done.returncode, done.stderr) == (0, "")
