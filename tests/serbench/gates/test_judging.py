"""Tests that every gate holds what is unchanged and fails what is worse, by planting it into a real measurement."""

import math
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import msgspec
import pytest

from serbench.environment import describe_environment
from serbench.errors import ResultsError
from serbench.gates.baseline import Baseline, baseline_of, read_baseline, write_baseline
from serbench.gates.judging import Gate, check_comparable, confirmed, hold_against
from serbench.gates.metrics import METRICS, NAMES, RATIOS
from serbench.prepare import prepare
from serbench.results import Repeat, Run

HERE = describe_environment()


def made_of(runs: Sequence[Run], **options: Any) -> Baseline:
    return baseline_of("it", runs, **{"tolerances": {}, "times": True, "before": None, **options})


def changed(runs: Sequence[Run], change: Callable[[Repeat], Repeat]) -> list[Run]:
    """The same measurement, but delta's repeats are changed."""
    repeats = [change(repeat) for repeat in runs[1].repeats]
    same = [one.outputs_digest for one in repeats] == [one.outputs_digest for one in runs[1].repeats]
    digest = runs[1].outputs_digest if same else "0" * 32
    return [runs[0], msgspec.structs.replace(runs[1], repeats=repeats, outputs_digest=digest)]


def slower(phase: str, times: float) -> Callable[[Repeat], Repeat]:
    def change(repeat: Repeat) -> Repeat:
        one = repeat.phases_us[phase]
        return msgspec.structs.replace(
            repeat, phases_us={**repeat.phases_us, phase: msgspec.structs.replace(one, p50=one.p50 * times)}
        )

    return change


def with_bytes(kind: str, more_per_step: int) -> Callable[[Repeat], Repeat]:
    def change(repeat: Repeat) -> Repeat:
        one = getattr(repeat.payload_bytes, kind)
        more = msgspec.structs.replace(one, total=one.total + more_per_step * repeat.steps)
        return msgspec.structs.replace(
            repeat, payload_bytes=msgspec.structs.replace(repeat.payload_bytes, **{kind: more})
        )

    return change


def counting(name: str, by: int = 1) -> Callable[[Repeat], Repeat]:
    return lambda repeat: msgspec.structs.replace(repeat, **{name: getattr(repeat, name) + by})


def host_doubled(repeat: Repeat) -> Repeat:
    phases = {
        name: msgspec.structs.replace(one, p50=2 * one.p50) if name not in ("encode", "decode") else one
        for name, one in repeat.phases_us.items()
    }
    return msgspec.structs.replace(repeat, phases_us=phases)


WORSE: dict[str, Callable[[Repeat], Repeat]] = {
    "plan_bytes": with_bytes("plan", 1),
    "result_bytes": with_bytes("result", 1),
    "steps": counting("steps"),
    "preemptions": counting("preemptions"),
    "input_tokens": counting("input_tokens", -1),
    "output_tokens": counting("output_tokens"),
    "outputs": lambda repeat: msgspec.structs.replace(repeat, outputs_digest="0" * 32),
    "host_time": host_doubled,
    "encode_time": slower("encode", 2.0),
    "decode_time": slower("decode", 2.0),
}


def failed(gates: Sequence[Gate]) -> set[tuple[str, str]]:
    return {(gate.codec, gate.metric) for gate in gates if gate.state == "failed"}


def test_what_is_unchanged_passes_every_gate(runs: list[Run]) -> None:
    gates = hold_against(made_of(runs), runs, HERE, times=True)
    assert {gate.state for gate in gates} == {"passed"}
    assert {(gate.codec, gate.metric) for gate in gates} == {("delta", name) for name in NAMES} | {
        ("pickle", name) for name in NAMES if name not in RATIOS
    }


def test_every_metric_has_something_worse_planted() -> None:
    assert set(WORSE) == set(NAMES)


@pytest.mark.parametrize("metric", NAMES)
def test_what_is_worse_fails_its_gate_and_no_other(metric: str, runs: list[Run]) -> None:
    gates = hold_against(made_of(runs), changed(runs, WORSE[metric]), HERE, times=True)
    assert failed(gates) == {("delta", metric)}
    assert failed(confirmed(gates, gates)) == {("delta", metric)}


def test_what_is_better_passes_and_is_told(runs: list[Run]) -> None:
    gates = hold_against(made_of(runs), changed(runs, with_bytes("plan", -1)), HERE, times=True)
    assert [gate.metric for gate in gates if gate.state == "better"] == ["plan_bytes"]


def test_a_failure_that_does_not_come_again_is_not_one(runs: list[Run]) -> None:
    baseline = made_of(runs)
    first = hold_against(baseline, changed(runs, slower("encode", 3.0)), HERE, times=True)
    assert failed(first) == {("delta", "encode_time")}
    gates = confirmed(first, hold_against(baseline, runs, HERE, times=True))
    assert failed(gates) == set()
    [gate] = [gate for gate in gates if gate.state == "not confirmed"]
    assert gate.again == pytest.approx(gate.baseline)


@pytest.mark.parametrize(("share", "state"), [(0.2, "failed"), (0.6, "passed")])
def test_each_metric_has_a_tolerance_of_its_own(share: float, state: str, runs: list[Run]) -> None:
    baseline = made_of(runs, tolerances={"encode_time": share})
    gates = hold_against(baseline, changed(runs, slower("encode", 1.4)), HERE, times=True)
    assert {gate.metric: gate.state for gate in gates if gate.codec == "delta"}["encode_time"] == state


# --- gates that could not fail ----------------------------------------------------------------------------------------


def broken(baseline: Baseline, path: Path, change: Callable[[Any], None]) -> Path:
    document = msgspec.json.decode(msgspec.json.encode(baseline))
    change(document)
    path.write_bytes(msgspec.json.encode(document))
    return path


@pytest.mark.parametrize("metric", NAMES)
def test_a_baseline_that_lacks_a_metric_is_refused(metric: str, runs: list[Run], tmp_path: Path) -> None:
    def drop(document: Any) -> None:
        if metric in RATIOS:
            del document["machines"][0]["ratios"]["delta"][metric]
        else:
            del document["codecs"][1]["figures"][metric]

    with pytest.raises(ResultsError, match=f"gates that could not fail: codec delta.* lacks {metric}"):
        read_baseline(broken(made_of(runs), tmp_path / "it.json", drop))


@pytest.mark.parametrize(
    ("change", "told"),
    [
        (lambda it: it["tolerances"].pop("steps"), "tolerances lacks steps"),
        (
            lambda it: it["tolerances"].update(plan_bytes=900.0),
            "plan_bytes tolerates 900.0; it must be between 0 and 2",
        ),
        (lambda it: it["tolerances"].update(outputs=0.5), "outputs tolerates 0.5; it must be 0"),
        (lambda it: it["codecs"][0]["figures"].update(steps=0), "pickle: steps is 0; it must be a whole number from 1"),
        (lambda it: it["codecs"][0]["figures"].update(steps="abc"), "pickle: steps is 'abc'; it must be a whole"),
        (lambda it: it["codecs"][0]["figures"].update(steps=1e308), r"pickle: steps is 1e\+308; it must be a whole"),
        (lambda it: it["codecs"][1]["figures"].update(plan_bytes=1 << 60), "delta: plan_bytes is 1152921504606846976;"),
        (lambda it: it["codecs"][1]["figures"].update(preemptions=-1), "delta: preemptions is -1;"),
        (lambda it: it["codecs"][1]["figures"].update(outputs=7), "delta: outputs is 7; it must be a digest"),
        (lambda it: it["machines"][0]["ratios"]["delta"].update(host_time=1e308), r"is 1e\+308, which is no ratio"),
        (lambda it: it["machines"][0]["ratios"].clear(), "codec delta on .* lacks host_time, encode_time, decode_time"),
        (lambda it: it["machines"][0]["ratios"]["delta"].update(host_time=0), "host_time of delta is 0.0, .* no ratio"),
        (lambda it: it["codecs"][0]["figures"].update(speed=3), "codec pickle has speed, which is gated by nothing"),
        (lambda it: it.update(codecs=[]), "it has no codecs"),
        (lambda it: it.update(schema="serbench/baseline/9"), "its schema is 'serbench/baseline/9'"),
        (lambda it: it.pop("weights"), "is no baseline: .*weights"),
    ],
)
def test_gates_that_could_not_fail_are_refused(
    change: Callable[[Any], None], told: str, runs: list[Run], tmp_path: Path
) -> None:
    with pytest.raises(ResultsError, match=told):
        read_baseline(broken(made_of(runs), tmp_path / "it.json", change))


def test_a_tolerance_that_is_no_number_can_t_be_written(runs: list[Run], tmp_path: Path) -> None:
    with pytest.raises(ResultsError, match="host_time tolerates nan"):
        write_baseline(tmp_path / "it.json", made_of(runs, tolerances={"host_time": math.nan}))
    assert not (tmp_path / "it.json").exists()


def test_what_is_written_is_read_again(runs: list[Run], tmp_path: Path) -> None:
    baseline = made_of(runs)
    write_baseline(tmp_path / "it.json", baseline)
    assert read_baseline(tmp_path / "it.json") == baseline


# --- what can be compared ---------------------------------------------------------------------------------------------


def refusal(baseline: Baseline, **options: Any) -> str:
    things = prepare([one.spec for one in baseline.codecs])
    with pytest.raises(ResultsError) as caught:
        check_comparable(baseline, things, HERE, **{"times": True, **options})
    return str(caught.value)


def test_a_baseline_of_this_machine_and_code_is_accepted(runs: list[Run]) -> None:
    baseline = made_of(runs)
    check_comparable(baseline, prepare([one.spec for one in baseline.codecs]), HERE, times=True)


def test_another_class_of_machine_is_refused_for_times_only(runs: list[Run]) -> None:
    baseline = made_of(runs)
    there = msgspec.structs.replace(baseline.machines[0], cpu="a Z80", cores=1)
    baseline = msgspec.structs.replace(baseline, machines=[there])
    told = refusal(baseline)
    assert "it has time ratios of other machines only (a Z80, 1 core), this is " in told
    assert "--no-times leaves them out" in told
    check_comparable(baseline, prepare([one.spec for one in baseline.codecs]), HERE, times=False)
    assert {gate.kind for gate in hold_against(baseline, runs, HERE, times=False)} == {"at most", "equal"}


def test_each_class_of_machine_keeps_its_ratios(runs: list[Run]) -> None:
    baseline = made_of(runs)
    there = msgspec.structs.replace(baseline.machines[0], cpu="a Z80", cores=1)
    before = msgspec.structs.replace(baseline, machines=[there])
    assert made_of(runs, before=before).machines == [there, *baseline.machines]
    other = msgspec.structs.replace(before, codecs=before.codecs[:1])
    assert made_of(runs, before=other).machines == baseline.machines


def test_other_weights_versions_and_settings_are_refused(runs: list[Run]) -> None:
    baseline = made_of(runs)
    weights = msgspec.structs.replace(baseline.weights, fingerprint="other")
    assert "the weights are others (other then, " in refusal(msgspec.structs.replace(baseline, weights=weights))
    versions = {**baseline.versions, "msgspec": "0.1.0", "torch": "0.4.1"}
    told = refusal(msgspec.structs.replace(baseline, versions=versions, python="CPython 3.2.1"))
    assert "it was 0.1.0" in told
    assert "it was CPython 3.2.1" in told
    assert "torch" not in told  # which the simulated model doesn't use
    assert "--seed asks for 3" in refusal(baseline, differing=["--seed asks for 3, it has 0"])


def test_metrics_are_named_once() -> None:
    assert len(set(NAMES)) == len(METRICS)
