"""Tests which requests the workloads make: lengths, seeds, what is the same and what isn't, what doesn't fit."""

import json
from pathlib import Path

import numpy as np
import pytest

from serbench.errors import DatasetError, ExperimentError
from serbench.workload.base import Workload
from serbench.workload.build import make_workload
from serbench.workload.dataset import file_digest, looked_at
from serbench.workload.spec import Dataset, LengthRange, Prompts, Synthetic, WorkloadSpec
from serbench_engine.models.config import ResolvedModel, SimConfig, WeightsSource
from tests.serbench.mocks import Bytes

MODEL = ResolvedModel("sim", SimConfig(vocab_size=300, eos_token_ids=(7,)), WeightsSource("sim"), "sim")
LIMIT = 100


def make(spec: WorkloadSpec, seed: int = 0) -> Workload:
    return make_workload(spec, seed=seed, model=MODEL, text=Bytes(), max_model_len=LIMIT)


def ids(workload: Workload, group: int) -> list[list[int]]:
    return [request.prompt_token_ids.tolist() for request in workload.requests(group)]


@pytest.fixture
def dataset(tmp_path: Path) -> Path:
    path = tmp_path / "prompts.jsonl"
    path.write_text("".join(json.dumps({"prompt": f"prompt {i:02}"}) + "\n" for i in range(20)))
    return path


# --- lengths -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("text", "low", "high"), [("128", 128, 128), ("64:256", 64, 256), (" 1:1 ", 1, 1)])
def test_lengths_are_read(text: str, low: int, high: int) -> None:
    assert LengthRange.parse(text) == LengthRange(low, high)


@pytest.mark.parametrize("text", ["0", "-5", "", "a", "4:0", "1:", "1:2:3", "1.5", "99999999999"])
def test_lengths_that_are_none_are_refused(text: str) -> None:
    with pytest.raises(ExperimentError, match=r"write a number (of at least 1|from 1 to 16777216), or a range such as"):
        LengthRange.parse(text)


def test_a_range_that_ends_below_its_beginning_is_shown_the_right_way_round() -> None:
    with pytest.raises(ExperimentError, match=r"length 64:8 ends below its beginning; .* 8:64"):
        LengthRange.parse("64:8")


# --- synthetic -----------------------------------------------------------------------------------------------------


def test_synthetic_lengths_cover_their_range() -> None:
    requests = make(Synthetic(num_prompts=500, input_len=LengthRange(3, 6), output_len=LengthRange(1, 2))).requests(0)
    assert {len(request.prompt_token_ids) for request in requests} == {3, 4, 5, 6}
    assert {request.due_tokens for request in requests} == {1, 2}
    assert all(request.params.max_tokens == request.due_tokens for request in requests)
    assert all(request.params.ignore_eos and request.params.temperature == 0 for request in requests)


def test_synthetic_ids_are_of_the_vocabulary_and_end_nothing() -> None:
    every = np.array(ids(make(Synthetic(num_prompts=500, input_len=LengthRange(50, 50))), 0))
    assert (every.min(), every.max()) == (0, 299)
    assert 7 not in every


def test_synthetic_groups_differ_and_repeat_by_seed() -> None:
    spec = Synthetic(num_prompts=2, input_len=LengthRange(8, 8))
    assert ids(make(spec), 0) == ids(make(spec), 0)
    groups = [ids(make(spec), group) for group in (-2, -1, 0, 1, 2)] + [ids(make(spec, seed=1), 0)]
    assert len({str(group) for group in groups}) == len(groups)


@pytest.mark.parametrize(
    ("input_len", "output_len", "complaint"),
    [
        (LengthRange(100, 100), LengthRange(1, 1), "--input-len 100 leaves no room for output .* limit of 100"),
        (LengthRange(5, 5000), LengthRange(1, 1), "--input-len 5:5000 leaves no room"),
        (LengthRange(60, 60), LengthRange(41, 41), "make 101 tokens, over the limit of 100"),
    ],
)
def test_synthetic_lengths_over_the_limit_are_refused(
    input_len: LengthRange, output_len: LengthRange, complaint: str
) -> None:
    with pytest.raises(ExperimentError, match=complaint):
        make(Synthetic(input_len=input_len, output_len=output_len))


def test_lengths_up_to_the_limit_fit() -> None:
    assert make(Synthetic(num_prompts=1, input_len=LengthRange(60, 60), output_len=LengthRange(40, 40))).requests(0)


# --- datasets ------------------------------------------------------------------------------------------------------


def test_a_dataset_gives_other_rows_to_other_groups(dataset: Path) -> None:
    workload = make(Dataset(path=str(dataset), num_prompts=5))
    assert len(workload.requests(0)) == 5
    assert ids(workload, 0) == ids(make(Dataset(path=str(dataset), num_prompts=5)), 0)
    assert ids(workload, 0) != ids(workload, 1)
    assert len({request.prompt for request in workload.requests(0)}) == 5
    assert workload.notes() == []


def test_a_dataset_with_fewer_rows_says_so(dataset: Path) -> None:
    workload = make(Dataset(path=str(dataset), num_prompts=50))
    assert len(workload.requests(0)) == 20
    assert workload.notes() == [f"{dataset} gave 20 prompts, not the 50 asked for"]


def test_rows_over_the_limit_are_counted_and_replaced(tmp_path: Path) -> None:
    path = tmp_path / "prompts.jsonl"
    texts = ["short"] * 3 + ["long " * 40] * 2 + [""]
    path.write_text("".join(json.dumps({"text": text}) + "\n" for text in texts))
    workload = make(Dataset(path=str(path), num_prompts=3))
    for group in range(6):
        assert [request.prompt for request in workload.requests(group)] == ["short"] * 3
    left_out = f"2 longer than the limit of {LIMIT} tokens (lines 4, 5); 1 prompt is empty (line 6)"
    assert workload.notes() == [f"{path}: rows left out: {left_out}"]


def test_output_lengths_come_from_the_answer_or_from_the_user(tmp_path: Path) -> None:
    path = tmp_path / "sharegpt.json"
    turns = [{"from": "human", "value": "Hi"}, {"from": "gpt", "value": "Hello!"}]
    path.write_text(json.dumps([{"conversations": turns}, {"conversations": turns[:1]}]))
    assert sorted(request.due_tokens or 0 for request in make(Dataset(path=str(path))).requests(0)) == [6, 32]
    spec = Dataset(path=str(path), output_len=LengthRange(9, 9))
    assert [request.due_tokens for request in make(spec).requests(0)] == [9, 9]


def test_a_dataset_without_a_usable_row_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "prompts.jsonl"
    path.write_text(json.dumps({"text": "x" * 200}) + "\n" + json.dumps({"text": ""}))
    with pytest.raises(ExperimentError, match=r"none of its rows can be used: 1 longer than .* 1 prompt is empty"):
        make(Dataset(path=str(path)))


def test_a_missing_dataset_is_refused(tmp_path: Path) -> None:
    with pytest.raises(DatasetError, match="no such file"):
        make(Dataset(path=str(tmp_path / "x")))


def test_the_digest_is_of_the_content(tmp_path: Path) -> None:
    for name, content in (("a", "1"), ("b", "1"), ("c", "2")):
        (tmp_path / name).write_text(content)
    a, b, c = (file_digest(str(tmp_path / name)) for name in "abc")
    assert a == b != c
    found = looked_at(Dataset(path=str(tmp_path / "a"), num_prompts=3))
    assert found == Dataset(path=str(tmp_path / "a"), num_prompts=3, format="text", digest=a)


def test_many_rows_on_one_line_are_counted_one_by_one(tmp_path: Path) -> None:
    path = tmp_path / "list.json"
    path.write_text(json.dumps([{"prompt": text} for text in ("", "", "x" * 200, "y" * 200, "good", "fine")]))
    workload = make(Dataset(path=str(path)))
    workload.requests(1)
    left_out = f"2 longer than the limit of {LIMIT} tokens (line 1); 2 prompt is empty (line 1)"
    assert workload.notes()[1] == f"{path}: rows left out: {left_out}"


def test_of_many_rows_left_out_the_first_lines_are_shown(tmp_path: Path) -> None:
    path = tmp_path / "prompts.jsonl"
    path.write_text('{"text": ""}\n' * 9 + '{"text": "good"}\n')
    [_, note] = make(Dataset(path=str(path))).notes()
    assert note == f"{path}: rows left out: 9 prompt is empty (lines 1, 2, 3, 4, 5 and 4 more)"


def test_strict_looks_at_all_rows(tmp_path: Path) -> None:
    path = tmp_path / "prompts.txt"
    path.write_text("good\n" * 50 + "x" * 200)
    assert len(make(Dataset(path=str(path), num_prompts=1)).requests(0)) == 1
    with pytest.raises(DatasetError, match=r"longer than the limit of 100 tokens \(line 51\)"):
        make(Dataset(path=str(path), num_prompts=1, strict=True))


def test_a_batch_says_how_many_tokens_it_asks_for(tmp_path: Path) -> None:
    path = tmp_path / "batch.jsonl"
    path.write_text(json.dumps({"custom_id": "a", "body": {"prompt": "Once", "max_tokens": 9}}))
    assert [request.due_tokens for request in make(Dataset(path=str(path))).requests(0)] == [9]


# --- prompts -------------------------------------------------------------------------------------------------------


def test_prompts_are_the_same_in_every_group_and_may_end_by_themselves() -> None:
    workload = make(Prompts(texts=("Hello", "Bye"), output_len=5))
    assert ids(workload, 0) == ids(workload, 3) == [list(b"Hello"), list(b"Bye")]
    for request in workload.requests(0):
        assert (request.params.max_tokens, request.params.ignore_eos, request.due_tokens) == (5, False, None)


def test_prompts_in_the_chat_template() -> None:
    assert ids(make(Prompts(texts=("Hi",), chat=True)), 0) == [list(b"<user>Hi<assistant>")]


def test_prompts_that_do_not_fit_are_refused() -> None:
    with pytest.raises(ExperimentError, match="has 100 tokens; it may have 1 to 99"):
        make(Prompts(texts=("x" * 100,)))
    with pytest.raises(ExperimentError, match="not empty"):
        Prompts(texts=("",))
