"""Every model equals the transformers library's on the same weights, however its tokens are cut into steps."""

from functools import cache
from pathlib import Path

import msgspec
import numpy as np
import pytest
import torch
from torch import Tensor
from transformers import PreTrainedModel

from serbench_engine.models.config import ModelConfig, WeightsSource
from serbench_engine.runner.torch_runner import TorchRunner
from tests.engine.driving import Driver, loaded_runner, worker_spec
from tests.engine.models.tiny import LENGTH, TINY, VOCAB, reference_logits, state_of, tiny_config, tiny_model

OUTPUT = 10


@cache
def case(name: str) -> tuple[ModelConfig, TorchRunner]:
    config = tiny_config(name)
    return config, loaded_runner(config, state_of(tiny_model(name)))


@cache
def reference(name: str) -> PreTrainedModel:
    return tiny_model(name)


@pytest.fixture(params=TINY)
def name(request: pytest.FixtureRequest) -> str:
    return str(request.param)


def prompts(seed: int, *lengths: int) -> list[list[int]]:
    rng = np.random.default_rng(seed)
    return [rng.integers(3, VOCAB, size=n).tolist() for n in lengths]


def assert_equals_reference(name: str, driver: Driver, row: int, prompt: list[int], outputs: int = OUTPUT) -> None:
    ids = driver.ids(row)
    assert ids[: len(prompt)] == prompt
    assert len(ids) == len(prompt) + outputs
    expected = reference_logits(reference(name), ids[:-1])[len(prompt) - 1 :]
    torch.testing.assert_close(torch.stack(driver.logits[row]), expected, atol=1e-4, rtol=1e-4)
    assert ids[len(prompt) :] == expected.argmax(-1).tolist()


def test_whole_prompt_then_decode(name: str) -> None:
    driver = Driver(case(name)[1], case(name)[0])
    [prompt] = prompts(1, 37)
    driver.add(0, prompt)
    driver.step({0: len(prompt)})
    driver.decode([0], OUTPUT - 1)
    assert_equals_reference(name, driver, 0, prompt)


def test_chunked_prompts_in_mixed_batches(name: str) -> None:
    driver = Driver(case(name)[1], case(name)[0], seed=2)
    first, second, third = prompts(2, 41, 23, 30)
    driver.add(3, first)
    driver.add(1, second)
    driver.step({3: 11, 1: 5})
    driver.step({1: 18, 3: 1})  # row 1 samples, row 3 goes on with a single token of its prompt
    driver.add(6, third)
    driver.step({6: 9, 1: 1, 3: 29})
    driver.step({1: 1, 3: 1, 6: 21})
    driver.decode([6, 3, 1], OUTPUT - 3)
    driver.decode([3], 1)
    driver.decode([6, 3], 1)
    driver.decode([6], 1)
    for row, prompt in ((1, second), (3, first), (6, third)):
        assert_equals_reference(name, driver, row, prompt, len(driver.logits[row]))
        assert len(driver.logits[row]) >= OUTPUT - 1


def test_blocks_are_used_again(name: str) -> None:
    config, runner = case(name)
    driver = Driver(runner, config, num_blocks=14, seed=3)  # too few for both pairs at a time
    for seed in (3, 4):
        one, other = prompts(seed, 38, 45)
        driver.add(0, one)
        driver.add(1, other)
        driver.step({0: 38, 1: 45})
        driver.decode([1, 0], OUTPUT - 1)
        assert_equals_reference(name, driver, 0, one)
        assert_equals_reference(name, driver, 1, other)
        driver.drop(0)
        driver.drop(1)


def test_up_to_the_longest_request(name: str) -> None:
    driver = Driver(case(name)[1], case(name)[0])
    [prompt] = prompts(5, LENGTH - 3)
    driver.add(0, prompt)
    driver.step({0: 100})
    driver.step({0: LENGTH - 103})
    driver.decode([0], 2)
    assert_equals_reference(name, driver, 0, prompt, 3)


def test_every_prompt_token_matters(name: str) -> None:
    """Else the tests above could not fail. With sliding windows, early tokens matter through the layers."""
    [prompt] = prompts(6, 24)
    driver = Driver(case(name)[1], case(name)[0])
    driver.add(0, prompt)
    driver.step({0: len(prompt)})
    for place in (0, 11, 22):
        changed = list(prompt)
        changed[place] = (changed[place] + 40) % VOCAB
        driver.add(1, changed)
        driver.step({1: len(changed)})
        assert _difference(driver.logits[0][0], driver.logits[1][0]) > 1e-2
        driver.drop(1)


@pytest.mark.parametrize("saved", ["opt-post-norm", "qwen3"])
def test_weights_from_a_saved_folder(saved: str, tmp_path: Path) -> None:
    reference(saved).save_pretrained(tmp_path, max_shard_size="50KB")
    files = tuple(sorted(str(path) for path in tmp_path.glob("*.safetensors")))
    assert len(files) > 1
    config = tiny_config(saved)
    spec = worker_spec(config)
    model = msgspec.structs.replace(spec.model, weights=WeightsSource("safetensors", files))
    driver = Driver(TorchRunner(msgspec.structs.replace(spec, model=model)), config)
    [prompt] = prompts(7, 20)
    driver.add(0, prompt)
    driver.step({0: len(prompt)})
    assert_equals_reference(saved, driver, 0, prompt, 1)


def _difference(a: Tensor, b: Tensor) -> float:
    return float((a - b).abs().max())
