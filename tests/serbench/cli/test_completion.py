"""Tests what the shell is told when tab is pressed, and the scripts that ask. They run no shell but bash."""

import shutil
import subprocess
import sys

import pytest
from click.shell_completion import ShellComplete

from serbench.cli.commands import COMMANDS, cli
from serbench_codecs.registry import CODECS
from tests.serbench.cli.calling import call


def offered(*args: str) -> list[str]:
    *before, last = args
    return [item.value for item in ShellComplete(cli, {}, "serbench", "_X").get_completions(list(before), last)]


def test_commands_options_and_names_are_offered() -> None:
    assert set(COMMANDS) <= set(offered(""))
    assert offered("wor") == ["workload"]
    assert "--request-rate" in offered("run", "--re")
    assert {"pickle", "delta"} <= set(offered("run", "--codec", "")) >= set(CODECS)
    assert offered("run", "--codec", "col") == ["columnar"]
    assert offered("run", "--codec", "pickle:") == ["pickle:ids=list", "pickle:ids=packed"]
    assert offered("compare", "--codec", "pickle,col") == ["pickle,columnar"]
    assert offered("sweep", "--codec", "pickle,col") == ["pickle,columnar"]
    assert offered("run", "--model", "smol") == ["smollm2-135m"]
    assert offered("run", "--result-format", "pac") == ["packed"]
    assert offered("run", "--dataset-format", "moo") == ["mooncake"]
    assert offered("completion", "") == ["bash", "zsh", "fish"]


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_scripts_ask_serbench(shell: str) -> None:
    result = call("completion", shell)
    assert result.exit_code == 0
    assert f"_SERBENCH_COMPLETE={shell}_complete" in result.stdout


@pytest.mark.skipif(shutil.which("bash") is None, reason="no bash")
def test_bash_takes_the_script() -> None:
    script = call("completion", "bash").stdout + "\ncomplete -p serbench"
    done = subprocess.run(["bash", "-c", script], capture_output=True, text=True, timeout=30, check=False)
    assert (done.returncode, done.stderr) == (0, "")
    assert "_serbench_completion serbench" in done.stdout


def test_the_script_s_question_is_answered() -> None:
    code = "import sys; sys.argv = ['serbench']; from serbench.cli.main import main; main()"
    environment = {"_SERBENCH_COMPLETE": "bash_complete", "COMP_WORDS": "serbench run --codec colu", "COMP_CWORD": "3"}
    done = subprocess.run(
        [sys.executable, "-c", f"import os; os.environ.update({environment!r}); {code}"],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.stdout.split() == ["plain,columnar"]
