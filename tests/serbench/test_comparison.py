"""Tests what is compared, refused, called equal and called a fault. They do not know how runs are measured."""

from typing import Any

import msgspec
import pytest

from serbench.comparison import Comparison, compare_runs
from serbench.errors import OutputsDifferError, ResultsError
from serbench.results import Run, WeightsInfo
from serbench.workload.spec import Arrivals, LengthRange, Prompts, Synthetic
from tests.serbench.mocks import Bench, prepared

replace = msgspec.structs.replace
STEP_US = {"pickle": 1000.0, "msgspec": 1000.0, "delta": 500.0}


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> list[Run]:
    things = prepared(["pickle", "msgspec", "delta"])
    return Bench(things, tmp_path_factory.mktemp("runs"), lambda experiment: STEP_US[experiment.codec]).run()


def with_spec(run: Run, **changes: Any) -> Run:
    return replace(run, spec=replace(run.spec, **changes))


def with_outputs(run: Run, *, batches: str | None = None, kind: str = "dummy") -> Run:
    """``run`` of a real model with other outputs in group 1, and other batches there if given."""
    repeats = list(run.repeats)
    repeats[1] = replace(repeats[1], outputs_digest="other", batches_digest=batches or repeats[1].batches_digest)
    return replace(run, repeats=repeats, weights=WeightsInfo(kind, run.weights.fingerprint))  # type: ignore[arg-type]


def test_ratios_are_against_the_first(runs: list[Run]) -> None:
    first, same, faster = compare_runs(runs).rows
    assert (first.throughput, first.host, first.host_without_adapt) == (None, None, None)
    assert same.throughput is not None
    assert (same.throughput.ratio, same.throughput.verdict) == (1.0, "no difference shown")
    for finding, ratio in ((faster.throughput, 2.0), (faster.host, 0.5), (faster.host_without_adapt, 0.5)):
        assert finding is not None
        assert finding.ratio == pytest.approx(ratio)
        assert finding.verdict == "faster"
    assert faster.host_us_per_step == pytest.approx(250)
    assert faster.host_us_without_adapt == pytest.approx(200)
    assert (faster.plan_bytes, faster.plan_bytes_p50, faster.result_bytes) == (100, 100, 10)
    assert [row.outputs for row in (first, same, faster)] == ["not compared", "equal", "equal"]


def test_runs_measured_together_need_no_warning(runs: list[Run]) -> None:
    assert compare_runs(runs).warnings == []


def test_runs_of_two_sessions_are_warned_about(runs: list[Run]) -> None:
    [warning] = compare_runs([runs[0], replace(runs[1], session="another")]).warnings
    assert "not measured interleaved" in warning


def test_other_versions_are_warned_about(runs: list[Run]) -> None:
    versions = {"numpy": "1.0", "torch": "2.13.0"}
    environment = replace(runs[1].environment, versions=versions, python="CPython 3.99")
    warnings = compare_runs([runs[0], replace(runs[1], environment=environment)]).warnings
    assert warnings == [
        "versions of numpy differ: 1.0, 2.4.6",
        "versions of torch differ: 2.13.0, not installed",
        "versions of Python differ: CPython 3.11, CPython 3.99",
    ]


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ({"model": "other"}, "models differ (sim and other)"),
        ({"dtype": "bfloat16"}, "dtypes differ (float32 and bfloat16)"),
        ({"seed": 1}, "seeds, and so prompts, differ (0 and 1)"),
        ({"max_num_seqs": 7}, "limits of sequences differ (256 and 7)"),
        ({"block_size": 8}, "block sizes differ (16 and 8)"),
        ({"enable_prefix_caching": True}, "settings of the prefix cache differ (off and on)"),
        ({"max_model_len": 64}, "length limits differ (none and 64)"),
        (
            {"workload": Synthetic(num_prompts=3, input_len=LengthRange(4, 6), output_len=LengthRange(9, 9))},
            "workloads differ (output_len 2:4 and 9)",
        ),
        ({"workload": Prompts(texts=("a",))}, "workloads differ (synthetic and prompts)"),
        ({"arrivals": Arrivals(kind="poisson", request_rate=5)}, "arrivals differ (all at once and at random, 5/s)"),
    ],
)
def test_runs_that_differ_in_more_than_the_codec_are_refused(
    runs: list[Run], change: dict[str, Any], reason: str
) -> None:
    with pytest.raises(ResultsError) as refused:
        compare_runs([runs[0], with_spec(runs[1], **change)])
    assert reason in str(refused.value)
    assert runs[1].id in str(refused.value)


def test_weights_machines_and_missing_groups_are_refused_with_all_reasons(runs: list[Run]) -> None:
    other = replace(
        runs[1],
        weights=WeightsInfo("sim", "sim-2"),
        environment=replace(runs[1].environment, cpu="another", cores=64),
        without_kernels="no C++ compiler",
        repeats=[replace(repeat, group=repeat.group + 9) for repeat in runs[1].repeats],
    )
    with pytest.raises(ResultsError) as refused:
        compare_runs([runs[0], other])
    reasons = (
        "weights differ",
        "processors differ",
        "numbers of cores differ (2 and 64)",
        "C++ kernels differ",
        "no group",
    )
    for reason in reasons:
        assert reason in str(refused.value)


def test_the_number_of_blocks_matters_only_where_it_had_a_say(runs: list[Run]) -> None:
    first, other = with_spec(runs[0], num_blocks=10), with_spec(runs[1], num_blocks=20)
    assert compare_runs([first, other]).rows
    preempted = replace(other, repeats=[replace(repeat, preemptions=1) for repeat in other.repeats])
    with pytest.raises(ResultsError, match="numbers of KV blocks differ"):
        compare_runs([first, preempted])


def test_a_run_twice_is_refused(runs: list[Run]) -> None:
    with pytest.raises(ResultsError, match=f"{runs[1].id} can't be compared with itself"):
        compare_runs([runs[0], runs[1], runs[1]])


def test_outputs_are_not_equal_where_there_are_none(runs: list[Run]) -> None:
    silent = [replace(run, repeats=[replace(one, output_tokens=0) for one in run.repeats]) for run in runs[:2]]
    assert [row.outputs for row in compare_runs(silent).rows] == ["not compared", "not compared"]


def test_what_was_not_measured_is_not_nothing(runs: list[Run]) -> None:
    repeats = list(runs[1].repeats)
    repeats[0] = replace(repeats[0], phases_us={k: v for k, v in repeats[0].phases_us.items() if k != "adapt"})
    _, other = compare_runs([runs[0], replace(runs[1], repeats=repeats)]).rows
    assert (other.host_us_without_adapt, other.host_without_adapt) == (None, None)
    assert other.host is not None


def test_other_outputs_of_the_same_batches_are_a_fault(runs: list[Run]) -> None:
    with pytest.raises(OutputsDifferError, match="pickle and msgspec differ in group 1, although the same batches ran"):
        compare_runs([replace(runs[0], weights=WeightsInfo("dummy", "sim-1")), with_outputs(runs[1])])


def test_other_outputs_of_the_simulated_model_are_a_fault_whatever_ran(runs: list[Run]) -> None:
    with pytest.raises(OutputsDifferError, match="the simulated model's can't"):
        compare_runs([runs[0], with_outputs(runs[1], batches="other", kind="sim")])


def test_other_outputs_of_other_batches_are_told(runs: list[Run]) -> None:
    first = replace(runs[0], weights=WeightsInfo("dummy", "sim-1"))
    comparison = compare_runs([first, with_outputs(runs[1], batches="other")])
    assert [row.outputs for row in comparison.rows] == ["not compared", "differ"]
    assert comparison.warnings == [
        "outputs of pickle and msgspec differ in group 1; other batches ran, so rounding may be the cause"
    ]


def test_labels_tell_runs_apart(runs: list[Run]) -> None:
    assert labels(compare_runs(runs)) == ["pickle", "msgspec", "delta"]
    again = replace(runs[0], id="again")
    assert labels(compare_runs([runs[0], again])) == ["pickle #1", "pickle #2"]
    pipes = with_spec(again, transport="pipe")
    assert labels(compare_runs([runs[0], pipes, runs[2]])) == ["pickle shm", "pickle pipe", "delta shm"]
    packed = with_spec(again, result_format="packed")
    assert labels(compare_runs([runs[0], packed])) == ["pickle pickle", "pickle packed"]


def labels(comparison: Comparison) -> list[str]:
    return [row.label for row in comparison.rows]
