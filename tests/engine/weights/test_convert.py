"""Folders made once: whole or not there, whoever else makes them at the same time and however that ends."""

import subprocess
import sys
from pathlib import Path

import pytest

from serbench_engine.errors import ModelError
from serbench_engine.models.config import ModelConfig
from serbench_engine.models.hf_config import config_from_hf
from serbench_engine.models.json_file import read_json
from serbench_engine.weights.cache import cache_root, made_once
from serbench_engine.weights.convert import converted_folder
from serbench_engine.weights.files import content_fingerprint
from serbench_engine.weights.fit import check_fit
from serbench_engine.weights.folder import find_weights
from serbench_engine.weights.reader import iterate_weights
from tests.engine.weights.folders import random_tensors
from tests.engine.weights.test_gguf import RAW, write_gguf

ROOT = Path(__file__).resolve().parents[3]

CONVERTER = """
import sys, time
from pathlib import Path
sys.path[:0] = ["engine", "codecs"]
from serbench_engine.weights.cache import made_once

def fill(folder):
    with open(sys.argv[1], "a") as log:
        log.write("filled\\n")
    for i in range(20):
        (folder / str(i)).write_text("x")
        time.sleep(0.005)  # so that the others arrive meanwhile

print(len(list(made_once("thing", fill).iterdir())))
"""


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    return tmp_path / "cache" / "serbench"


def test_processes_that_want_the_same_folder_make_it_once_and_all_see_it_whole(tmp_path: Path, cache: Path) -> None:
    log = tmp_path / "log"
    command = [sys.executable, "-c", CONVERTER, str(log)]
    processes = [subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, text=True) for _ in range(4)]
    assert [process.communicate(timeout=60)[0].strip() for process in processes] == ["20"] * 4
    assert log.read_text() == "filled\n"
    assert sorted(path.name for path in cache.iterdir()) == ["thing", "thing.lock"]


def test_a_folder_that_could_not_be_filled_is_not_there(cache: Path) -> None:
    def fails(folder: Path) -> None:
        (folder / "half").write_text("")
        raise ModelError("no")

    with pytest.raises(ModelError, match="no"):
        made_once("thing", fails)
    assert [path.name for path in cache.iterdir()] == ["thing.lock"]


def test_what_a_killed_process_left_is_removed(cache: Path) -> None:
    left = cache / "thing.part-abc"
    left.mkdir(parents=True)
    (left / "half").write_text("")
    assert made_once("thing", lambda folder: None).is_dir()
    assert not left.exists()


def test_a_cache_that_can_not_be_written_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "file"))
    with pytest.raises(ModelError, match=r"can't be written \(Not a directory\); XDG_CACHE_HOME names another place"):
        made_once("thing", lambda folder: None)


def test_the_cache_is_where_xdg_says_if_that_is_absolute(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    assert cache_root() == tmp_path / "cache" / "serbench"
    for useless in ("", "relative/path"):
        monkeypatch.setenv("XDG_CACHE_HOME", useless)
        assert cache_root() == Path.home() / ".cache" / "serbench"


def test_a_converted_folder_holds_what_the_gguf_file_holds(tmp_path: Path) -> None:
    source = tmp_path / "tiny.gguf"
    config = config_from_hf(RAW)
    write_gguf(source, random_tensors(RAW), config)
    told: list[str] = []
    folder = converted_folder(source, told.append)
    weights, gguf_weights = find_weights(folder), find_weights(tmp_path)
    assert weights is not None
    assert gguf_weights is not None
    converted, original = (dict(iterate_weights(one, config)) for one in (weights, gguf_weights))
    assert converted.keys() == original.keys()
    assert all((converted[name] == original[name]).all() for name in original)
    assert config_from_hf(read_json(folder / "config.json")).num_layers == config.num_layers
    assert len(told) == 1
    assert converted_folder(source, told.append) == folder
    assert len(told) == 1  # the second time nothing is done


def test_another_file_of_the_same_name_is_converted_anew(tmp_path: Path) -> None:
    source = tmp_path / "tiny.gguf"
    tensors = random_tensors(RAW)
    write_gguf(source, tensors, config_from_hf(RAW))
    first = converted_folder(source, lambda line: None)
    tensors["model.norm.weight"] += 1
    write_gguf(source, tensors, config_from_hf(RAW))
    assert converted_folder(source, lambda line: None) != first


def test_a_broken_gguf_file_leaves_nothing(tmp_path: Path, cache: Path) -> None:
    (tmp_path / "tiny.gguf").write_bytes(b"GGUF but no more")
    with pytest.raises(ModelError, match="is no GGUF file"):
        converted_folder(tmp_path / "tiny.gguf", lambda line: None)
    assert all(path.suffix == ".lock" for path in cache.iterdir())


def test_smollm2_converted_is_whole(smollm2_folder: Path) -> None:
    config = config_from_hf(read_json(smollm2_folder / "config.json"))
    source = find_weights(smollm2_folder)
    assert source is not None
    check_fit(source, config, "the cache")
    assert isinstance(config, ModelConfig)
    names = {path.name for path in smollm2_folder.iterdir()}
    assert names == {"config.json", "model.safetensors", "tokenizer.json", "tokenizer_config.json"}


def test_a_fingerprint_is_of_content_not_of_place_or_time(tmp_path: Path) -> None:
    one, other = tmp_path / "a" / "weights", tmp_path / "b" / "weights"
    for path in (one, other):
        path.parent.mkdir()
        path.write_bytes(bytes(range(256)) * 4000)
    assert content_fingerprint([one]) == content_fingerprint([other])
    data = bytearray(other.read_bytes())
    data[-1] ^= 1
    other.write_bytes(data)
    assert content_fingerprint([one]) != content_fingerprint([other])
    other.write_bytes(bytes(data)[:100])
    assert content_fingerprint([other]) != content_fingerprint([one])
