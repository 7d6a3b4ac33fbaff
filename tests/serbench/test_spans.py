"""Tests how stamps are stored beside a run and read back, and what is refused. They do not know what stamps mean."""

import io
from pathlib import Path

import numpy as np
import pytest

from serbench.errors import ResultsError
from serbench.spans import SpanStore, read_spans, spans_path
from serbench_engine.phases import SessionReport
from tests.engine.serving import random_workload, serve_sim


@pytest.fixture(scope="module")
def report() -> SessionReport:
    return serve_sim(random_workload(1, 4, (10, 40), (3, 8)), codec="delta").report


def test_every_repeat_s_stamps_read_back(report: SessionReport, tmp_path: Path) -> None:
    store, path = SpanStore(), tmp_path / "20260101-sim-1.5-delta.json"
    for group in (1, 0, 10):
        assert store.keep(path, group, report) == tmp_path / "20260101-sim-1.5-delta.spans.npz"
    spans = read_spans(path)
    assert list(spans) == [0, 1, 10]
    for one in spans.values():
        assert (one.scheduler == report.scheduler_spans).all()
        assert len(one.workers) == 1
        assert (one.workers[0] == report.worker_spans[0]).all()


def test_each_state_of_the_file_is_whole_and_alone(report: SessionReport, tmp_path: Path) -> None:
    store, path = SpanStore(), tmp_path / "run.json"
    for group in range(3):
        store.keep(path, group, report)
        assert len(read_spans(path)) == group + 1
    assert list(tmp_path.iterdir()) == [spans_path(path)]


def test_two_runs_do_not_mix(report: SessionReport, tmp_path: Path) -> None:
    store = SpanStore()
    store.keep(tmp_path / "a.json", 0, report)
    store.keep(tmp_path / "b.json", 5, report)
    assert list(read_spans(tmp_path / "a.json")) == [0]
    assert list(read_spans(tmp_path / "b.json")) == [5]


def test_a_run_without_stamps_says_how_to_keep_them(tmp_path: Path) -> None:
    with pytest.raises(ResultsError, match=r"no time stamps of run .*serbench run --trace"):
        read_spans(tmp_path / "run.json")


def archive(**arrays: np.ndarray) -> bytes:
    data = io.BytesIO()
    np.savez(data, allow_pickle=True, **arrays)
    return data.getvalue()


HEADER = np.frombuffer(b'{"schema":"serbench/spans/2","run":"run"}', dtype=np.uint8)


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (b"", "no archive"),
        (b"no zip at all", "no archive"),
        (archive(header=HEADER)[:60], "no archive"),
        (archive(header=np.array([{}], dtype=object)), "no archive"),
        (archive(other=HEADER), "no header"),
        (archive(header=HEADER[:5]), "no archive"),
        (archive(header=np.frombuffer(b'{"schema":"serbench/spans/9","run":"a"}', np.uint8)), "serbench/spans/9"),
        (archive(header=np.frombuffer(b'{"run":"a","scheduler_fields":["x"]}', np.uint8)), "other fields"),
        (archive(header=HEADER, **{"scheduler.0": np.zeros((2, 3), np.int64)}), r"must be int64\[steps, 17\]"),
        (archive(header=HEADER, **{"scheduler.0": np.zeros((2, 16))}), "float64"),
    ],
)
def test_what_is_no_archive_of_stamps_is_refused(data: bytes, message: str, tmp_path: Path) -> None:
    path = tmp_path / "run.json"
    spans_path(path).write_bytes(data)
    with pytest.raises(ResultsError, match=message):
        read_spans(path)


def test_a_file_with_a_bit_flipped_is_refused_or_read(report: SessionReport, tmp_path: Path) -> None:
    run_path = tmp_path / "run.json"
    path = SpanStore().keep(run_path, 0, report)
    whole, refused = path.read_bytes(), 0
    for place in range(0, len(whole), max(1, len(whole) // 150)):
        path.write_bytes(whole[:place] + bytes([whole[place] ^ 16]) + whole[place + 1 :])
        try:
            read_spans(run_path)
        except ResultsError:
            refused += 1
    assert refused > 50


def test_a_place_that_can_t_be_written_is_told(report: SessionReport, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(ResultsError, match="can't be written"):
        SpanStore().keep(tmp_path / "file" / "run.json", 0, report)
