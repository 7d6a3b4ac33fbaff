"""Span logs and what is made of them: phases add up to the step, whichever side was awake first."""

import numpy as np
import pytest

from serbench_engine.executor.base import WorkerReport
from serbench_engine.phases import PHASES, SCHEDULER_FIELDS, WORKER_FIELDS, SessionReport, SpanLog, as_spans, phases_of
from tests.engine.serving import random_workload, serve_sim


def _spans(
    sent: int = 40, received: int = 50, replied: int = 140, answered: int = 150
) -> tuple[np.ndarray, np.ndarray]:
    """Two steps of 200 ns each, in a scheduler's and a worker's log."""
    scheduler = SpanLog(len(SCHEDULER_FIELDS), capacity=1)
    worker = SpanLog(len(WORKER_FIELDS), capacity=1)
    for step, begun in enumerate((1000, 1200)):
        stamps = (0, 10, 20, 30, sent, answered, 160, 170, 190)
        scheduler.add(0, step, *(begun + at for at in stamps), 100, 50, 8, 8, step == 0, 20)
        stamps = (received, 60, 70, 80, 90, 110, 120, 130, replied)
        worker.add(0, step, *(begun + at for at in stamps), 7, 9)
    return scheduler.to_array().copy(), worker.to_array()


def test_a_span_log_grows_and_keeps_all_rows() -> None:
    log = SpanLog(3, capacity=2)
    rows = [(i, -i, i << 40) for i in range(100)]
    for row in rows:
        log.add(*row)
    assert as_spans(log.to_bytes(), 3).tolist() == [list(row) for row in rows]


@pytest.mark.parametrize(("sent", "received"), [(40, 50), (55, 45)])
@pytest.mark.parametrize(("replied", "answered"), [(140, 150), (155, 145)])
def test_phases_add_up_to_the_step_whoever_is_awake_first(
    sent: int, received: int, replied: int, answered: int
) -> None:
    phases, _, _ = phases_of(*_spans(sent, received, replied, answered))
    total = np.sum([phases[name] for name in PHASES], axis=0)
    assert total == pytest.approx([0.2, 0.19])
    assert all((phases[name] >= 0).all() for name in PHASES)
    assert phases["adapt"] == pytest.approx([0.04, 0.04])
    assert phases["other"] == pytest.approx([0.01, 0.0])


def test_a_step_that_only_one_side_finished_is_left_out() -> None:
    scheduler, worker = _spans()
    phases, kept, answered = phases_of(scheduler, worker[1:])
    assert len(phases["schedule"]) == len(kept) == len(answered) == 1
    assert kept[0, 1] == 1


def test_an_idle_gap_is_nobodys_time() -> None:
    scheduler, worker = _spans()
    scheduler[0, SCHEDULER_FIELDS.index("continues")] = 0
    phases, _, _ = phases_of(scheduler, worker)
    assert phases["other"].tolist() == [0.0, 0.0]


def test_a_sessions_report_counts_every_step_and_its_bytes() -> None:
    outcome = serve_sim(random_workload(1, 6, (10, 60), (5, 20)), codec="delta", num_blocks=24, max_model_len=100)
    report = outcome.report
    produced = sum(len(ids) for ids, _ in outcome.outputs.values())
    assert set(report.phases_us) == set(PHASES)
    assert len(report.step_us) == len(report.plan_bytes) == len(report.batch_sizes) > 20
    assert (report.plan_bytes > 24).all()
    assert (report.result_bytes > 0).all()
    assert report.host_us == pytest.approx(report.step_us - report.phases_us["forward"] - report.phases_us["sample"])
    assert int(report.num_tokens.sum()) >= produced
    assert serve_sim(random_workload(1, 6, (10, 60), (5, 20)), codec="none").report.plan_bytes.sum() == 0


def test_a_sessions_report_keeps_the_logs_of_both_sides() -> None:
    report = serve_sim(random_workload(1, 6, (10, 60), (5, 20)), codec="delta").report
    phases, _, _ = phases_of(report.scheduler_spans, report.worker_spans[0])
    assert report.scheduler_spans.shape == (len(report.step_us), len(SCHEDULER_FIELDS))
    assert [log.shape for log in report.worker_spans] == [(len(report.step_us), len(WORKER_FIELDS))]
    assert all((phases[name] == report.phases_us[name]).all() for name in PHASES)


def test_what_is_done_beside_a_step_is_told_of_both_sides_and_in_no_phase() -> None:
    """In one process nothing is beside anything."""
    report = serve_sim(random_workload(1, 6, (10, 60), (5, 20)), codec="cached").report
    assert not report.ahead_us.any()
    scheduler, worker = _spans()
    told = WorkerReport(rank=0, spans=worker.tobytes(), cpu_s=0.0, peak_rss_bytes=0)
    both = SessionReport.of(
        scheduler,
        [told],
        cpu_s=0.0,
        shares_process=False,
        batches_digest="",
        preemptions=0,
        recoveries=0,
        first_refusal="",
        cached_tokens=0,
    )
    assert both.ahead_us == pytest.approx([0.029, 0.029])
    assert both.step_us == pytest.approx([0.2, 0.19])


def test_the_same_work_has_the_same_batches_and_other_work_has_not() -> None:
    workload = random_workload(1, 6, (10, 60), (5, 20))
    digests = {codec: serve_sim(workload, codec=codec).report.batches_digest for codec in ("none", "pickle", "cached")}
    assert len(set(digests.values())) == 1
    assert serve_sim(workload, max_num_batched_tokens=32).report.batches_digest not in digests.values()
