"""Tests `serbench run` on the simulated model: what is printed, where, and what is kept. They assert no times."""

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from serbench.results import read_run
from tests.serbench.cli.calling import HERE, QUICK, call, full_after, refused

LONG = ("--num-prompts", "64", "--input-len", "64", "--output-len", "200", "--repeats", "200", "--warmup", "0")


def test_a_run_is_shown_and_stored(tmp_path: Path) -> None:
    result = call("run", "--model", "sim", *QUICK, folder=tmp_path)
    assert result.exit_code == 0
    [path] = tmp_path.iterdir()
    run = read_run(path)
    assert (run.spec.codec, run.spec.transport, run.spec.executor) == ("delta", "shm", "mp")
    for words in ("codec delta", "output tokens/s", "transit_out", "plan", "CPU seconds", f"Stored in {path}"):
        assert words in result.stdout
    assert result.stderr == "", "a simulated model has no device"
    [repeat] = run.repeats
    assert (repeat.input_tokens, repeat.output_tokens, repeat.steps) == (32, 16, 4)
    assert repeat.cpu_s.workers > 0


def test_json_prints_the_stored_document_and_nothing_else(tmp_path: Path) -> None:
    result = call("run", *HERE, "--json", folder=tmp_path)
    [path] = tmp_path.iterdir()
    assert result.stdout == path.read_text()
    assert json.loads(result.stdout)["schema"] == "serbench/run/1"


def test_quiet_says_nothing_on_stderr(tmp_path: Path) -> None:
    assert call("run", *HERE, "--quiet", folder=tmp_path).stderr == ""


@pytest.mark.parametrize("executor", ["inproc", "mp"])
def test_the_phases_add_up_to_the_step(executor: str, tmp_path: Path) -> None:
    call("run", "--model", "sim", "--executor", executor, *QUICK, folder=tmp_path)
    [path] = tmp_path.iterdir()
    [repeat] = read_run(path).repeats
    phases = repeat.phases_us
    host = sum(phase.mean for name, phase in phases.items() if name not in ("forward", "sample"))
    assert host == pytest.approx(repeat.host_us_per_step)
    assert sum(phase.total for phase in phases.values()) < repeat.wall_s * 1e6


def test_prompts_show_their_answers(tmp_path: Path) -> None:
    args = ("--prompt", "first [prompt]", "--prompt", "second", "--output-len", "4", "--repeats", "1")
    result = call("run", "--model", "sim", "--executor", "inproc", *args, folder=tmp_path)
    assert result.exit_code == 0
    assert " > first [prompt]" in result.stdout
    assert " > second" in result.stdout
    assert result.stdout.index("> second") < result.stdout.index("codec delta")


def test_rows_left_out_are_shown_and_stored(tmp_path: Path) -> None:
    data = tmp_path / "data.jsonl"
    data.write_text("".join(json.dumps({"prompt": text}) + "\n" for text in ("good", "", "too long " * 20)))
    args = ("--model", "sim", "--executor", "inproc", "--max-model-len", "64", "--repeats", "1", "--output-len", "2")
    result = call("run", *args, "--dataset", str(data), folder=tmp_path / "runs")
    assert "1 longer than the limit of 64 tokens (line 3); 1 prompt is empty (line 2)" in result.stdout
    [path] = (tmp_path / "runs").iterdir()
    run = read_run(path)
    assert any("rows left out" in line for line in run.warnings)
    assert run.repeats[0].input_tokens == 4


def test_rows_left_out_in_several_repeats_are_told_together(tmp_path: Path) -> None:
    data = tmp_path / "data.jsonl"
    data.write_text(
        "".join(json.dumps({"prompt": "good" if i % 9 == 0 else "too long " * 20}) + "\n" for i in range(90))
    )
    args = ("--model", "sim", "--executor", "inproc", "--max-model-len", "64", "--output-len", "2", "--repeats", "4")
    call("run", *args, "--dataset", str(data), "--num-prompts", "2", folder=tmp_path / "runs")
    [path] = (tmp_path / "runs").iterdir()
    [told] = [line for line in read_run(path).warnings if "rows left out" in line]
    assert "longer than the limit of 64 tokens (lines " in told


def test_the_same_command_gives_the_same_outputs(tmp_path: Path) -> None:
    for _ in range(2):
        call("run", *HERE, folder=tmp_path)
    call("run", *HERE, "--seed", "1", folder=tmp_path)
    runs = [read_run(path) for path in sorted(tmp_path.iterdir(), key=os.path.getmtime)]
    assert runs[0].outputs_digest == runs[1].outputs_digest != runs[2].outputs_digest


def test_preemptions_are_counted_and_shown(tmp_path: Path) -> None:
    args = ("--num-prompts", "4", "--input-len", "24", "--output-len", "24", "--repeats", "1", "--warmup", "0")
    limits = ("--num-blocks", "8", "--max-model-len", "64", "--block-size", "8")
    result = call("run", "--model", "sim", "--executor", "inproc", *args, *limits, folder=tmp_path)
    [path] = tmp_path.iterdir()
    [repeat] = read_run(path).repeats
    assert repeat.preemptions > 0
    assert f"{repeat.preemptions} preemptions" in result.stdout
    assert repeat.output_tokens == 4 * 24


def test_several_workers_of_the_simulated_model(tmp_path: Path) -> None:
    assert call("run", "--model", "sim", "--workers", "2", *QUICK, folder=tmp_path).exit_code == 0
    [path] = tmp_path.iterdir()
    assert len(read_run(path).repeats[0].peak_rss_bytes) >= 2


def test_a_worker_that_hangs_is_told_and_what_was_measured_is_kept(tmp_path: Path) -> None:
    args = ("--model", "sim:step=3s", "--step-timeout", "0.2", *QUICK)
    result = call("run", *args, folder=tmp_path)
    assert result.exit_code == 1
    assert "serbench: worker 0" in result.stderr
    assert "Traceback" not in result.stderr


BROKEN_CODEC = """
from serbench_codecs.delta import DeltaCodec

class Broken(DeltaCodec):
    name = "broken"
    def ends(self, limits):
        encoder, decoder = super().ends(limits)
        return encoder, BrokenDecoder()

class BrokenDecoder:
    def decode(self, payload):
        raise RuntimeError("a fault of the codec's own")
    def adapt(self, objects):
        return objects

CODEC = Broken(format="msgspec")
"""


@pytest.mark.parametrize("executor", ["inproc", "mp"])
def test_a_worker_that_raises_is_told_with_its_own_traceback(
    executor: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "broken_codec.py").write_text(BROKEN_CODEC)
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join([str(tmp_path), *sys.path]))
    args = ("--model", "sim", "--executor", executor, "--codec", "broken_codec:CODEC", *QUICK)
    result = call("run", *args, folder=tmp_path / "runs")
    assert result.exit_code == 1
    first, *trace = result.stderr.splitlines()
    assert first.startswith("serbench: worker 0: ")
    assert "a fault of the codec's own" in first
    assert trace
    assert all(line.startswith("    ") for line in trace)
    assert not list((tmp_path / "runs").iterdir())


TALKING_CODEC = """
from types import SimpleNamespace
from serbench_codecs.delta import DeltaCodec

class Fault(BaseException):
    pass

class Talking(DeltaCodec):
    name = "talking"
    def ends(self, limits):
        encoder, decoder = super().ends(limits)
        return SimpleNamespace(adapt=encoder.adapt, encode=self.fail), decoder
    def fail(self, objects):
        raise Fault("\\x1b[2J" + "on and on " * 10_000 + "to the end")

CODEC = Talking(format="msgspec")
"""


def test_what_a_codec_raises_moves_no_cursor_and_fills_no_screen(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "talking_codec.py").write_text(TALKING_CODEC)
    monkeypatch.syspath_prepend(tmp_path)
    result = call("run", *HERE, "--codec", "talking_codec:CODEC", "--quiet", folder=tmp_path / "runs")
    assert result.exit_code == 1
    first, *trace = result.stderr.splitlines()
    assert first.startswith(
        "serbench: codec talking: no payload of step 0: Fault: \N{REPLACEMENT CHARACTER}[2Jon and on"
    )
    assert "characters left out" in first
    assert first.endswith("to the end")
    assert any("in fail" in line for line in trace)
    assert "\x1b" not in result.stderr
    assert len(result.stderr) < 12_000


@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_a_signal_to_its_group_keeps_what_was_measured_and_says_where(number: int, code: int, tmp_path: Path) -> None:
    # A shell's background jobs ignore SIGINT, and so would their children.
    program = "import signal; signal.signal(signal.SIGINT, signal.default_int_handler);"
    program += "from serbench.cli.main import main; main()"
    command = [sys.executable, "-c", program, "run", "--model", "sim", *LONG, "--output", str(tmp_path)]
    pipe = subprocess.PIPE
    with subprocess.Popen(command, stdout=pipe, stderr=pipe, text=True, start_new_session=True) as process:
        while not list(tmp_path.glob("*.json")):
            assert process.poll() is None, process.communicate()
        os.killpg(process.pid, number)
        out, err = process.communicate(timeout=60)
    assert process.returncode == code
    assert out == ""
    [path] = tmp_path.iterdir()
    run = read_run(path)
    assert 1 <= len(run.repeats) < 200
    kept = "is kept" if len(run.repeats) == 1 else "are kept"
    assert f"{len(run.repeats)} of 200 repeats of delta {kept} in {path}" in err
    assert any(line.startswith("interrupted after") for line in run.warnings)
    assert "Traceback" not in err


def test_a_full_disk_is_told_with_what_is_really_kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("serbench.results.write_atomically", full_after(2))
    result = call("run", *HERE, "--repeats", "4", "--quiet", folder=tmp_path)
    kept, error = result.stderr.splitlines()
    [path] = tmp_path.iterdir()
    assert kept == f"2 of 4 repeats of delta are kept in {path}"
    assert (result.exit_code, error) == (1, f"serbench: {path} can't be written: No space left on device")
    assert len(read_run(path).repeats) == 2


def test_dummy_weights_are_told_on_screen_and_in_the_result(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    args = ("--model", "facebook/opt-125m", "--weights", "dummy", "--num-blocks", "16", "--max-model-len", "64")
    result = call("run", *args, *QUICK, "--json", folder=tmp_path)
    assert result.exit_code == 0, result.stderr
    document = json.loads(result.stdout)
    assert document["weights"]["kind"] == "dummy"
    assert document["tokenizer"]["kind"] == "bytes"
    assert "bytes stand for tokens" in result.stderr
    assert any("bytes stand for tokens" in line for line in document["warnings"])
    assert document["repeats"][0]["output_tokens"] == 16


def test_chat_needs_a_template(tmp_path: Path) -> None:
    assert "--chat needs a chat template" in refused(
        "run", "--model", "sim", "--prompt", "Hi", "--chat", folder=tmp_path
    )
