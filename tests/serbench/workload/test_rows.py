"""Tests reading files of prompts: formats by content, lines in errors, reasons of what is left out."""

import json
from pathlib import Path

import pytest

from serbench.errors import DatasetError
from serbench.workload.rows import Row, read_rows


def rows_of(path: Path, content: str | bytes) -> list[Row]:
    path.write_bytes(content.encode() if isinstance(content, str) else content)
    return read_rows(path).rows


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
    assert rows_of(file, f"{line}\n\n{line}") == [Row(1, prompt, answer), Row(3, prompt, answer)]


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
    ]
    file.write_text("\n".join(json.dumps(item) for item in items))
    found = read_rows(file)
    assert [row.prompt for row in found.rows] == ["good"]
    assert found.left_out == {
        "prompt is empty": 2,
        "prompt is no text": 1,
        "turns is no list of texts": 1,
        "nobody asks in the conversation": 2,
        "the conversation is no list of turns": 1,
        "of another format": 2,
    }
    assert len(found.rows) + sum(found.left_out.values()) == len(items)


@pytest.mark.parametrize(
    ("content", "complaint"),
    [
        (b"", "the file is empty"),
        (b" \n\n", "the file is empty"),
        (b"[]", "the list is empty"),
        (b"\n\nhello world", ":3: not JSON: neither a list nor an object"),
        (b'{"prompt": "a"}\n{"prompt": "b"\n{"prompt": "c"}', ":2: not JSON: expecting ',' delimiter"),
        (b'{"prompt" "a"}\n{"prompt": "b"}', ":1: not JSON: expecting ':' delimiter"),
        (b'[{"prompt": "a"},\n {"prompt": b}]', ":2: not JSON: expecting value"),
        (b'[{"prompt": "a"}\n {"prompt": "b"}]', ":2: not JSON: expecting ',' or ']'"),
        (b'[{"prompt": "a"}', ":1: not JSON"),
        (b'[{"prompt": "a"}]\nmore', ":2: not JSON: extra data"),
        (b'{"timestamp": 0, "hash_ids": [1]}\n', ":1: an object with the keys timestamp, hash_ids; wanted"),
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


@pytest.mark.parametrize(
    ("name", "count", "first", "left_out"),
    [
        ("sharegpt/fastchat_dummy_conversation.json", 500, "Who are you?", {}),
        ("sharegpt/axolotl_conversation.missingturns.json", 1, "how could i implement a minesweeper", {}),
        ("sharegpt/llamafactory_glaive_toolcall_zh_demo.head60.json", 60, "我需要为John Doe生成一张发票。", {}),
        ("prompts/mt-bench/question.jsonl", 80, "Compose an engaging travel blog post", {}),
    ],
)
def test_public_files(shared_data: Path, name: str, count: int, first: str, left_out: dict[str, int]) -> None:
    found = read_rows(shared_data / name)
    assert (len(found.rows), found.left_out) == (count, left_out)
    assert found.rows[0].prompt.startswith(first)


@pytest.mark.parametrize(
    "name", ["azure-2023/AzureLLMInferenceTrace_code.head2000.csv", "mooncake/conversation_trace.head2000.jsonl"]
)
def test_traces_are_refused_for_now(shared_data: Path, name: str) -> None:
    with pytest.raises(DatasetError, match=":1: "):
        read_rows(shared_data / name)
