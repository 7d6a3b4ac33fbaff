"""Tests that every public file is read, or refused in one line, as docs/workloads.md says."""

from pathlib import Path

import pytest

from serbench.errors import DatasetError
from serbench.workload.formats import read_rows
from serbench.workload.rows import TextRow, TraceRow

READ = {
    "azure-2023/AzureLLMInferenceTrace_code.head2000.csv": ("azure", 2000),
    "azure-2023/AzureLLMInferenceTrace_conv.head2000.csv": ("azure", 2000),
    "burstgpt/burstgpt_slice.csv": ("burstgpt", 383),
    "mooncake/conversation_trace.head2000.jsonl": ("mooncake", 2000),
    "mooncake/synthetic_trace.head2000.jsonl": ("mooncake", 2000),
    "openai-batch/aibrix_sample_job_input.jsonl": ("openai-batch", 10),
    "openai-batch/glake_openi_example_batch.jsonl": ("openai-batch", 2),
    "openai-batch/production-stack_batch.jsonl": ("openai-batch", 2),
    "openai-batch/vllm_openai_example_batch.jsonl": ("openai-batch", 2),
    "prompts/mt-bench/question.jsonl": ("jsonl", 80),
    "prompts/vllm-sonnet/sonnet.txt": ("text", 518),
    "prompts/vllm-tests/example.txt": ("text", 8),
    "prompts/vllm-tests/summary.txt": ("text", 1),
    "sharegpt/axolotl_conversation.missingturns.json": ("sharegpt", 1),
    "sharegpt/fastchat_dummy_conversation.json": ("sharegpt", 500),
    "sharegpt/llamafactory_glaive_toolcall_zh_demo.head60.json": ("sharegpt", 60),
}
LEFT_OUT = {"burstgpt/burstgpt_slice.csv": {"a length below 1 token": 17}}
REFUSED = {
    "models/": "configuration|merges|vocabulary|binary data",
    "results/": "results of|results for github-action-benchmark",
}


def test_every_file_is_read_or_refused(shared_data: Path) -> None:
    files = {str(path.relative_to(shared_data)): path for path in sorted(shared_data.rglob("*")) if path.is_file()}
    files.pop("README.md", None)  # the list of them
    assert set(READ) <= set(files)
    for name, path in files.items():
        if name in READ:
            found = read_rows(path)
            assert (found.format, len(found.rows)) == READ[name], name
            left_out = {reason: len(lines) for reason, lines in found.left_out.items()}
            assert left_out == LEFT_OUT.get(name, {}), name
            continue
        [words] = [words for folder, words in REFUSED.items() if name.startswith(folder)]
        with pytest.raises(DatasetError, match=words) as refused:
            read_rows(path)
        assert "\n" not in str(refused.value)
        assert str(refused.value).startswith(str(path))


def test_azure_is_read_exactly(shared_data: Path) -> None:
    for name, span_ns in (("code", 853_079_347_000), ("conv", 424_259_457_000)):
        path = shared_data / f"azure-2023/AzureLLMInferenceTrace_{name}.head2000.csv"
        rows = [row for row in read_rows(path).rows if isinstance(row, TraceRow)]
        lines = path.read_bytes().split(b"\r\n")[1:]
        assert rows[-1].arrival_ns - rows[0].arrival_ns == span_ns
        for row in rows:
            stamp, taken, given = lines[row.line - 2].decode().split(",")
            assert (row.input_tokens, row.output_tokens) == (int(taken), int(given))
            assert row.arrival_ns % 10**9 == int(stamp.partition(".")[2]) * 100


def test_a_last_row_without_a_newline_is_read(shared_data: Path, tmp_path: Path) -> None:
    for name in READ:
        data = (shared_data / name).read_bytes()
        (tmp_path / "cut").write_bytes(data.rstrip(b"\r\n"))
        (tmp_path / "whole").write_bytes(data.rstrip(b"\r\n") + b"\n")
        assert read_rows(tmp_path / "cut") == read_rows(tmp_path / "whole"), name


def test_texts_that_are_not_ascii(shared_data: Path) -> None:
    [first, *_] = read_rows(shared_data / "sharegpt/llamafactory_glaive_toolcall_zh_demo.head60.json").rows
    assert isinstance(first, TextRow)
    assert first.prompt.startswith("我需要为John Doe生成一张发票。")
