"""The scripts beside the peers, with engines that are made up: what options mean, and what is told however it ends.

What they time is nothing to test, and no peer is there.
"""

import importlib
import json
import os
import signal
import sys
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from types import SimpleNamespace
from typing import Any, Self

import click
import pytest
from click.testing import CliRunner, Result

from benchmarks.peers import contenders, host_path, startup, throughput
from benchmarks.peers.children import Answer, ChildError, Children, Command
from benchmarks.peers.contenders import Serving, serving_of
from benchmarks.peers.script import Script, json_option, measure_and_tell
from benchmarks.peers.throughput import TRIAL, Measured, Shape, Stage
from serbench.environment import describe_environment

COMMAND = Command(python="python", module="none")


class MadeUpChild:
    """Answers with ``answer``; asked once more than ``answers`` times, it fails."""

    def __init__(self, name: str, answer: Callable[[Mapping[str, Any]], dict[str, Any]], answers: int) -> None:
        self.name = name
        self._answer = answer
        self._left = answers

    def ask(self, question: Mapping[str, Any], timeout_s: float) -> Answer:
        if not self._left:
            raise ChildError(f"{self.name} ended")
        self._left -= 1
        return Answer(self._answer(question), 1.0, 1.0, 0.0)

    def close(self) -> None:
        pass


class MadeUpChildren:
    """Starts made-up children, which all give so many answers."""

    def __init__(self, answer: Callable[[Mapping[str, Any]], dict[str, Any]], answers: int) -> None:
        self._answer = answer
        self._answers = answers

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        pass

    def start(self, name: str, command: Command) -> MadeUpChild:
        return MadeUpChild(name, self._answer, self._answers)


# --- options ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("command", "args", "expected"),
    [
        (throughput.main, ["--quick"], {"models": ("opt-125m",), "shapes": (Shape(128, 64),)}),
        (throughput.main, ["--quick", "--shapes", "16/4"], {"models": ("opt-125m",), "shapes": (Shape(16, 4),)}),
        (throughput.main, ["--models", "smollm2-135m", "--quick"], {"models": ("smollm2-135m",)}),
        (host_path.main, ["--quick"], {"rounds": 4, "steps": 32}),
        (host_path.main, ["--quick", "--rounds", "8", "--steps", "64"], {"rounds": 8, "steps": 64}),
        (host_path.main, ["--steps", "16", "--quick"], {"rounds": 4, "steps": 16}),
        (startup.main, ["--quick"], {"rounds": 2, "engines": startup.QUICK}),
        (startup.main, ["--quick", "--rounds", "3"], {"rounds": 3, "engines": startup.QUICK}),
        (startup.main, ["--engines", "serbench mp", "--quick"], {"rounds": 2, "engines": ("serbench mp",)}),
    ],
)
def test_what_is_given_beside_quick_holds(command: click.Command, args: list[str], expected: dict[str, Any]) -> None:
    params = command.make_context("script", args).params
    assert {name: params[name] for name in expected} == expected


@pytest.mark.parametrize(
    ("command", "args", "words"),
    [
        (throughput.main, ["--shapes", "x"], "'x' is no shape"),
        (throughput.main, ["--shapes", "16/4,8/0"], "0 is out of range"),
        (throughput.main, ["--shapes", "4096/4"], "too long for opt-125m, which takes 2048"),
        (throughput.main, ["--models", "y"], "no model 'y'"),
        (throughput.main, ["--vllm", "y"], "no engine 'y'"),
        (throughput.main, ["--json", "/nowhere/file"], "there is no folder /nowhere"),
        (host_path.main, ["--batches", "a,b"], "'a' is no whole number"),
        (host_path.main, ["--batches", "0"], "0 is out of range"),
        (host_path.main, ["--codec", "detla"], "no codec 'detla'"),
        (host_path.main, ["--json", "/"], "it is a folder"),
        (startup.main, ["--engines", "z"], "no engine 'z'"),
        (startup.main, ["--rounds", "0"], "0 is out of range"),
    ],
)
def test_bad_options_are_told(command: click.Command, args: list[str], words: str) -> None:
    result = CliRunner().invoke(command, args)
    assert result.exit_code == 2
    assert words in result.output


# --- however it ends ----------------------------------------------------------------------------------------------


def run_script(measure: Callable[[], None], *args: str) -> Result:
    @click.command(cls=Script)
    @json_option
    def script(path: Path | None) -> None:
        measure_and_tell(measure, lambda: "the report", lambda: b"the figures", path, ["mind this"])

    return CliRunner().invoke(script, args)


def fail(error: BaseException) -> None:
    raise error


@pytest.mark.parametrize(
    ("error", "words"), [(ChildError("vllm ended"), "vllm ended"), (KeyboardInterrupt(), "interrupted")]
)
def test_what_was_measured_is_told_and_written_all_the_same(error: BaseException, words: str, tmp_path: Path) -> None:
    done = run_script(lambda: fail(error), "--json", str(tmp_path / "figures"))
    assert (done.exit_code, done.stdout) == (1, "warning: mind this\n\nthe report\n")
    assert done.stderr == f"warning: mind this\nError: {words}\n"
    assert (tmp_path / "figures").read_bytes() == b"the figures"


def test_sigterm_ends_it_like_an_interrupt() -> None:
    before = signal.getsignal(signal.SIGTERM)
    done = run_script(lambda: os.kill(os.getpid(), signal.SIGTERM))
    assert (done.exit_code, done.stderr.splitlines()[-1]) == (1, "Error: interrupted")
    assert signal.getsignal(signal.SIGTERM) is before


def test_a_fault_that_nobody_expects_keeps_its_traceback_below_the_report() -> None:
    done = run_script(lambda: fail(ZeroDivisionError("ours")))
    assert isinstance(done.exception, ZeroDivisionError)
    assert "the report" in done.stdout


def test_figures_that_can_not_be_written_are_printed_first(tmp_path: Path) -> None:
    folder = tmp_path / "folder"
    folder.mkdir()
    file = folder / "figures"

    def remove_the_folder() -> None:
        folder.rmdir()
        raise ChildError("vllm ended")

    done = run_script(remove_the_folder, "--json", str(file))
    assert (done.exit_code, done.stdout) == (1, "warning: mind this\n\nthe report\n")
    assert done.stderr.endswith(f"Error: vllm ended\n{file} can't be written: No such file or directory\n")


# --- complete rounds ----------------------------------------------------------------------------------------------


def host_said(question: Mapping[str, Any]) -> dict[str, Any]:
    """What both children say: a request costs vLLM 10 µs and serbench 1 µs, and 2 µs ahead."""
    batch = question["batch"]
    theirs = dict.fromkeys(("schedule_us", "update_us", "round_trip_us", "two_calls_us"), 1.0)
    return {
        **theirs,
        "step_us": 10.0 * batch,
        "host_us": 1.0 * batch,
        "ahead_us": 2.0 * batch,
        "plan_bytes": 8,
        "result_bytes": 8,
    }


@pytest.mark.parametrize(("answers", "rounds"), [(2, 0), (3, 1), (6, 2)])
def test_host_path_keeps_complete_rounds(monkeypatch: pytest.MonkeyPatch, answers: int, rounds: int) -> None:
    monkeypatch.setattr(host_path, "Children", lambda: MadeUpChildren(host_said, answers))
    measured = host_path.Measured(
        environment=describe_environment(),
        vllm_environment={},
        settings=dict.fromkeys((host_path.PEER, host_path.OURS), COMMAND),
        batches=(16, 64),
        context=16,
        steps=8,
        codec="columnar",
        rounds=3,
        offline_ids=False,
        figures=[],
    )
    with pytest.raises(ChildError):
        host_path.measure(measured)
    assert len(measured.figures) == rounds * 2 * len(measured.batches)
    report = host_path.report(measured)
    if not rounds:
        assert report == "no round was completed"
        return
    assert f"medians over {rounds} of 3 rounds of 8 steps" in report
    assert "A request added, from 16 to 64: vLLM 10.00 µs a step, serbench 1.000 µs, with ahead 3.000 µs." in report


def nothing_measured(**more: Any) -> Measured:
    given = {"environment": describe_environment(), "vllm_environment": {}, "without_kernels": ""}
    return Measured(**{**given, "num_prompts": 2, "rounds": 3, "settings": {}, "turns": [], **more})


def completed(question: Mapping[str, Any]) -> dict[str, Any]:
    return {"wall_s": 1.0, "outputs": [[1] * question["output_len"] for _ in question["prompts"]]}


@pytest.mark.parametrize(("answers", "rounds"), [(2, 1), (3, 1), (4, 2)])
def test_throughput_keeps_complete_rounds(tmp_path: Path, answers: int, rounds: int) -> None:
    # Two questions a turn: the first refills its caches.
    measured = nothing_measured()
    serving = Serving(tmp_path, 32, 2, 1)
    stage = Stage(measured, "opt-125m", serving, Children())
    lasting, failing = MadeUpChild("serbench mp", completed, 99), MadeUpChild("transformers", completed, answers)
    with pytest.raises(ChildError):
        stage.rounds([lasting, failing], Shape(8, 4))  # type: ignore[list-item]
    assert [turn.round for turn in measured.turns] == sorted([*range(rounds)] * 2)
    report = throughput.report(measured)
    assert f"| opt-125m | 8/4 | serbench mp | 8 | {rounds} |" in report
    assert "serbench mp / transformers | 1.00" in report


def test_throughput_reports_trials_where_no_round_was_completed(tmp_path: Path) -> None:
    measured = nothing_measured()
    stage = Stage(measured, "opt-125m", Serving(tmp_path, 32, 2, 1), MadeUpChildren(completed, 3))  # type: ignore[arg-type]
    assert throughput.report(measured) == "no round was completed"
    stage.best_of({"vllm eager": lambda serving: COMMAND}, [Shape(8, 4)])
    assert [turn.round for turn in measured.turns] == [TRIAL]
    assert "tried once each" in throughput.report(measured)
    assert measured.settings == {"opt-125m": {"vllm eager": COMMAND}}


def test_startup_keeps_complete_rounds_in_the_order_of_the_engines(monkeypatch: pytest.MonkeyPatch) -> None:
    turns = iter([1.0, 2.0, 3.0, 4.0, 5.0])

    def taken(*_: object) -> float:
        if (one := next(turns, None)) is None:
            raise KeyboardInterrupt
        return one

    monkeypatch.setattr(startup, "time_to_first_token", taken)
    monkeypatch.setattr(startup, "Children", lambda: MadeUpChildren(completed, 0))
    seconds: list[dict[str, float]] = []
    with pytest.raises(KeyboardInterrupt):
        startup.measure({"a": COMMAND, "b": COMMAND}, 3, seconds)
    assert seconds == [{"a": 4.0, "b": 3.0}]
    assert list(seconds[0]) == ["a", "b"]
    assert startup.report("opt-125m", []) == "no round was completed"


# --- fairness -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "variable"), [("serbench mp", "XDG_CACHE_HOME"), ("vllm compiled", "VLLM_CACHE_ROOT")]
)
def test_cold_engines_have_an_empty_cache_of_their_own(name: str, variable: str) -> None:
    assert startup.STARTS[f"{name} cold"] is startup.STARTS[name]
    caches = []
    for _ in range(2):
        with startup._cache(f"{name} cold", COMMAND) as command:
            cache = Path(command.variables[variable])
            assert not list(cache.iterdir())
            caches.append(cache)
        assert not cache.exists()
    assert caches[0] != caches[1]
    with startup._cache(name, COMMAND) as command:
        assert command is COMMAND


def test_runs_without_kernels_say_so(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(contenders, "native_status", lambda dtype, head_dim: "SERBENCH_NATIVE=0 turns them off")
    monkeypatch.setattr(contenders, "folder_of", lambda model: tmp_path)
    monkeypatch.setattr(throughput, "Children", lambda: MadeUpChildren(completed, 99))
    file = tmp_path / "figures.json"
    args = ["--quick", "--vllm", "", "--no-transformers", "--rounds", "1", "--num-prompts", "2", "--json", str(file)]
    done = CliRunner().invoke(throughput.main, args)
    assert done.exit_code == 0
    line = "serbench ran without its C++ kernels, so slower: SERBENCH_NATIVE=0 turns them off"
    assert done.stdout.startswith(f"warning: {line}\n")
    written = json.loads(file.read_bytes())
    assert written["without_kernels"] == "SERBENCH_NATIVE=0 turns them off"
    assert list(written["settings"]["opt-125m"]) == ["serbench inproc", "serbench mp"]
    assert written["environment"]["versions"]["torch"]


@pytest.fixture
def vllm_llm(monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    """The child's module, where LLM hands back what it is given."""
    made_up = SimpleNamespace(LLM=lambda folder, **options: options, SamplingParams=None)
    monkeypatch.setitem(sys.modules, "vllm", made_up)
    name = "benchmarks.peers.vllm_llm"
    sys.modules.pop(name, None)
    yield importlib.import_module(name)
    sys.modules.pop(name, None)


@pytest.mark.parametrize(("num_prompts", "limit"), [(64, None), (256, None), (512, 512)])
def test_vllm_runs_as_many_prompts_at_once_as_serbench(vllm_llm: Any, num_prompts: int, limit: int | None) -> None:
    assert vllm_llm.Completer("folder", 1024, num_prompts)._llm["max_num_seqs"] == limit


def test_vllm_has_room_for_all_prompts(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(contenders, "folder_of", lambda model: tmp_path)
    monkeypatch.setattr(contenders, "vllm_python", lambda: "python")
    monkeypatch.setattr("benchmarks.peers.peer_environment.preloaded", lambda: "")

    def gib(num_prompts: int) -> int:
        command = contenders.VLLM["vllm eager"](serving_of("opt-125m", 1024, num_prompts))
        assert command.options[:3] == (str(tmp_path), "1024", str(num_prompts))
        return int(command.variables["VLLM_CPU_KVCACHE_SPACE"])

    bytes_a_token = 2 * 12 * 768 * 2  # keys and values of 12 layers in bfloat16
    assert gib(64) == 4
    assert gib(512) == 512 * 1024 * bytes_a_token >> 30
