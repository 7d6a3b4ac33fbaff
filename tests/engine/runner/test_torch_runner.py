"""The torch runner: what it refuses, what it keeps apart, and that it is light to import."""

import subprocess
import sys

import msgspec
import numpy as np
import pytest
import torch

from serbench_codecs.plan import FAILED_ROW
from serbench_codecs.table import TableLimits
from serbench_engine.errors import ConfigError
from serbench_engine.models.config import ModelConfig, ResolvedModel, SimConfig, WeightsSource
from serbench_engine.models.hf_config import config_from_hf
from serbench_engine.models.memory import kv_block_bytes
from serbench_engine.runner.torch_runner import TorchRunner
from tests.engine.driving import BLOCK_SIZE, NUM_BLOCKS, Driver, worker_spec

LLAMA = config_from_hf(
    {
        "architectures": ["LlamaForCausalLM"],
        "vocab_size": 97,
        "hidden_size": 32,
        "intermediate_size": 48,
        "num_hidden_layers": 2,
        "num_attention_heads": 4,
        "num_key_value_heads": 2,
        "max_position_embeddings": 96,
        "initializer_range": 0.25,
    }
)
OPT_125M = config_from_hf({"architectures": ["OPTForCausalLM"]})


def prompt(seed: int, length: int) -> list[int]:
    ids: list[int] = np.random.default_rng(seed).integers(3, 97, size=length).tolist()
    return ids


def logits_of(config: ModelConfig, token_ids: list[int], dtype: str = "float32", seed: int = 0) -> torch.Tensor:
    driver = Driver(TorchRunner(worker_spec(config, dtype, seed)), config)
    driver.add(0, token_ids)
    driver.step({0: len(token_ids)})
    return driver.logits[0][0].float()


def test_a_dummy_opt_125m_reacts_to_every_part_of_its_prompt() -> None:
    driver = Driver(TorchRunner(worker_spec(OPT_125M)), OPT_125M)
    ids = prompt(1, 20)
    driver.add(0, ids)
    driver.step({0: 20})
    for row, place in enumerate((0, 10, 19), start=1):
        driver.add(row, [*ids[:place], ids[place] + 100, *ids[place + 1 :]])
        driver.step({row: 20})
        assert float((driver.logits[row][0] - driver.logits[0][0]).abs().max()) > 1e-3


@pytest.mark.parametrize(("dtype", "tolerance"), [("bfloat16", 0.05), ("float16", 0.01)])
@pytest.mark.parametrize("config", [LLAMA, msgspec.structs.replace(LLAMA, qk_norm=True)])
def test_half_precision_is_close_on_the_same_dummy_weights(config: ModelConfig, dtype: str, tolerance: float) -> None:
    for length in (30, 80):  # fewer and more rows than a CPU multiplies in float16
        exact, half = logits_of(config, prompt(2, length)), logits_of(config, prompt(2, length), dtype)
        assert float((half - exact).norm() / exact.norm()) < tolerance


def test_the_seed_changes_dummy_weights() -> None:
    assert not torch.equal(logits_of(LLAMA, prompt(3, 9)), logits_of(LLAMA, prompt(3, 9), seed=1))


def test_the_same_batches_give_the_same_bits() -> None:
    runs = []
    for _ in range(2):
        driver = Driver(TorchRunner(worker_spec(LLAMA)), LLAMA, seed=4)
        for row in range(4):
            driver.add(row, prompt(row, 10 + row))
        driver.step({2: 12, 0: 10, 3: 5, 1: 11})
        driver.step({3: 8, 1: 1, 0: 1, 2: 1})
        driver.decode([0, 1, 2, 3], 5)
        runs.append(torch.cat([torch.stack(driver.logits[row]) for row in range(4)]))
    assert torch.equal(*runs)


def test_a_request_gone_wrong_harms_neither_its_mates_nor_the_next_owner_of_its_blocks() -> None:
    runner = TorchRunner(worker_spec(LLAMA))
    good = prompt(5, 21)
    alone = Driver(runner, LLAMA)
    alone.add(0, good)
    alone.step({0: 21})
    alone.decode([0], 8)
    poison = min(set(range(97)) - set(alone.ids(0)))
    runner.model.places()["model.embed_tokens.weight"][poison] = torch.nan
    bad = [poison] * 21

    driver = Driver(runner, LLAMA, num_blocks=8)
    driver.add(0, good)
    driver.add(1, bad)
    driver.step({1: 21, 0: 21})
    driver.decode([0], 8)
    assert driver.ids(0) == alone.ids(0)
    assert driver.ids(1)[-1] == FAILED_ROW
    driver.drop(1)
    driver.drop(0)
    driver.add(2, good)
    driver.step({2: 21})
    driver.decode([2], 8)
    assert driver.ids(2) == alone.ids(0)


def test_rows_that_do_not_sample_have_no_logits() -> None:
    driver = Driver(TorchRunner(worker_spec(LLAMA)), LLAMA)
    driver.add(0, prompt(7, 12))
    driver.step({0: 11})
    assert driver.logits[0] == []
    driver.step({0: 1})
    assert len(driver.logits[0]) == 1


def test_memory_is_checked_before_it_is_taken() -> None:
    blocks = 10**13 // kv_block_bytes(LLAMA, "float32", BLOCK_SIZE)
    with pytest.raises(ConfigError, match=r"10000\.00 GB for \d+ blocks of KV cache, .* GB are available"):
        TorchRunner(worker_spec(LLAMA, num_blocks=blocks))


def test_a_simulated_model_is_refused() -> None:
    model = ResolvedModel("sim", SimConfig(), WeightsSource("sim"), "sim")
    with pytest.raises(ConfigError, match="sim is simulated"):
        TorchRunner(msgspec.structs.replace(worker_spec(LLAMA), model=model))


def test_a_device_without_a_backend_is_refused() -> None:
    with pytest.raises(ConfigError, match="no attention backend for device 'abacus'"):
        TorchRunner(msgspec.structs.replace(worker_spec(LLAMA), device="abacus"))


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"num_blocks": NUM_BLOCKS + 1}, "asks for 65 blocks, the worker has 64"),
        ({"max_model_len": 97}, "asks for 97 tokens a request, the worker has 96"),
        ({"vocab_size": 98}, "asks for 98 token ids, the worker has 97"),
        ({"block_size": 16}, "blocks of 16 tokens, the worker of 8"),
    ],
)
def test_a_session_beyond_the_worker_is_refused(changes: dict[str, int], message: str) -> None:
    limits = msgspec.structs.replace(TableLimits(4, 64, BLOCK_SIZE, NUM_BLOCKS, 97), **changes)
    with pytest.raises(ConfigError, match=message):
        TorchRunner(worker_spec(LLAMA)).open(limits)


def test_a_worker_imports_no_transformers() -> None:
    code = (
        "import sys, serbench_engine.runner.torch_runner; print('torch' in sys.modules, 'transformers' in sys.modules)"
    )
    assert _run(code) == "True False"


def test_sizing_memory_imports_no_torch() -> None:
    assert _run("import sys, serbench_engine.models.memory; print('torch' in sys.modules)") == "False"


def _run(code: str) -> str:
    paths = f"import sys; sys.path[:] = {sys.path!r}; "
    done = subprocess.run([sys.executable, "-c", paths + code], capture_output=True, text=True, check=True, timeout=60)
    return done.stdout.strip()


@pytest.mark.parametrize("config", [LLAMA, OPT_125M])
def test_rows_that_stand_for_nothing_change_nothing(config: ModelConfig, monkeypatch: pytest.MonkeyPatch) -> None:
    logits = []
    for pads in (False, True):
        runner = TorchRunner(worker_spec(config))
        monkeypatch.setattr(runner, "_pads", pads)
        driver = Driver(runner, config)
        for row in range(3):
            driver.add(row, prompt(row, 9 + row))
        driver.step({0: 9, 2: 4, 1: 10})  # 23 rows, of which 2 sample
        driver.step({2: 7, 1: 1})
        driver.decode([0, 1, 2], 3)
        logits.append(torch.cat([torch.stack(driver.logits[row]) for row in range(3)]))
    torch.testing.assert_close(logits[0], logits[1], rtol=1e-4, atol=1e-4)
