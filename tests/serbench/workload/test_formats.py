"""Tests reading files of prompts: formats by content, lines in errors, reasons of what is left out."""

import gzip
import json
import os
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from serbench.cli.workload_options import DATASET_FORMATS
from serbench.errors import DatasetError
from serbench.workload.formats import FORMATS, read_rows
from serbench.workload.rows import TextRow


def rows_of(path: Path, content: str | bytes, form: str | None = None) -> list[TextRow]:
    path.write_bytes(content.encode() if isinstance(content, str) else content)
    rows = read_rows(path, form).rows
    assert all(isinstance(row, TextRow) for row in rows)
    return [row for row in rows if isinstance(row, TextRow)]


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return tmp_path / "prompts"


CONVERSATION = {
    "id": "x",
    "conversations": [
        {"from": "system", "value": "Be kind."},
        {"from": "human", "value": "Who are you?"},
        {"from": "gpt", "value": "A model."},
        {"from": "human", "value": "Bye."},
    ],
}


@pytest.mark.parametrize(
    "content",
    [
        json.dumps([CONVERSATION]),
        json.dumps([CONVERSATION], indent=2),
        json.dumps(CONVERSATION, indent=2),
        json.dumps(CONVERSATION),
        json.dumps(CONVERSATION) + "\r\n",
        b"\xef\xbb\xbf" + json.dumps([CONVERSATION]).encode(),
    ],
)
def test_sharegpt_gives_the_first_exchange(file: Path, content: str | bytes) -> None:
    [row] = rows_of(file, content)
    assert (row.prompt, row.answer) == ("Who are you?", "A model.")


@pytest.mark.parametrize(
    ("item", "prompt", "answer"),
    [
        ({"prompt": "Sum: 1+1"}, "Sum: 1+1", ""),
        ({"text": "Once upon a time"}, "Once upon a time", ""),
        ({"turns": ["First", "Second"]}, "First", ""),
        (
            {"messages": [{"role": "user", "content": "Hi"}, {"role": "assistant", "content": "Hello"}]},
            "Hi",
            "Hello",
        ),
        (
            {"messages": [{"role": "user", "content": [{"type": "text", "text": "Look"}, {"type": "image"}]}]},
            "Look",
            "",
        ),
        ({"text": "你好，世界"}, "你好，世界", ""),
    ],
)
def test_json_lines(file: Path, item: object, prompt: str, answer: str) -> None:
    line = json.dumps(item, ensure_ascii=False)
    assert rows_of(file, f"{line}\n\n{line}") == [TextRow(1, prompt, answer), TextRow(3, prompt, answer)]


def test_rows_without_a_prompt_are_counted_by_reason(file: Path) -> None:
    items = [
        {"prompt": "good"},
        {"prompt": "  "},
        {"prompt": 5},
        {"turns": []},
        {"messages": []},
        {"messages": "text"},
        {"conversations": [{"from": "gpt", "value": "Nobody asked"}]},
        {"conversations": [{"from": "human", "value": ""}]},
        {"other": 1},
        [1],
        {"prompt": "\ud800"},
    ]
    file.write_text("\n".join(json.dumps(item) for item in items))
    found = read_rows(file)
    assert [row.line for row in found.rows] == [1]
    assert found.left_out == {
        "prompt is empty": [2, 8],
        "prompt is no text": [3],
        "turns is no list of texts": [4],
        "nobody asks in the conversation": [5, 7],
        "the conversation is no list of turns": [6],
        "of another format": [9, 10],
        "prompt is no UTF-8 text": [11],
    }
    assert len(found.rows) + sum(map(len, found.left_out.values())) == len(items)


def test_roles_may_be_odd(file: Path) -> None:
    turns = [("tool", "x"), ("GPT", "Welcome."), (" Human ", "Hi"), ("function_call", "f()"), ("gpt", "Hello")]
    item = {"conversations": [{"from": role, "value": text} for role, text in turns] + [{"value": "nobody"}]}
    assert rows_of(file, json.dumps([item, item])) == [TextRow(1, "Hi", "")] * 2


@pytest.mark.parametrize("end", ["", "\n", "\r\n", "\n\n"])
@pytest.mark.parametrize("mark", [b"", b"\xef\xbb\xbf"])
@pytest.mark.parametrize("pack", [bytes, gzip.compress])
@pytest.mark.parametrize(("form", "line"), [("text", "Grüße, 世界 🌍"), ("jsonl", '{"text": "Grüße, 世界 🌍"}')])
def test_line_ends_marks_and_gzip_make_no_difference(
    file: Path, form: str, line: str, pack: type[bytes], mark: bytes, end: str
) -> None:
    newline = end.strip("\n") + "\n"
    file.write_bytes(pack(mark + f"{line}{newline}{line}{end}".encode()))
    found = read_rows(file)
    assert (found.format, found.left_out) == (form, {})
    assert found.rows == [TextRow(1, "Grüße, 世界 🌍"), TextRow(2, "Grüße, 世界 🌍")]


@pytest.mark.parametrize(
    ("body", "found"),
    [
        (
            {"messages": [{"role": "system", "content": "Be kind."}, {"role": "user", "content": "Hi"}]},
            ("Be kind.\nHi", None),
        ),
        ({"messages": [{"role": "user", "content": "Hi"}], "max_tokens": 9}, ("Hi", 9)),
        ({"prompt": "Once", "max_completion_tokens": 7, "max_tokens": None}, ("Once", 7)),
        ({"input": "embed me"}, "asks for no completion of a text"),
        ({"prompt": "Once", "max_tokens": 0}, "asks for no whole number of tokens above 0"),
        ({"messages": []}, "prompt is empty"),
        ("no object", "of another format"),
    ],
)
def test_requests_of_a_batch(file: Path, body: object, found: object) -> None:
    first = {"custom_id": "a", "body": {"prompt": "x"}}
    file.write_text(f"{json.dumps(first)}\n{json.dumps({'custom_id': 'b', 'body': body})}")
    read = read_rows(file)
    assert read.format == "openai-batch"
    if isinstance(found, str):
        assert read.left_out == {found: [2]}
    else:
        assert read.rows[1:] == [TextRow(2, found[0], "", found[1])]  # type: ignore[index]


def test_broken_lines_are_left_out_and_the_others_read(file: Path) -> None:
    file.write_bytes(b'{"prompt" "a"}\n{"prompt": "b"}\n{"prompt": "c"\n' + b'{"n": ' + b"9" * 5000 + b'}\n{"prompt": ')
    found = read_rows(file)
    assert [row.line for row in found.rows] == [2]
    assert found.left_out == {"not JSON": [1, 3, 4, 5]}


def test_a_format_may_be_named(file: Path) -> None:
    assert [row.prompt for row in rows_of(file, '{"prompt": "a"}\nmore', "text")] == ['{"prompt": "a"}', "more"]
    assert [row.prompt for row in rows_of(file, "#version: 0.2\na b", "text")] == ["#version: 0.2", "a b"]
    for form in FORMATS.keys() - {"text", "jsonl", "sharegpt"}:
        with pytest.raises(DatasetError, match=r"which|no row of"):
            rows_of(file, '{"prompt": "a"}', form)


def test_what_can_be_read_once_only_is_refused_at_once(file: Path) -> None:
    os.mkfifo(file)
    for path in (file, Path("/dev/zero")):
        with pytest.raises(DatasetError, match=r"a pipe or device, .* write it to a file first"):
            read_rows(path)


@pytest.mark.parametrize(
    ("content", "complaint"),
    [
        (b"", "the file is empty"),
        (b" \n\n", "the file is empty"),
        (b"[]", "the list is empty"),
        (b'{"prompt" "a"}\n{"prompt"', ":1: not JSON: expecting ':' delimiter"),
        (b'[{"prompt": "a"},\n {"prompt": b}]', ":2: not JSON: expecting value"),
        (b'[{"prompt": "a"}\n {"prompt": "b"}]', ":2: not JSON: expecting ',' or ']'"),
        (b'[{"prompt": "a"}', ":1: not JSON"),
        (b'[{"prompt": "a"}]\nmore', ":2: not JSON: extra data"),
        (b'{"timestamp": 0, "hash_ids": [1]}\n', ":1: an object with the keys timestamp, hash_ids; wanted"),
        (b'{"text": 5}', ":1: an object with the keys text; wanted"),
        (b'{"schema": "serbench/run/1", "repeats": []}', ":1: a run stored by serbench; wanted"),
        (b"\x1f\x8bgarbage", "can't be unzipped"),
        (gzip.compress(b"prompt one\n" * 1000, mtime=0)[:40], "can't be unzipped"),
        (b"version https://git-lfs.github.com/spec/v1\noid sha256:4d7a", ":1: a Git LFS pointer"),
        (b"one\ntwo\n\x00\x01", ":3: not text but binary data"),
        (b"\n[1, 2]", ":2: a row that is no object but 1; wanted"),
        (b'{"prompt": "a"}\n{"prompt": "\xff"}', ":2: not UTF-8 text (byte 0xff)"),
        (b"[" * 100_000, "nested too deeply"),
    ],
)
def test_a_file_that_can_t_be_read_is_one_line_with_its_line(file: Path, content: bytes, complaint: str) -> None:
    file.write_bytes(content)
    with pytest.raises(DatasetError) as refused:
        read_rows(file)
    assert complaint in str(refused.value)
    assert str(refused.value).startswith(str(file))
    assert "\n" not in str(refused.value)


def test_a_missing_file_and_a_folder(tmp_path: Path) -> None:
    with pytest.raises(DatasetError, match="no such file"):
        read_rows(tmp_path / "none")
    with pytest.raises(DatasetError, match="can't be read: Is a directory"):
        read_rows(tmp_path)


def test_a_name_that_promises_another_format_is_not_taken_for_text(tmp_path: Path) -> None:
    for name in ("requests.csv", "requests.jsonl", "requests.json.gz"):
        (tmp_path / name).write_text("when,what\n1,2\n")
        with pytest.raises(DatasetError, match=f"as its name {name} says.*--dataset-format text"):
            read_rows(tmp_path / name)


def test_a_prompt_may_be_long(file: Path) -> None:
    text = "word, " * 50_000
    assert [row.prompt for row in rows_of(file, text)] == [text]


def test_the_command_line_and_the_page_know_the_same_formats() -> None:
    assert sorted(DATASET_FORMATS) == sorted(FORMATS)
    page = (Path(__file__).parents[3] / "docs" / "workloads.md").read_text()
    assert all(f"| `{name}` |" in page for name in FORMATS)


SAMPLES = (
    json.dumps([CONVERSATION], indent=1),
    '{"prompt": "a"}\n{"messages": [{"role": "user", "content": "b"}]}\n',
    '{"custom_id": "a", "body": {"messages": [{"role": "user", "content": "b"}], "max_tokens": 5}}\n',
    '{"timestamp": 27, "input_length": 600, "output_length": 5, "hash_ids": [46, 47]}\n',
    "TIMESTAMP,ContextTokens,GeneratedTokens\r\n2023-11-16 18:17:03.9799600,4808,10\r\n",
    "Timestamp,Model,Request tokens,Response tokens,Total tokens,Log Type\n5,ChatGPT,472,18,490,Conversation log\n",
)


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=300)
@given(
    sample=st.sampled_from(SAMPLES),
    cut=st.integers(0, 200),
    length=st.integers(0, 20),
    noise=st.one_of(
        st.binary(max_size=20), st.sampled_from([b"\xff", b"\r", b'"', b"[", b"1e999999999", b"NaN", b"-0", b"\\ud800"])
    ),
)
def test_garbled_files_are_read_row_by_row_or_refused(
    file: Path, sample: str, cut: int, length: int, noise: bytes
) -> None:
    data = sample.encode()
    file.write_bytes(data[:cut] + noise + data[cut + length :])
    for form in (None, *FORMATS):
        try:
            found = read_rows(file, form)
        except DatasetError as error:
            assert "\n" not in str(error)  # noqa: PT017
        else:
            assert form in (None, found.format)
