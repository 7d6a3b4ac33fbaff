"""Reading weights: every format gives the same tensors under the same names, and broken files one clear line."""

import pickle
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

from serbench_engine.errors import ModelError
from serbench_engine.models.config import WeightsSource
from serbench_engine.models.hf_config import config_from_hf
from serbench_engine.weights.folder import find_weights
from serbench_engine.weights.reader import iterate_weights
from tests.engine.weights.folders import LLAMA, OPT, Tensors, random_tensors, write_bin, write_safetensors

Write = Callable[..., None]


def read(folder: Path, raw: dict[str, Any]) -> Tensors:
    source = find_weights(folder)
    assert source is not None
    return {name: tensor.clone() for name, tensor in iterate_weights(source, config_from_hf(raw))}


def assert_same(found: Tensors, expected: Tensors) -> None:
    assert found.keys() == expected.keys()
    assert all(torch.equal(found[name], expected[name]) for name in expected)


@pytest.mark.parametrize("raw", [LLAMA, OPT], ids=["llama", "opt"])
@pytest.mark.parametrize("write", [write_safetensors, write_bin])
@pytest.mark.parametrize("shards", [1, 3])
def test_every_format_and_every_number_of_shards_reads_alike(
    tmp_path: Path, raw: dict[str, Any], write: Write, shards: int
) -> None:
    tensors = random_tensors(raw)
    write(tmp_path, tensors, shards)
    assert_same(read(tmp_path, raw), tensors)


@pytest.mark.parametrize("raw", [LLAMA, OPT], ids=["llama", "opt"])
def test_names_without_the_leading_model_are_completed(tmp_path: Path, raw: dict[str, Any]) -> None:
    tensors = random_tensors(raw)
    write_safetensors(tmp_path, {name.removeprefix("model."): tensor for name, tensor in tensors.items()})
    assert_same(read(tmp_path, raw), tensors)


def test_the_dtype_stays_as_it_is(tmp_path: Path) -> None:
    tensors = {name: tensor.to(torch.bfloat16) for name, tensor in random_tensors(LLAMA).items()}
    write_bin(tmp_path, tensors)
    assert_same(read(tmp_path, LLAMA), tensors)


def test_files_from_before_torch_1_6_are_read(tmp_path: Path) -> None:
    tensors = random_tensors(OPT)
    torch.save(tensors, tmp_path / "pytorch_model.bin", _use_new_zipfile_serialization=False)
    assert_same(read(tmp_path, OPT), tensors)


def test_safetensors_are_taken_before_bin_before_gguf(tmp_path: Path) -> None:
    (tmp_path / "model.gguf").write_bytes(b"GGUF")
    first = find_weights(tmp_path)
    write_bin(tmp_path, random_tensors(OPT))
    second = find_weights(tmp_path)
    write_safetensors(tmp_path, random_tensors(OPT))
    third = find_weights(tmp_path)
    assert [source.kind for source in (first, second, third) if source] == ["gguf", "bin", "safetensors"]


def test_a_folder_without_weights_and_kinds_without_files() -> None:
    config = config_from_hf(LLAMA)
    assert list(iterate_weights(WeightsSource("dummy"), config)) == []


def test_an_empty_folder_holds_none(tmp_path: Path) -> None:
    assert find_weights(tmp_path) is None


def test_a_missing_shard_is_named(tmp_path: Path) -> None:
    write_safetensors(tmp_path, random_tensors(LLAMA), shards=3)
    (tmp_path / "model-00002-of-00003.safetensors").unlink()
    with pytest.raises(ModelError, match="lacks 1 of 3 shards of its weights, the first is model-00002-of-00003"):
        find_weights(tmp_path)


def test_an_index_that_names_no_files_is_refused(tmp_path: Path) -> None:
    (tmp_path / "model.safetensors.index.json").write_text('{"weight_map": {"a": 5}}')
    with pytest.raises(ModelError, match=r"index\.json: the file of 'a' is 5; it must be a file's name"):
        find_weights(tmp_path)


def test_shards_without_their_index_are_refused(tmp_path: Path) -> None:
    write_safetensors(tmp_path, random_tensors(LLAMA), shards=2)
    (tmp_path / "model.safetensors.index.json").unlink()
    with pytest.raises(ModelError, match=r"holds 2 weights files .* an index, model.safetensors.index.json, must list"):
        find_weights(tmp_path)


@pytest.mark.parametrize("file", ["model.safetensors", "pytorch_model.bin", "small.gguf"])
@pytest.mark.parametrize(
    ("content", "said"),
    [(b"version https://git-lfs.github.com/spec/v1\noid sha256:0\n", "is a Git LFS pointer"), (b"", "is empty")],
)
def test_pointers_and_empty_files_are_told(tmp_path: Path, file: str, content: bytes, said: str) -> None:
    (tmp_path / file).write_bytes(content)
    with pytest.raises(ModelError, match=said):
        find_weights(tmp_path)


def test_an_index_that_is_none_is_told(tmp_path: Path) -> None:
    (tmp_path / "model.safetensors.index.json").write_text("{}")
    with pytest.raises(ModelError, match="has no weight_map"):
        find_weights(tmp_path)


@pytest.mark.parametrize(
    ("file", "content", "said"),
    [
        ("model.safetensors", b"\x00" * 100, "is no safetensors file"),
        ("pytorch_model.bin", b"hello, I am no pickle", "can't be read as PyTorch weights"),
        ("pytorch_model.bin", b"PK\x03\x04broken", "can't be read as PyTorch weights"),
        ("pytorch_model.bin", b"\x00" * 600, "can't be read as PyTorch weights"),
        ("pytorch_model.bin", b"\x80\x02\x85.", "can't be read as PyTorch weights"),
        ("pytorch_model.bin", b"\x80\x07}.", "can't be read as PyTorch weights"),
        ("small.gguf", b"GGUF" + b"\xff" * 60, "is no GGUF file"),
    ],
)
def test_garbage_is_one_clear_line(tmp_path: Path, file: str, content: bytes, said: str) -> None:
    (tmp_path / file).write_bytes(content)
    with pytest.raises(ModelError, match=said) as caught:
        read(tmp_path, LLAMA)
    assert str(caught.value).isprintable()
    assert len(str(caught.value)) < 200 + len(str(tmp_path / file))
    assert str(tmp_path / file) in str(caught.value)


@pytest.mark.parametrize("write", [write_safetensors, write_bin])
def test_a_truncated_file_is_one_clear_line(tmp_path: Path, write: Write) -> None:
    write(tmp_path, random_tensors(LLAMA))
    [path] = [one for one in tmp_path.iterdir() if one.suffix in (".safetensors", ".bin")]
    path.write_bytes(path.read_bytes()[: path.stat().st_size // 2])
    with pytest.raises(ModelError, match=r"truncated|can't be read"):
        read(tmp_path, LLAMA)


class Malicious:
    def __init__(self, path: Path) -> None:
        self.path = path

    def __reduce__(self) -> tuple[Any, ...]:
        return (Path.touch, (self.path,))


@pytest.mark.parametrize("archive", [True, False])
def test_a_bin_file_can_not_run_code(tmp_path: Path, archive: bool) -> None:
    trace = tmp_path / "was-here"
    path = tmp_path / "pytorch_model.bin"
    if archive:
        torch.save({"weight": Malicious(trace)}, path)
    else:
        path.write_bytes(pickle.dumps({"weight": Malicious(trace)}, protocol=2))
    with pytest.raises(ModelError, match="can't be read as PyTorch weights") as caught:
        read(tmp_path, LLAMA)
    assert not trace.exists()
    assert "weights_only" not in str(caught.value)  # torch advises to run it all the same
    assert str(caught.value).isprintable()


def test_a_bin_file_that_holds_something_else_is_told(tmp_path: Path) -> None:
    torch.save([1, 2], tmp_path / "pytorch_model.bin")
    with pytest.raises(ModelError, match="holds a list; it must be a dictionary of tensors"):
        read(tmp_path, LLAMA)
    torch.save({"model.norm.weight": 3}, tmp_path / "pytorch_model.bin")
    with pytest.raises(ModelError, match=r"model\.norm\.weight is a int; it must be a tensor"):
        read(tmp_path, LLAMA)
