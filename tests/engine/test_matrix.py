"""For every codec, result format, transport and executor the same requests give the same tokens.

CI runs a set that covers every pair of choices; ``make matrix`` (marker ``matrix``) runs all combinations.
"""

from collections.abc import Iterator, Sequence
from itertools import combinations, product
from typing import Final

import numpy as np
import pytest

from serbench_codecs.registry import CODECS, RESULT_FORMATS
from serbench_engine.engine import Engine
from serbench_engine.executor.base import Executor, WorkerSpec
from serbench_engine.executor.registry import make_executor
from serbench_engine.models.config import ModelConfig, ResolvedModel, WeightsSource
from serbench_engine.transport.registry import TRANSPORTS
from tests.engine.serving import SIM, Outcome, Workload, greedy, options, serve, sim_spec

Choice = tuple[str, ...]

NUM_BLOCKS: Final = 48


def codec_names() -> list[str]:
    """Every codec, and every option of it that is not the default, alone."""
    names = list(CODECS)
    for name, family in CODECS.items():
        names += [f"{name}:{key}={value}" for key, values in family.options.items() for value in values[1:]]
    return names


def possible(choice: Choice) -> bool:
    """Whether a codec, result format and transport may be combined: what passes by reference stays in its process."""
    codec, results, transport = choice
    return transport == "inproc" or (codec != "none" and results != "none")


ALL: Final = [choice for choice in product(codec_names(), ["default", *RESULT_FORMATS], TRANSPORTS) if possible(choice)]


def pairwise(choices: Sequence[Choice]) -> list[Choice]:
    """A small subset in which every possible pair of values occurs (greedy)."""

    def pairs(choice: Choice) -> set[tuple[int, str, int, str]]:
        return {(i, choice[i], j, choice[j]) for i, j in combinations(range(len(choice)), 2)}

    missing = set().union(*(pairs(choice) for choice in choices))
    picked = []
    while missing:
        best = max(choices, key=lambda choice: len(pairs(choice) & missing))
        picked.append(best)
        missing -= pairs(best)
    return picked


def workload(vocab_size: int = 32768) -> Workload:
    """Shared prefixes, prompts longer than the budget, more tokens than blocks, aborts by step in several states."""
    rng = np.random.default_rng(8)
    shared = rng.integers(0, vocab_size, 48).tolist()
    requests = []
    for i in range(24):
        own = rng.integers(0, vocab_size, int(rng.integers(1, 90))).tolist()
        requests.append((f"r{i}", (shared if i % 3 == 0 else []) + own, greedy(int(rng.integers(1, 60)))))
    return Workload(requests, {0: ["r23"], 2: ["r1"], 9: ["r3", "r4"], 30: ["r10", "r3"], 31: ["r20"]})


@pytest.fixture(scope="module")
def executors() -> Iterator[dict[str, Executor]]:
    spec = sim_spec(num_blocks=NUM_BLOCKS)
    made = {kind: make_executor(kind, spec) for kind in ("inproc", "mp")}
    yield made
    for executor in made.values():
        executor.close()


@pytest.fixture(scope="module")
def expected(executors: dict[str, Executor]) -> Outcome:
    outcome = run(executors, ("none", "default", "inproc"))
    assert outcome.report.preemptions > 0
    assert outcome.report.cached_tokens > 0
    assert sum(reason == "abort" for _, reason in outcome.outputs.values()) >= 5
    return outcome


def run(executors: dict[str, Executor], choice: Choice, model: ResolvedModel = SIM) -> Outcome:
    codec, results, transport = choice
    chosen = options(
        codec=codec,
        result_format=None if results == "default" else results,
        transport=transport,
        num_blocks=NUM_BLOCKS,
        enable_prefix_caching=True,
    )
    return serve(
        Engine(executors["inproc" if transport == "inproc" else "mp"], chosen, model), workload(model.config.vocab_size)
    )


@pytest.mark.parametrize("choice", pairwise(ALL), ids=" ".join)
def test_every_pair_gives_the_same_tokens(choice: Choice, executors: dict[str, Executor], expected: Outcome) -> None:
    outcome = run(executors, choice)
    assert outcome.outputs == expected.outputs
    assert outcome.report.batches_digest == expected.report.batches_digest
    assert outcome.report.recoveries == 0


@pytest.mark.matrix
@pytest.mark.parametrize("choice", ALL, ids=" ".join)
def test_every_combination_gives_the_same_tokens(
    choice: Choice, executors: dict[str, Executor], expected: Outcome
) -> None:
    outcome = run(executors, choice)
    assert outcome.outputs == expected.outputs
    assert outcome.report.batches_digest == expected.report.batches_digest


# --- a real model, tiny and random, in float32 ----------------------------------------------------------------

TINY: Final = ResolvedModel(
    "tiny",
    ModelConfig(
        architecture="LlamaForCausalLM",
        family="llama",
        vocab_size=512,
        hidden_size=64,
        intermediate_size=96,
        num_layers=2,
        num_heads=4,
        num_kv_heads=2,
        head_dim=16,
        max_model_len=256,
        tie_word_embeddings=False,
        activation="silu",
        eos_token_ids=(),
        init_std=0.25,
        sliding_windows=(0, 0),
    ),
    WeightsSource("dummy"),
    "tiny",
)


def every_codec_and_transport() -> list[Choice]:
    """Every codec once, the transports taken in turn."""
    transports = [*(name for name in TRANSPORTS if name != "inproc"), "inproc"]
    choices: list[Choice] = [("none", "default", "inproc")]
    for i, codec in enumerate(name for name in codec_names() if name != "none"):
        choices.append((codec, "default", transports[i % len(transports)]))
    return choices


@pytest.fixture(scope="module")
def tiny_executors() -> Iterator[dict[str, Executor]]:
    spec = WorkerSpec(TINY, "float32", "cpu", 16, NUM_BLOCKS, 64, threads=1)
    made = {kind: make_executor(kind, spec) for kind in ("inproc", "mp")}
    yield made
    for executor in made.values():
        executor.close()


def test_a_real_model_gives_the_same_tokens_through_every_codec(tiny_executors: dict[str, Executor]) -> None:
    """One test, so that the models are loaded once; what differs is named."""
    outcomes = {choice: run(tiny_executors, choice, TINY) for choice in every_codec_and_transport()}
    assert {transport for _, _, transport in outcomes} == set(TRANSPORTS)
    first, *others = outcomes.values()
    assert first.report.preemptions > 0
    assert len({tuple(ids) for ids, _ in first.outputs.values()}) > 10, "the outputs are too alike to tell anything"
    for choice, outcome in zip(list(outcomes)[1:], others, strict=True):
        assert outcome.outputs == first.outputs, choice
        assert outcome.report.batches_digest == first.report.batches_digest, choice


def test_the_covering_set_is_small_and_misses_no_pair() -> None:
    picked = pairwise(ALL)
    assert len(picked) < len(ALL) / 3
    for i, j in combinations(range(3), 2):
        assert {(c[i], c[j]) for c in picked} == {(c[i], c[j]) for c in ALL}
