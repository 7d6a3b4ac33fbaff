"""Tests `serbench check` with a codec that gets worse on request: exit codes, refusals, and what is written.

They assert no times but that an encoder which pauses for long in every step is slower: the pause is so many times what
any encoding takes that no load on the machine hides it.
"""

import json
import sys
from pathlib import Path

import click.testing
import msgspec
import pytest

from serbench.gates.baseline import read_baseline
from serbench_engine.models.config import SimConfig
from serbench_engine.runner.simulated import SimulatedRunner
from tests.serbench.cli.calling import call, one_line
from tests.serbench.planted_codec import Planted

PLANTED = "tests.serbench.planted_codec:CODEC"
NAMED = f"pickle,{PLANTED}"
"""Modules are imported that the command line names."""
SMALL = ("--model", "sim", "--executor", "inproc", "--num-prompts", "16", "--input-len", "24", "--output-len", "16")
TIGHT = ("--max-num-seqs", "8", "--num-blocks", "16", "--max-model-len", "128", "--repeats", "2", "--warmup", "0")


@pytest.fixture(scope="module")
def baseline(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("baseline")
    path = folder / "it.json"
    result = call("check", str(path), "--update", *SMALL, *TIGHT, "--codec", NAMED, folder=folder)
    assert result.exit_code == 0, result.stderr
    assert read_baseline(path).codecs[1].figures["preemptions"] != 0
    return path


def check(baseline: Path, folder: Path, *args: str) -> click.testing.Result:
    return call("check", str(baseline), "--codec", NAMED, *args, folder=folder)


def failed(result: click.testing.Result) -> set[str]:
    """The metrics that failed, of a result with --json."""
    assert result.exit_code == 1, result.output
    return {gate["metric"] for gate in json.loads(result.stdout)["gates"] if gate["state"] == "failed"}


def test_unchanged_code_passes(baseline: Path, tmp_path: Path) -> None:
    result = check(baseline, tmp_path, "--no-times")
    assert result.exit_code == 0, result.output
    assert "check it: passed: 14 of 14 gates hold; times were not gated" in result.stdout


def test_a_plan_one_byte_larger_fails(baseline: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Planted, "padding", 1)
    result = check(baseline, tmp_path, "--no-times", "--json")
    assert failed(result) == {"plan_bytes"}
    assert json.loads(result.stdout)["measurements"] == 2
    [gate] = [gate for gate in json.loads(result.stdout)["gates"] if gate["state"] == "failed"]
    steps = sum(gate["measured"] for gate in json.loads(result.stdout)["gates"] if gate["metric"] == "steps") // 2
    assert gate["measured"] - gate["baseline"] == steps
    assert gate["again"] == gate["measured"]


def test_an_encode_that_takes_longer_relative_to_pickle_fails(
    baseline: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Planted, "pause_s", 0.01)  # about 100 times what pickle takes here
    result = check(baseline, tmp_path, "--json")
    assert "encode_time" in failed(result)
    assert not {"plan_bytes", "steps", "outputs"} & failed(result)


def test_other_outputs_fail(baseline: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    sample = SimulatedRunner.sample
    planted = lambda *args: _shifted(sample(*args))  # noqa: E731 - a method in place of another
    monkeypatch.setattr(SimulatedRunner, "sample", planted)
    assert failed(check(baseline, tmp_path, "--no-times", "--json")) >= {"outputs"}


def _shifted(result: object) -> object:
    assert isinstance(result, msgspec.Struct)
    ids = result.token_ids  # type: ignore[attr-defined]
    return msgspec.structs.replace(result, token_ids=(ids + 1) % SimConfig().vocab_size)


def test_more_steps_fail(baseline: Path, tmp_path: Path) -> None:
    def fewer_tokens_a_step(document: dict[str, object]) -> None:
        for one in document["codecs"]:  # type: ignore[attr-defined]
            one["spec"]["max_num_batched_tokens"] = 16

    slower = tmp_path / "slower.json"
    document = json.loads(baseline.read_text())
    fewer_tokens_a_step(document)  # as if the scheduler had come to use less of its budget
    slower.write_text(json.dumps(document))
    assert "steps" in failed(check(slower, tmp_path, "--no-times", "--json"))


def test_a_run_that_fails_is_no_pass(baseline: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from serbench_engine.errors import EngineError

    def broken(*_: object) -> object:
        raise EngineError("out of order")

    monkeypatch.setattr(SimulatedRunner, "sample", broken)
    result = check(baseline, tmp_path, "--no-times")
    assert (result.exit_code, result.stdout) == (1, "")
    assert "out of order" in result.stderr


def test_summaries_are_written(baseline: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Planted, "padding", 1)
    step_summary = tmp_path / "step.md"
    step_summary.write_text("before\n")
    monkeypatch.setenv("GITHUB_STEP_SUMMARY", str(step_summary))
    files = ("--markdown", str(tmp_path / "it.md"), "--github-json", str(tmp_path / "it.json"))
    assert check(baseline, tmp_path / "runs", "--no-times", *files).exit_code == 1
    text = (tmp_path / "it.md").read_text()
    assert text.startswith("### serbench check it: FAILED: 13 of 14 gates hold, after a second measurement")
    assert f"| {PLANTED} | plan bytes |" in text
    assert step_summary.read_text() == f"before\n{text}\n"


def test_a_summary_that_can_t_be_written_hides_no_verdict(baseline: Path, tmp_path: Path) -> None:
    result = check(baseline, tmp_path / "runs", "--no-times", "--markdown", "/dev/full")
    assert "check it: passed" in result.stdout
    assert (result.exit_code, one_line(result.stderr.splitlines()[-1])) == (
        1,
        "serbench: /dev/full can't be written: No space left on device",
    )


@pytest.mark.parametrize(
    ("args", "told"),
    [
        (("--markdown", "{}"), "--markdown {} can't be written: it is a folder; name a file"),
        (("--github-json", "{}/no/x"), "--github-json {}/no/x can't be written: there is no folder {}/no"),
        (("--markdown", "{}/file/x"), "--markdown {}/file/x can't be written: there is no folder {}/file"),
        ((), "$GITHUB_STEP_SUMMARY {} can't be written: it is a folder; name a file"),
    ],
)
def test_a_summary_that_can_t_be_written_is_told_before_measuring(
    args: tuple[str, ...], told: str, baseline: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "file").write_text("")
    if not args:
        monkeypatch.setenv("GITHUB_STEP_SUMMARY", str(tmp_path))
    result = check(baseline, tmp_path / "runs", "--no-times", *(arg.format(tmp_path) for arg in args))
    assert (result.exit_code, result.stdout) == (2, "")
    assert one_line(result.stderr) == f"serbench: {told.format(tmp_path, tmp_path)}"
    assert not (tmp_path / "runs").exists()


@pytest.mark.parametrize(
    ("name", "told"),
    [("it", "it is a folder; name a file"), ("file/x.json", "there is no folder {}/file"), ("no/x.json", "")],
)
def test_a_baseline_that_can_t_be_written_is_told_before_measuring(name: str, told: str, tmp_path: Path) -> None:
    (tmp_path / "it").mkdir()
    (tmp_path / "file").write_text("")
    path = tmp_path / name
    result = call("check", str(path), "--update", *SMALL, *TIGHT, "--no-times", "-q", folder=tmp_path / "runs")
    assert (result.exit_code, (tmp_path / "runs").exists()) == ((2, False) if told else (0, True))
    if told:
        told = told.format(tmp_path)
        assert one_line(result.stderr) == f"serbench: the baseline {path} can't be written: {told}"


def test_github_action_benchmark_can_read_it(baseline: Path, tmp_path: Path) -> None:
    assert check(baseline, tmp_path / "runs", "--no-times", "--github-json", str(tmp_path / "it.json")).exit_code == 0
    entries = json.loads((tmp_path / "it.json").read_text())
    assert len({entry["name"] for entry in entries}) == len(entries) == 8
    for entry in entries:
        assert {"name", "unit", "value"} <= set(entry) <= {"name", "unit", "value", "range", "extra"}
        assert isinstance(entry["value"], int | float)
        assert all(isinstance(entry[name], str) for name in ("name", "unit", "extra"))


@pytest.mark.parametrize(
    ("args", "told"),
    [
        (("--seed", "3"), "--seed asks for 3, it has 0"),
        (("--model", "sim:step=2ms"), "--model asks for sim:step=2ms, it has sim"),
        (("--num-prompts", "5"), "--num-prompts asks for 5, it has 16"),
        (("--codec", f"{PLANTED},pickle"), f"--codec asks for {PLANTED},pickle, it has pickle,{PLANTED}"),
        (("--result-format", "pickle"), "--result-format asks for pickle, it has pickle and msgspec"),
        (("--request-rate", "5"), "--request-rate asks for 5.0, it has None"),
        (("--max-concurrency", "3"), "--max-concurrency asks for 3, it has None"),
        (("--prompt", "Why?"), "--prompt asks for ('Why?',), it has None"),
        (("--tolerance", "steps=1"), "--tolerance goes with --update"),
    ],
)
def test_what_the_baseline_does_not_hold_is_refused(
    args: tuple[str, ...], told: str, baseline: Path, tmp_path: Path
) -> None:
    result = check(baseline, tmp_path, "--no-times", *args)
    assert (result.exit_code, result.stdout) == (2, "")
    assert told in one_line(result.stderr)


def test_what_the_baseline_holds_may_be_said(baseline: Path, tmp_path: Path) -> None:
    assert check(baseline, tmp_path, "--no-times", "--arrivals", "together", *SMALL, *TIGHT).exit_code == 0


def test_a_baseline_that_isn_t_there_is_refused(tmp_path: Path) -> None:
    result = call("check", "nothing", folder=tmp_path)
    assert result.exit_code == 2
    assert "there is no baseline results/baselines/nothing.json" in one_line(result.stderr)


@pytest.mark.parametrize(
    ("args", "told"),
    [
        (("--codec", "delta"), "one codec gives no ratio of times"),
        (("--tolerance", "speed=1"), "there is no metric 'speed'"),
        (("--tolerance", "steps"), "write METRIC=SHARE"),
        (("--tolerance", "steps=9"), "a tolerance is a share between 0 and 2"),
        (("--request-rate", "9"), "requests that arrive one by one"),
    ],
)
def test_baselines_that_would_gate_nothing_are_not_written(args: tuple[str, ...], told: str, tmp_path: Path) -> None:
    result = call("check", str(tmp_path / "it.json"), "--update", *SMALL, *TIGHT, *args, folder=tmp_path)
    assert result.exit_code == 2
    assert told in one_line(result.stderr.splitlines()[-1])
    assert not (tmp_path / "it.json").exists()


def test_an_update_measures_the_same_again(baseline: Path, tmp_path: Path) -> None:
    copy = tmp_path / "it.json"
    copy.write_bytes(baseline.read_bytes())
    args = ("--update", "--codec", NAMED, "--no-times", "--tolerance", "steps=0.5")
    assert call("check", str(copy), *args, folder=tmp_path / "runs").exit_code == 0
    before, after = read_baseline(baseline), read_baseline(copy)
    assert [one.spec for one in after.codecs] == [one.spec for one in before.codecs]
    assert [one.figures for one in after.codecs] == [one.figures for one in before.codecs]
    assert after.tolerances == {**before.tolerances, "steps": 0.5}


@pytest.mark.parametrize(
    ("args", "told"),
    [
        (("--repeats", "1"), "--repeats asks for 1, it has 2"),
        (("--codec", "pickle"), "--codec asks for pickle"),
        (("--max-concurrency", "4"), "--max-concurrency asks for 4, it has None"),
    ],
)
def test_an_update_replaces_no_other_experiment(
    args: tuple[str, ...], told: str, baseline: Path, tmp_path: Path
) -> None:
    copy = tmp_path / "it.json"
    copy.write_bytes(baseline.read_bytes())
    result = call("check", str(copy), "--update", "--codec", NAMED, *args, folder=tmp_path / "runs")
    assert (result.exit_code, copy.read_bytes()) == (2, baseline.read_bytes())
    line = one_line(result.stderr.splitlines()[-1])
    assert "holds another experiment" in line
    assert told in line


@pytest.mark.parametrize("codec", ["pwn:X", "os:abort"])
@pytest.mark.parametrize("args", [(), ("--update",), ("--codec", "pickle,delta")])
def test_a_baseline_imports_no_module(
    args: tuple[str, ...], codec: str, baseline: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "pwn.py").write_text("raise SystemExit('it ran')\n")
    monkeypatch.syspath_prepend(tmp_path)
    document = json.loads(baseline.read_text())
    document["codecs"][0]["spec"]["codec"] = codec
    (tmp_path / "it.json").write_text(json.dumps(document))
    result = call("check", str(tmp_path / "it.json"), "--no-times", *args, folder=tmp_path / "runs")
    assert (result.exit_code, result.stdout) == (2, "")
    assert f"has codec {codec}, a module that would be imported" in one_line(result.stderr)
    assert f"add --codec {codec},{PLANTED}" in result.stderr
    assert "pwn" not in sys.modules


def test_the_committed_baselines_can_be_read() -> None:
    found = list((Path(__file__).resolve().parents[3] / "results" / "baselines").glob("*.json"))
    assert [read_baseline(path).name for path in found] == [path.stem for path in found]
    assert "sim" in {path.stem for path in found}
