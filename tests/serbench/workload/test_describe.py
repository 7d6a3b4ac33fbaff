"""Tests what is said of a file of requests, and that shared prefixes are those that the engine's cache really finds."""

import json
from pathlib import Path

import pytest

from serbench.errors import DatasetError, ExperimentError
from serbench.experiment import Experiment
from serbench.live import LiveEngine
from serbench.passes import Pace, drive
from serbench.prepare import prepare
from serbench.workload.describe import Bin, LeftOutRows, describe
from serbench.workload.spec import Dataset
from tests.serbench.mocks import Bytes


def lines(path: Path, *items: object) -> Path:
    path.write_text("\n".join(json.dumps(item) for item in items))
    return path


def request(stamp: int, taken: int, given: int, blocks: list[int]) -> dict[str, object]:
    return {"timestamp": stamp, "input_length": taken, "output_length": given, "hash_ids": blocks}


def test_lengths_of_texts_are_in_the_tokens_of_the_model(tmp_path: Path) -> None:
    turns = [{"role": "user", "content": "x" * 20}, {"role": "assistant", "content": "y" * 5}]
    path = lines(tmp_path / "chats", {"messages": turns}, {"prompt": "z"}, {"prompt": ""}, {"text": 5})
    found = describe(path, Bytes(), "bytes")
    assert (found.format, found.usable, found.tokens, found.rate) == ("jsonl", 2, "bytes", None)
    assert found.input is not None
    assert (found.input.min, found.input.p50, found.input.max, found.input.total) == (1, 10.5, 20, 21)
    assert found.input.histogram == [Bin(1, 1, 1), Bin(2, 3, 0), Bin(4, 7, 0), Bin(8, 15, 0), Bin(16, 31, 1)]
    assert found.output is not None
    assert (found.output.rows, found.output.max) == (1, 5)
    assert found.left_out == [LeftOutRows("prompt is empty", 1, [3]), LeftOutRows("text is no text", 1, [4])]


def test_a_trace_s_rate_over_its_time(tmp_path: Path) -> None:
    path = lines(tmp_path / "trace", *(request(i * 100, 5, 1, []) for i in range(10)), request(10_000, 5, 1, []))
    rate = describe(path, Bytes(), "").rate
    assert rate is not None
    assert (rate.span_s, rate.mean_per_s, rate.peak_per_s) == (10.0, 1.0, 10.0)
    assert [one.rows for one in rate.slices] == [10, 0, 0, 0, 0, 0, 0, 0, 0, 1]


def test_times_further_apart_than_int64_has_ns(tmp_path: Path) -> None:
    (tmp_path / "far").write_text(
        "TIMESTAMP,ContextTokens,GeneratedTokens\n0001-01-01 00:00:00,8,1\n9999-12-31 23:59:59,8,1\n"
    )
    rate = describe(tmp_path / "far", Bytes(), "bytes").rate
    assert rate is not None
    assert rate.span_s == 315_537_897_599.0


def test_rows_over_a_limit_are_left_out_and_strict_refuses_them(tmp_path: Path) -> None:
    path = lines(tmp_path / "trace", request(0, 5, 1, []), request(0, 50, 1, []), request(0, 0, 1, []))
    found = describe(path, Bytes(), "", max_model_len=50)
    assert found.usable == 1
    assert [(one.rows, one.lines) for one in found.left_out] == [(1, [3]), (1, [2])]
    with pytest.raises(DatasetError, match=r"\(line 3\); 1 longer than the limit of 50 tokens \(line 2\)"):
        describe(path, Bytes(), "", max_model_len=50, strict=True)
    with pytest.raises(ExperimentError, match="none of its rows can be used"):
        describe(path, Bytes(), "", max_model_len=5)


def test_texts_share_beginnings_in_whole_blocks(tmp_path: Path) -> None:
    path = tmp_path / "prompts.txt"
    path.write_text("\n".join(["a" * 40, "a" * 40, "a" * 16 + "b" * 24, "c" + "a" * 39]))
    shared = describe(path, Bytes(), "").shared_prefix
    assert shared is not None
    assert (shared.block_tokens, shared.share) == (16, 3 * 16 / 160)


def test_shared_blocks_of_a_trace_are_found_by_the_engine_s_prefix_cache(tmp_path: Path) -> None:
    rows = [(600, [0, 1]), (1030, [0, 2, 3]), (1100, [0, 2, 4]), (700, [5, 2]), (1100, [0, 2, 4])]
    path = lines(tmp_path / "trace", *(request(i, taken, 2, blocks) for i, (taken, blocks) in enumerate(rows)))
    shared = describe(path, Bytes(), "").shared_prefix
    assert shared is not None
    assert shared.share == 5 * 512 / 4530
    spec = Dataset(path=str(path), num_prompts=len(rows))
    [thing] = prepare([Experiment(model="sim", executor="inproc", workload=spec, enable_prefix_caching=True)])
    host = LiveEngine(thing)
    try:
        session = host.session(thing.experiment)
        done = drive(session, thing.workload.requests(0), Pace(max_concurrency=1))
        session.close()
    finally:
        host.close()
    # blocks of 16: the last prompt's partial block 4, 76 tokens, is known too, but for what fills no block of 16
    assert [one.num_cached_tokens for one in done.finished] == [0, 512, 1024, 0, 1088]
