"""Tests that bad input is one clear line and exit 2, before anything is started. They do not know how it is found."""

import json
import re
import time
from pathlib import Path
from typing import Final

import click
import pytest

from serbench.cli.comma_separated import Numbers
from serbench.cli.commands import COMMANDS, cli
from serbench.cli.ranges import Real, Whole
from tests.serbench.cli.calling import HERE, refused

OPT: Final = ("run", "--model", "facebook/opt-125m", "--weights", "dummy")


@pytest.fixture(autouse=True)
def _no_network(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")


@pytest.mark.parametrize(
    ("args", "words"),
    [
        (["--codec", "detla"], ["no codec 'detla'", "Did you mean delta", "There are: none, pickle"]),
        (["--codec", "pickle,delta"], ["run measures one codec", "`serbench compare --codec pickle,delta`"]),
        (["--codec", "delta:format=json"], ["format='json'", "delta:format=msgspec|pickle"]),
        (["--codec", "no.such.module:NAME"], ["no codec 'no.such.module:NAME'"]),
        (["--result-format", "pakced"], ["no result format 'pakced'", "packed"]),
        (["--transport", "shn"], ["--transport", "'shn' is not one of", "'shm'"]),
        (["--executor", "mpi"], ["--executor", "'mpi' is not one of"]),
        (["--device", "cuda"], ["--device cuda isn't there yet", "--device cpu"]),
        (["--codec", "none"], ["codec none hands things over by reference", "use --executor inproc"]),
        (["--codec", "none", "--executor", "inproc", "--transport", "shm"], ["use inproc"]),
        (["--model", "opt-125mm"], ["opt-125mm", "facebook/opt-125m"]),
        (["--model", "sim:stepp=1ms"], ["no option 'stepp'", "sim:step=TIME"]),
        (["--model", "sim:step=fast"], ["'fast', which is no time"]),
        (["--input-len", "40000"], ["--input-len 40000", "limit of 32768"]),
        (["--input-len", "32760", "--output-len", "20"], ["32780 tokens", "limit of 32768"]),
        (["--max-model-len", "100", "--input-len", "100"], ["--input-len 100", "limit of 100"]),
        (["--max-model-len", "99999"], ["99999", "32768"]),
        (["--input-len", "64:"], ["--input-len", "a range such as 64:256"]),
        (["--input-len", "64:8"], ["--input-len", "64:8 ends below its beginning", "smaller number first: 8:64"]),
        (["--input-len", "0:8"], ["--input-len", "0:8 is out of range", "from 1 to 16777216"]),
        (["--output-len", "9" * 30], ["--output-len", "is out of range", "from 1 to 16777216"]),
        (["--dataset", "missing.json"], ["missing.json: there is no such file"]),
        (["--dataset", "x", "--input-len", "5"], ["--input-len does not go with --dataset"]),
        (["--dataset", "x", "--dataset-format", "csv"], ["--dataset-format", "'csv' is not one of", "'burstgpt'"]),
        (["--dataset-format", "text"], ["--dataset-format goes with --dataset"]),
        (["--strict"], ["--strict goes with --dataset"]),
        (["--arrivals", "trace"], ["--arrivals trace goes by the clock of a file"]),
        (["--arrivals", "poisson"], ["--arrivals poisson needs a --request-rate"]),
        (["--arrivals", "trace", "--request-rate", "2"], ["--request-rate 2", "--arrivals trace", "give one"]),
        (["--request-rate", "0"], ["--request-rate", "0 is out of range", "from 0.001 to"]),
        (["--time-scale", "2"], ["--time-scale goes with --arrivals trace"]),
        (["--max-concurrency", "0"], ["--max-concurrency"]),
        (["--dataset", "x", "--prompt", "y"], ["--prompt and --dataset are two workloads"]),
        (["--prompt", "y", "--num-prompts", "5"], ["--num-prompts does not go with --prompt"]),
        (["--prompt", ""], ["not empty"]),
        (["--prompt", "y", "--output-len", "1:2"], ["must be one number"]),
        (["--chat"], ["--chat goes with --prompt"]),
        (["--prompt", "y", "--chat"], ["--chat needs a chat template", "sim has none"]),
        (["--prompt", "x" * 40000], ["40000 tokens", "1 to 32767"]),
        (["--tokenizer", "nowhere"], ["nowhere"]),
        (["--kv-memory", "1.5"], ["--kv-memory", "1.5"]),
        (["surplus"], ["surplus"]),
    ],
)
def test_run(args: list[str], words: list[str], tmp_path: Path) -> None:
    line = refused("run", "--model", "sim", *args, folder=tmp_path / "results")
    for word in words:
        assert word in line
    assert not (tmp_path / "results").exists()


@pytest.mark.parametrize("value", ["0", "-1", "x", ""])
@pytest.mark.parametrize(
    "option",
    [
        "--num-prompts",
        "--input-len",
        "--output-len",
        "--max-num-seqs",
        "--max-num-batched-tokens",
        "--max-model-len",
        "--block-size",
        "--num-blocks",
        "--kv-memory",
        "--repeats",
        "--workers",
        "--step-timeout",
    ],
)
def test_numbers_must_be_above_zero(option: str, value: str) -> None:
    line = refused("run", "--model", "sim", option, value)
    assert option in line


def numbers() -> list[tuple[str, str]]:
    """Every option of every command that takes numbers, Several of them perhaps."""
    commands = {name: cli.get_command(click.Context(cli), name) for name in COMMANDS}
    return [
        (name, param.opts[0])
        for name, command in commands.items()
        if command is not None
        for param in command.params
        if isinstance(getattr(param.type, "one", param.type), (Whole, Real, Numbers))
    ]


@pytest.mark.parametrize(("command", "option"), numbers())
def test_absurd_numbers_are_refused_with_what_would_be_right(command: str, option: str) -> None:
    for value in ("99999999999999999999", "1e300", "nan", "x"):
        line = refused(command, option, value)
        assert re.search(rf"'{option}'.*{value}.*; write (one|a whole number) (from|above)", line)


@pytest.mark.parametrize("option", ["--warmup", "--seed"])
def test_numbers_must_not_be_negative(option: str) -> None:
    assert option in refused("run", "--model", "sim", option, "-1")


@pytest.mark.parametrize(
    ("args", "words"),
    [
        (["--input-len", "2048"], ["--input-len 2048", "limit of 2048"]),
        (["--workers", "2"], ["--workers 2 is for the simulated model only"]),
        (["--num-blocks", "100000000"], ["100000000 blocks of KV cache need", "GiB"]),
        (["--num-blocks", "4", "--max-model-len", "2048"], ["max_model_len 2048 does not fit"]),
        (["--model", "facebook/opt-66b"], ["facebook/opt-66b in float32 needs", "GiB are free"]),
        (["--weights", "real"], ["facebook/opt-125m"]),
    ],
)
def test_real_models(args: list[str], words: list[str], tmp_path: Path) -> None:
    begun = time.monotonic()
    line = refused(*OPT, *args, folder=tmp_path / "results")
    for word in words:
        assert word in line
    assert time.monotonic() - begun < 60  # told before any model is made


@pytest.mark.parametrize(
    ("content", "words"),
    [
        ("", "the file is empty"),
        ("[no json", ":1: not JSON"),
        ('{"prompt" "a"}', ":1: not JSON"),
        ('{"timestamp": 1, "hash_ids": []}', ":1: an object with the keys timestamp, hash_ids"),
        ('{"prompt": ""}', "none of its rows can be used: 1 prompt is empty"),
    ],
)
def test_datasets(content: str, words: str, tmp_path: Path) -> None:
    file = tmp_path / "data"
    file.write_text(content)
    line = refused("run", "--model", "sim", "--dataset", str(file))
    assert f"{file}{words}" in line or f"{file}: {words}" in line


def model_folder(folder: Path, shared_data: Path) -> Path:
    folder.mkdir()
    config = json.loads((shared_data / "models" / "facebook-opt-125m" / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps(config))
    return folder


def test_a_git_lfs_pointer_in_place_of_weights(tmp_path: Path, shared_data: Path) -> None:
    folder = model_folder(tmp_path / "model", shared_data)
    pointer = "version https://git-lfs.github.com/spec/v1\noid sha256:4d7a\nsize 250540281\n"
    (folder / "model.safetensors").write_text(pointer)
    line = refused("run", "--model", str(folder))
    assert "Git LFS" in line
    assert "model.safetensors" in line


def test_weights_that_do_not_fit_the_configuration(tmp_path: Path, shared_data: Path) -> None:
    import torch
    from safetensors.torch import save_file

    folder = model_folder(tmp_path / "model", shared_data)
    save_file({"model.decoder.embed_tokens.weight": torch.zeros(8, 8)}, folder / "model.safetensors")
    line = refused("run", "--model", str(folder))
    assert str(folder) in line


@pytest.mark.parametrize(
    ("args", "words"),
    [
        (["--codec", "delta"], ["names 1", "two or more"]),
        (["--codec", ","], ["names 0"]),
        (["--codec", "pickle,msgspc"], ["no codec 'msgspc'", "msgspec"]),
        (["--codec", "none,delta"], ["use --executor inproc"]),
        (["one-run"], ["one run (one-run) can't be compared"]),
        (["a", "b", "--codec", "delta,pickle"], ["--codec means nothing here"]),
        (["a", "b", "--num-prompts", "3"], ["--num-prompts means nothing here"]),
        (["a", "b"], ["a is neither a file nor a run"]),
    ],
)
def test_compare(args: list[str], words: list[str], tmp_path: Path) -> None:
    line = refused("compare", *args, folder=tmp_path)
    for word in words:
        assert word in line


def test_a_folder_that_can_t_be_written_is_told_before_measuring(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    assert "--output chooses another" in refused("run", *HERE, folder=tmp_path / "file")
