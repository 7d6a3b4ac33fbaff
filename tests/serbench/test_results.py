"""Tests the stored format: what is in it, that it reads back, and what is refused. They do not know the harness."""

import json
import re
from pathlib import Path

import msgspec
import pytest

from serbench import record
from serbench.errors import ResultsError
from serbench.record import Recorder
from serbench.results import SCHEMA, PhaseTimes, Repeat, Run, check_writable, encode_run, find_run, read_run, store_run
from serbench_engine.models.known import SMOLLM2_135M
from tests.serbench.mocks import MODEL, Bench, prepared

QUANTILES = {"p50", "p99", "mean"}
FIELDS = {
    "group",
    "order",
    "outputs_digest",
    "wall_s",
    "requests_per_s",
    "output_tokens_per_s",
    "total_tokens_per_s",
    "steps",
    "phases_us",
    "host_us_per_step",
    "payload_bytes",
    "latency_s",
    "cpu_s",
    "preemptions",
    "input_tokens",
    "output_tokens",
}


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Run:
    return Bench(prepared(["delta"], repeats=2), tmp_path_factory.mktemp("runs")).run()[0]


def test_the_document_has_the_fields_it_promises(run: Run) -> None:
    document = json.loads(encode_run(run))
    assert document["schema"] == SCHEMA == "serbench/run/1"
    promised = "id created spec environment weights tokenizer repeats outputs_digest batches_digest summary warnings"
    assert set(promised.split()) <= set(document)
    for repeat in document["repeats"]:
        assert set(repeat) >= FIELDS
        assert all(set(phase) == QUANTILES | {"total"} for phase in repeat["phases_us"].values())
        assert set(repeat["payload_bytes"]) == {"plan", "result"}
        assert all(set(bytes_) == {"p50", "max", "mean", "total"} for bytes_ in repeat["payload_bytes"].values())
        assert set(repeat["latency_s"]) == {"ttft", "tpot", "e2e"}
        assert all(set(latency) == QUANTILES for latency in repeat["latency_s"].values())
        assert set(repeat["cpu_s"]) == {"scheduler", "workers"}
    assert document["spec"]["codec"] == "delta"
    assert document["spec"]["workload"] == {
        "kind": "synthetic",
        "num_prompts": 3,
        "input_len": {"low": 4, "high": 6},
        "output_len": {"low": 2, "high": 4},
    }


def test_every_documented_field_is_in_the_format(run: Run) -> None:
    page = (Path(__file__).parents[2] / "results" / "README.md").read_text()
    for struct in (Run, type(run.repeats[0]), type(run.spec), type(run.environment)):
        for field in msgspec.structs.fields(struct):
            assert f"`{field.name}`" in page, f"{struct.__name__}.{field.name} is not documented"


def test_it_reads_back(run: Run, tmp_path: Path) -> None:
    path = store_run(run, tmp_path / "deep" / "folder")
    assert path.name == f"{run.id}.json"
    assert read_run(path) == run


def without_adapt(repeat: Repeat) -> dict[str, PhaseTimes]:
    return {name: phase for name, phase in repeat.phases_us.items() if name != "adapt"}


def test_the_summary_leaves_out_what_was_not_measured(run: Run) -> None:
    repeats = [msgspec.structs.replace(one, phases_us=without_adapt(one)) for one in run.repeats]
    begun = msgspec.structs.replace(run, repeats=repeats)
    recorder = Recorder(run.spec, MODEL, run.environment, "s", lambda _: Path(), begun=begun)
    assert run.summary.keys() - recorder.run().summary.keys() == {"host_us_per_step_without_adapt"}


def test_a_run_says_why_a_model_had_no_kernels(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    asked = []

    def status(dtype: str, head_dim: int) -> str:
        asked.append((dtype, head_dim))
        return "no C++ compiler"

    monkeypatch.setattr(record, "native_status", status)
    model = msgspec.structs.replace(MODEL, config=SMOLLM2_135M)
    begun = msgspec.structs.replace(run, without_kernels="no C++ compiler")
    first = Recorder(run.spec, model, run.environment, "s", lambda _: Path(), begun=begun).run()
    assert asked[0] == ("float32", SMOLLM2_135M.head_dim)
    assert first.without_kernels == "no C++ compiler"
    [line] = [line for line in first.warnings if "kernels" in line]
    again = Recorder(run.spec, model, run.environment, "s", lambda _: Path(), begun=first).run()
    assert again.warnings.count(line) == 1
    assert run.without_kernels == ""


@pytest.mark.parametrize(("then", "now"), [("", "no C++ compiler"), ("no C++ compiler", "")])
def test_a_run_does_not_go_on_with_other_kernels(
    then: str, now: str, run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(record, "native_status", lambda dtype, head_dim: now)
    model, begun = (
        msgspec.structs.replace(MODEL, config=SMOLLM2_135M),
        msgspec.structs.replace(run, without_kernels=then),
    )
    with pytest.raises(ResultsError, match="would go on with"):
        Recorder(run.spec, model, run.environment, "s", lambda _: Path(), begun=begun)


def test_storing_again_replaces_and_leaves_nothing_else(run: Run, tmp_path: Path) -> None:
    store_run(run, tmp_path / "out")
    store_run(msgspec.structs.replace(run, warnings=["new"]), tmp_path / "out")
    [path] = (tmp_path / "out").iterdir()
    assert read_run(path).warnings == ["new"]


def test_a_field_that_came_later_is_no_obstacle(run: Run, tmp_path: Path) -> None:
    document = json.loads(encode_run(run))
    document["repeats"][0]["added_later"] = 1
    path = tmp_path / "run.json"
    path.write_text(json.dumps(document))
    assert read_run(path) == run


def test_a_run_of_a_codec_that_is_not_here_can_be_read(run: Run, tmp_path: Path) -> None:
    document = json.loads(encode_run(run))
    document["spec"]["codec"] = "somebodys-plug-in"
    path = tmp_path / "run.json"
    path.write_text(json.dumps(document))
    assert read_run(path).spec.codec == "somebodys-plug-in"


@pytest.mark.parametrize(
    ("content", "complaint"),
    [
        ("", "is no stored run"),
        ("not json", "is no stored run"),
        ("[]", "is no stored run"),
        ("{}", "its schema is None, this serbench reads 'serbench/run/1'"),
        ('{"schema": "serbench/run/2"}', "its schema is 'serbench/run/2', this serbench reads 'serbench/run/1'"),
        ('{"schema": "serbench/run/1"}', "does not hold what serbench/run/1 says"),
    ],
)
def test_what_is_no_run_is_refused(tmp_path: Path, content: str, complaint: str) -> None:
    path = tmp_path / "x.json"
    path.write_text(content)
    with pytest.raises(ResultsError) as refused:
        read_run(path)
    assert complaint in str(refused.value)
    assert "\n" not in str(refused.value)


def test_values_that_can_t_be_are_refused(run: Run, tmp_path: Path) -> None:
    document = json.loads(encode_run(run))
    document["spec"]["repeats"] = 0
    path = tmp_path / "x.json"
    path.write_text(json.dumps(document))
    with pytest.raises(ResultsError, match="repeats is 0; it must be at least 1"):
        read_run(path)


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("host_us_per_step", 1e308),
        ("output_tokens_per_s", 1e308),
        ("output_tokens_per_s", -3.0),
        ("output_tokens_per_s", 1e-300),
        ("wall_s", -5.0),
        ("steps", 0),
        ("input_tokens", -1),
        ("group", 0),
    ],
)
def test_figures_that_nothing_can_have_measured_are_refused(name: str, value: float, run: Run, tmp_path: Path) -> None:
    document = json.loads(encode_run(run))
    document["repeats"][1][name] = value
    path = tmp_path / "x.json"
    path.write_text(json.dumps(document))
    told = f"{path} has figures that can't have been measured: repeats[1].{name} is {value}"
    with pytest.raises(ResultsError, match=re.escape(told)):
        read_run(path)


def test_figures_within_others_are_looked_at(run: Run, tmp_path: Path) -> None:
    document = json.loads(encode_run(run))
    document["repeats"][0]["latency_quantiles_s"]["ttft"][2] = 1e308
    path = tmp_path / "x.json"
    path.write_text(json.dumps(document))
    with pytest.raises(ResultsError, match=re.escape("repeats[0].latency_quantiles_s.ttft[2] is 1e+308")):
        read_run(path)


def test_a_repeat_without_the_model_s_phases_is_refused(run: Run, tmp_path: Path) -> None:
    document = json.loads(encode_run(run))
    del document["repeats"][1]["phases_us"]["sample"]
    path = tmp_path / "x.json"
    path.write_text(json.dumps(document))
    with pytest.raises(ResultsError, match="does not hold what serbench/run/1 says: repeat 1 has no phase sample"):
        read_run(path)


def test_a_run_is_found_by_path_id_and_beginning(run: Run, tmp_path: Path) -> None:
    path = store_run(run, tmp_path)
    assert find_run(str(path), tmp_path / "nowhere") == path
    assert find_run(run.id, tmp_path) == path
    assert find_run(run.id[:-3], tmp_path) == path
    store_run(msgspec.structs.replace(run, id=run.id + "-b"), tmp_path)
    assert find_run(run.id, tmp_path) == path
    with pytest.raises(ResultsError, match="is the beginning of 2 runs"):
        find_run(run.id[:-3], tmp_path)
    with pytest.raises(ResultsError, match=f"neither a file nor a run.*{run.id}"):
        find_run("nothing-like-it", tmp_path)
    with pytest.raises(ResultsError, match="there are none yet"):
        find_run("x", tmp_path / "empty")


def test_a_folder_that_can_t_be_written_is_told_before(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(ResultsError, match="--output chooses another"):
        check_writable(tmp_path / "file" / "below")
    check_writable(tmp_path / "new")
