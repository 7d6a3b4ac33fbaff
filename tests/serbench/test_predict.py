"""Tests what is predicted from host times: arithmetic on made-up ones, and the simulated engine.

That the engine does what is predicted is measured by `benchmarks/predict_check.py`: a busy machine could fail it here.
"""

from pathlib import Path
from typing import Any

import msgspec
import pytest

from benchmarks import predict_check
from serbench.environment import Environment
from serbench.errors import ExperimentError, FaultError, OutputsDifferError, ResultsError
from serbench.experiment import Experiment
from serbench.harness import Harness, Watcher
from serbench.hostpath import HostCell, HostPass, Hostpath, HostpathSpec, Shape, Times, summed
from serbench.hostpath_cells import measure_hostpath
from serbench.live import LiveEngine
from serbench.predict import ModelTime, host_model, host_spec, host_steps, predict_runs, predict_steady
from serbench.prepare import prepare
from serbench.prepared import Prepared
from serbench.results import Run
from serbench.workload.spec import Arrivals, Prompts
from tests.serbench.mocks import ENVIRONMENT, Bench, Silent, prepared


def host_pass(group: int, mean_us: float) -> HostPass:
    return HostPass(
        group=group,
        order=group,
        steps=8,
        host_us=Times(mean_us / 2, mean_us * 2, mean_us),
        ahead_us=1.0,
        phases_us={},
        plan_bytes=1.0,
        result_bytes=1.0,
    )


def hostpath(environment: Environment = ENVIRONMENT, **host_us: list[float]) -> Hostpath:
    """Cells of 100 requests; a codec without times was skipped."""
    cells = []
    for codec, means in host_us.items():
        cell = HostCell(codec=codec, batch=100, context=512, skipped="" if means else "full state of 9.0 M ids")
        cells.append(summed(cell, [host_pass(i, us) for i, us in enumerate(means)]) if means else cell)
    return Hostpath(
        spec=HostpathSpec(codecs=tuple(host_us), shapes=(Shape(100, 512),)),
        environment=environment,
        dropped_steps=4,
        cells=cells,
        growth_per_request=[],
        growth_with_context=[],
    )


def test_a_step_is_the_host_s_time_then_the_model_s() -> None:
    prediction = predict_steady([(ModelTime(500.0, 2.5), hostpath(pickle=[1000.0] * 4, columnar=[250.0] * 4))])
    pickle, columnar = prediction.rows
    assert pickle.output_tokens_per_s == [pytest.approx(100 / 1750e-6)] * 4
    assert columnar.output_tokens_per_s == [pytest.approx(100 / 1000e-6)] * 4
    assert [pickle.host_share, columnar.host_share] == pytest.approx([1000 / 1750, 0.25])
    assert pickle.against_first is None
    assert columnar.against_first is not None
    assert columnar.against_first.ratio == pytest.approx(1.75)
    assert columnar.against_first.verdict == "faster"


def test_the_slower_the_model_the_less_a_codec_matters() -> None:
    models = [ModelTime(us) for us in (0.0, 1e3, 1e4, 1e5)]
    measured = hostpath(pickle=[1000.0] * 4, columnar=[100.0] * 4)
    prediction = predict_steady([(model, measured) for model in models])
    ratios = [row.against_first.ratio for row in prediction.rows if row.against_first is not None]
    assert ratios[0] == pytest.approx(10.0)
    assert ratios == sorted(ratios, reverse=True)
    assert ratios[-1] < 1.01


def test_an_engine_of_another_kind_is_another_function() -> None:
    prediction = predict_steady([(ModelTime(1000.0), hostpath(columnar=[400.0] * 4))], step_time=max)
    assert prediction.rows[0].output_tokens_per_s == [pytest.approx(100 / 1000e-6)] * 4


def test_what_was_skipped_is_said() -> None:
    prediction = predict_steady([(ModelTime(1000.0), hostpath(pickle=[], columnar=[400.0] * 4))])
    assert [row.label for row in prediction.rows] == ["columnar"]
    assert "pickle is left out: full state of 9.0 M ids" in prediction.assumptions
    with pytest.raises(ResultsError, match="no host times to predict from: pickle is left out"):
        predict_steady([(ModelTime(1000.0), hostpath(pickle=[]))])


def test_assumptions_are_told() -> None:
    assumptions = " ".join(predict_steady([(ModelTime(1000.0), hostpath(columnar=[400.0] * 4))]).assumptions)
    for words in (
        "synchronous",
        "one worker",
        "steady decode of 100 requests: each",
        "beside a simulated model of the same time;",
        "prefill is not counted",
    ):
        assert words in assumptions


def test_host_times_are_those_beside_a_model_of_the_same_time() -> None:
    short, long = hostpath(columnar=[100.0] * 4), hostpath(columnar=[700.0] * 4)
    prediction = predict_steady([(ModelTime(1e3), short), (ModelTime(90e3, 1.0), long)])
    assert [row.host_us for row in prediction.rows] == [100.0, 700.0]
    assert [row.output_tokens_per_s[0] for row in prediction.rows] == pytest.approx([100 / 1.1e-3, 100 / 90.8e-3])
    assert "of the same time (50 ms where it is longer);" in " ".join(prediction.assumptions)
    assert [host_model(us) for us in (0.0, 800.0, 1e3, 90e3)] == [
        "sim:step=0us",
        "sim:step=800us",
        "sim:step=1000us",
        "sim:step=50000us",
    ]
    assert [host_steps(us) for us in (0.0, 1e3, 10e3, 1e6)] == [128, 128, 50, 16]


# --- from stored runs -----------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> list[Run]:
    """Mock runs: each step takes 1 ms (pickle) or 0.6 ms (delta), half of which is the model's."""
    things = prepared(["pickle", "delta"])
    folder = tmp_path_factory.mktemp("runs")
    return Bench(things, folder, lambda one: 600.0 if one.codec == "delta" else 1000.0).run()


def test_with_the_model_s_own_time_a_run_is_predicted_as_it_was(runs: list[Run]) -> None:
    prediction = predict_runs(runs[:1], [ModelTime(500.0)])
    measured = [repeat.output_tokens_per_s for repeat in runs[0].repeats]
    assert prediction.rows[0].output_tokens_per_s == pytest.approx(measured)


def test_runs_with_another_model(runs: list[Run]) -> None:
    pickle, delta = predict_runs(runs, [ModelTime(100.0)]).rows
    assert [pickle.host_us, delta.host_us] == pytest.approx([500.0, 300.0])
    assert delta.against_first is not None
    assert delta.against_first.ratio == pytest.approx(600 / 400)
    assert delta.against_first.pairs == 5


def test_a_token_s_time_counts_for_every_token_computed(runs: list[Run]) -> None:
    [row] = predict_runs(runs[:1], [ModelTime(0.0, 10.0)]).rows
    repeat = runs[0].repeats[0]
    tokens = repeat.input_tokens + repeat.output_tokens - 3  # of three requests
    wall_us = 500.0 * repeat.steps + 10.0 * tokens
    assert row.output_tokens_per_s[0] == pytest.approx(repeat.output_tokens / wall_us * 1e6)


def test_runs_that_came_in_their_own_time_are_refused(runs: list[Run]) -> None:
    paced = msgspec.structs.replace(runs[0].spec, arrivals=Arrivals(kind="poisson", request_rate=2.0))
    with pytest.raises(ResultsError, match="came in their own time"):
        predict_runs([msgspec.structs.replace(runs[0], spec=paced)], [ModelTime(500.0)])


def test_runs_that_produced_nothing_are_refused(runs: list[Run]) -> None:
    repeats = [msgspec.structs.replace(one, output_tokens=0) for one in runs[0].repeats]
    with pytest.raises(ResultsError, match="produced no tokens"):
        predict_runs([msgspec.structs.replace(runs[0], repeats=repeats)], [ModelTime(500.0)])


def test_runs_that_can_t_be_compared_are_refused(runs: list[Run]) -> None:
    other = msgspec.structs.replace(runs[1], spec=msgspec.structs.replace(runs[1].spec, seed=7))
    with pytest.raises(ResultsError, match="seeds"):
        predict_runs([runs[0], other], [ModelTime(500.0)])


def changed(run: Run, **repeat: Any) -> Run:
    """``run`` with every repeat so."""
    return msgspec.structs.replace(run, repeats=[msgspec.structs.replace(one, **repeat) for one in run.repeats])


def test_tokens_found_in_the_prefix_cache_are_not_computed(runs: list[Run]) -> None:
    repeat = runs[0].repeats[0]
    [all_computed] = predict_runs(runs[:1], [ModelTime(0.0, 10.0)]).rows
    [some_found] = predict_runs([changed(runs[0], cached_tokens=4)], [ModelTime(0.0, 10.0)]).rows
    walls_us = [repeat.output_tokens / row.output_tokens_per_s[0] * 1e6 for row in (all_computed, some_found)]
    assert walls_us[0] - walls_us[1] == pytest.approx(40.0)


def test_the_tokens_of_a_real_run_are_those_that_its_steps_computed() -> None:
    prompts = tuple("the same beginning of forty-eight letters or so, " + "x" * i for i in range(1, 9))
    spec = Experiment(
        model="sim",
        executor="inproc",
        workload=Prompts(texts=prompts, output_len=5),
        max_num_seqs=4,
        enable_prefix_caching=True,
        repeats=1,
        warmup=0,
    )
    computed: list[int] = []
    harness = Harness(
        prepare([spec]),
        open_engine=LiveEngine,
        store=lambda run: Path(run.id),
        watcher=Silent(),
        keep_spans=lambda _, __, report: computed.append(int(report.num_tokens.sum())),
    )
    harness.run()
    run = harness.recorders[0].run()
    assert run.repeats[0].cached_tokens
    with_token, without = (predict_runs([run], [ModelTime(0.0, us)]).rows[0] for us in (1e3, 0.0))
    walls_us = [run.repeats[0].output_tokens / row.output_tokens_per_s[0] * 1e6 for row in (with_token, without)]
    assert (walls_us[0] - walls_us[1]) / 1e3 == pytest.approx(computed[0])


def test_where_nobody_knows_the_tokens_a_time_for_each_is_refused(runs: list[Run]) -> None:
    caching = msgspec.structs.replace(runs[0].spec, enable_prefix_caching=True)
    early = changed(msgspec.structs.replace(runs[0], spec=caching), cached_tokens=None)
    preempted = changed(runs[0], preemptions=1)
    for run, words in ((early, "its prefix cache saved is not stored"), (preempted, "requests were preempted")):
        with pytest.raises(ResultsError, match=f"{run.id}: .*{words}"):
            predict_runs([run], [ModelTime(500.0), ModelTime(500.0, 1.0)])
        assert predict_runs([run], [ModelTime(500.0)]).rows, "no time a token: it does not matter"
    assert predict_runs([changed(runs[0], cached_tokens=None)], [ModelTime(0.0, 1.0)]).rows, "without a cache none is"


def test_what_a_comparison_refuses_is_not_predicted(runs: list[Run]) -> None:
    with pytest.raises(OutputsDifferError, match="outputs of pickle and delta differ in group 0, 1, 2, 3, 4"):
        predict_runs([runs[0], changed(runs[1], outputs_digest="other")], [ModelTime(500.0)])
    with pytest.raises(FaultError, match="codec delta by shm: 5 payloads refused, first: tired"):
        predict_runs([runs[0], changed(runs[1], recoveries=1, first_refusal="tired")], [ModelTime(500.0)])
    with pytest.raises(ResultsError, match="can't be compared with itself"):
        predict_runs([runs[0], runs[0]], [ModelTime(500.0)])
    with pytest.raises(ResultsError, match="has no repeats"):
        predict_runs([msgspec.structs.replace(runs[0], repeats=[])], [ModelTime(500.0)])


def test_runs_that_only_share_repeats_two_by_two_are_refused(runs: list[Run]) -> None:
    def some(run: Run, identity: str, groups: slice) -> Run:
        return msgspec.structs.replace(run, id=identity, repeats=run.repeats[groups])

    with pytest.raises(ResultsError, match="a, b, c have no group of repeats in common"):
        predict_runs(
            [some(runs[0], "a", slice(4)), some(runs[1], "b", slice(2)), some(runs[1], "c", slice(2, 4))],
            [ModelTime(500.0)],
        )


def test_warnings_of_a_comparison_and_of_the_runs_are_told(runs: list[Run]) -> None:
    quiet, other = (msgspec.structs.replace(run, warnings=[]) for run in runs)
    assert predict_runs([quiet, other], [ModelTime(500.0)]).warnings == []
    other = msgspec.structs.replace(other, session="another", warnings=["it was noisy"])
    assert predict_runs([quiet, other], [ModelTime(500.0)]).warnings == [
        "the runs were not measured interleaved: a drift of the machine counts as a difference",
        "delta: it was noisy",
    ]


def test_rows_are_named_by_what_tells_the_runs_apart(runs: list[Run]) -> None:
    by_pipe = msgspec.structs.replace(runs[0].spec, transport="pipe")
    other = msgspec.structs.replace(runs[0], id="other", spec=by_pipe)
    rows = predict_runs([runs[0], other], [ModelTime(500.0)]).rows
    assert [row.label for row in rows] == ["pickle shm", "pickle pipe"]


def test_workers_that_take_turns_in_one_process_are_refused(runs: list[Run]) -> None:
    here = msgspec.structs.replace(runs[0].spec, workers=2, executor="inproc", transport="inproc")
    with pytest.raises(ResultsError, match=r"executor inproc with several workers has them take turns"):
        predict_runs([msgspec.structs.replace(runs[0], spec=here)], [ModelTime(500.0)])
    base = Experiment(model="sim", executor="inproc", workers=2)
    with pytest.raises(ExperimentError, match=r"--executor inproc with several workers"):
        host_spec(ModelTime(500.0), ("none",), Shape(4, 20), base)


def test_the_number_of_workers_is_told(runs: list[Run]) -> None:
    two = [msgspec.structs.replace(run, spec=msgspec.structs.replace(run.spec, workers=2)) for run in runs]
    assert predict_runs(two, [ModelTime(500.0)]).assumptions[0].startswith("synchronous engine, 2 workers that")
    assert predict_runs(runs, [ModelTime(500.0)]).assumptions[0].startswith("synchronous engine, one worker:")
    measured = hostpath(columnar=[400.0] * 4)
    base = Experiment(model="sim", workers=3)
    three = msgspec.structs.replace(measured, spec=msgspec.structs.replace(measured.spec, base=base))
    assert "3 workers that" in predict_steady([(ModelTime(1000.0), three)]).assumptions[0]


# --- against the engine ---------------------------------------------------------------------------------------------


@pytest.fixture
def opened(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The models of the engines that the check measures itself."""
    models: list[str] = []

    def open_engine(thing: Prepared) -> LiveEngine:
        models.append(thing.experiment.model)
        return LiveEngine(thing)

    monkeypatch.setattr(predict_check, "LiveEngine", open_engine)
    return models


def test_the_check_holds_what_is_predicted_to_an_engine_with_the_model_asked_for(
    opened: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    beside_which: list[str] = []

    def measuring(spec: HostpathSpec, watcher: Watcher) -> Hostpath:
        beside_which.append(spec.base.model)
        return measure_hostpath(spec, watcher)

    monkeypatch.setattr(predict_check, "measure_hostpath", measuring)
    base = Experiment(model="sim", executor="inproc", repeats=2)
    model = ModelTime(300.0, 100.0)
    rows = predict_check.beside(base, ("delta", "columnar"), Shape(4, 20), model)
    assert [(row.said.label, row.said.model, len(row.errors)) for row in rows] == [
        ("delta", model, 2),
        ("columnar", model, 2),
    ]
    assert beside_which == ["sim:step=700us"] * 2
    assert opened == ["sim:step=300.000000us:token=100.000000us"] * 4


def test_the_check_predicts_from_runs_with_another_model(opened: list[str]) -> None:
    base = Experiment(model="sim", executor="inproc", repeats=1, warmup=0)
    models = [ModelTime(0.0), ModelTime(300.0, 10.0)]
    rows = predict_check.from_runs(base, ("delta", "columnar"), Shape(2, 20), models)
    assert [(row.source, row.said.label, row.said.model, len(row.errors)) for row in rows] == [
        ("run at 0ms", "delta", models[1], 1),
        ("run at 0ms", "columnar", models[1], 1),
    ]
    assert set(opened) == {predict_check.name_of(model) for model in models}


def test_the_check_tells_errors_of_what_is_shown() -> None:
    model, shape = ModelTime(1000.0), Shape(100, 512)
    prediction = predict_steady([(model, hostpath(pickle=[1000.0] * 4, columnar=[250.0] * 4))])
    done = [predict_check.Done(rate, 30.0) for rate in (40e3, 50e3, 50e3, 100e3)]
    rows = [predict_check.Held(shape=shape, source="beside", said=row, done=done) for row in prediction.rows]
    assert rows[0].error == pytest.approx(0.0)
    assert rows[0].errors == pytest.approx([0.25, 0.0, 0.0, -0.5])
    first, other = (predict_check.line(row, rows).split() for row in rows)
    assert first[-6:] == ["+0.0%", "-50.0%", "+25.0%", "30", "–", "–"]
    assert other[-6:] == ["+60.0%", "-20.0%", "+100.0%", "30", "1.600", "1.000"]


def test_a_run_file_can_be_predicted_from(runs: list[Run], tmp_path: Path) -> None:
    from serbench.results import read_run, store_run

    stored = [read_run(store_run(run, tmp_path)) for run in runs]
    assert predict_runs(stored, [ModelTime(100.0)]) == predict_runs(runs, [ModelTime(100.0)])
