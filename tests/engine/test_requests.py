"""What is refused, and how: sampling parameters, prompts, ids, lengths."""

import numpy as np
import pytest

from serbench_engine.config import EngineOptions, plan_memory
from serbench_engine.engine import Engine
from serbench_engine.errors import ConfigError, RequestError
from serbench_engine.request import SamplingParams
from serbench_engine.tracked import sampling_record
from tests.engine.serving import SIM, Workload, greedy, options, random_workload, serve, serve_sim, sim_executor


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("temperature", -0.1),
        ("temperature", float("nan")),
        ("temperature", float("inf")),
        ("top_p", 0.0),
        ("top_p", 1.1),
        ("top_k", -2),
        ("min_p", 1.5),
        ("repetition_penalty", 0.0),
        ("presence_penalty", 2.1),
        ("frequency_penalty", -2.1),
        ("max_tokens", 0),
        ("min_tokens", -1),
        ("logprobs", -1),
        ("seed", -1),
        ("stop", ("",)),
        ("stop", (b"x",)),
    ],
)
def test_sampling_parameters_out_of_range_are_refused_with_value_and_range(field: str, value: object) -> None:
    with pytest.raises(RequestError, match=rf"{field} is .*; it must be "):
        SamplingParams(**{field: value})  # type: ignore[arg-type]


def test_parameters_that_float32_can_not_tell_from_zero_harm_nobody() -> None:
    record = sampling_record(SamplingParams(temperature=1e300, top_p=1e-300, repetition_penalty=1e-300), seed=1)
    assert float(record["top_p"][0]) > 0
    assert float(record["repetition_penalty"][0]) > 0
    assert np.isfinite(record["temperature"][0])


def test_min_tokens_above_max_tokens_is_refused() -> None:
    with pytest.raises(RequestError, match="min_tokens 5 is above max_tokens 4"):
        SamplingParams(min_tokens=5, max_tokens=4)


def test_one_stop_string_may_be_given_alone() -> None:
    assert SamplingParams(stop="END").stop == ("END",)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("prompt", "message"),
    [
        ([], "empty prompt"),
        ([1] * 256, "256 prompt tokens.* 256 tokens"),
        ([1] * 300, "300 prompt tokens"),
        ([32768], "token id 32768; the vocabulary is 0 … 32767"),
        ([-1], "token id -1"),
        ([2**40], f"token id {2**40}"),
    ],
)
def test_a_bad_prompt_is_refused_and_the_others_are_served(prompt: list[int], message: str) -> None:
    engine = Engine(sim_executor(), options(), SIM)
    with pytest.raises(RequestError, match=message):
        engine.add_request("bad", prompt, greedy(4))
    workload = random_workload(1, 3, (4, 9), (5, 5))
    assert serve(engine, workload).outputs == serve_sim(workload).outputs


def test_a_request_id_in_use_is_refused() -> None:
    engine = Engine(sim_executor(), options(), SIM)
    engine.add_request("a", [1], greedy(4))
    with pytest.raises(RequestError, match="'a' is in use"):
        engine.add_request("a", [1], greedy(4))
    outcome = serve(engine, Workload([]))
    assert list(outcome.outputs) == ["a"]


@pytest.mark.parametrize("prompt_len", [1, 200, 254, 255])
@pytest.mark.parametrize("max_tokens", [1, 2, 56, 1000, None])
def test_prompt_and_output_never_pass_the_length_limit(prompt_len: int, max_tokens: int | None) -> None:
    outcome = serve_sim(Workload([("a", [7] * prompt_len, greedy(max_tokens))]))
    ids, reason = outcome.outputs["a"]
    assert reason == "length"
    assert len(ids) == min(256 - prompt_len, max_tokens or 256)


@pytest.mark.parametrize(
    "name", ["max_num_seqs", "max_num_batched_tokens", "max_model_len", "block_size", "num_blocks"]
)
def test_engine_limits_below_one_are_refused(name: str) -> None:
    with pytest.raises(ConfigError, match=f"{name} is 0"):
        options(**{name: 0})


def test_unknown_codecs_and_result_formats_are_refused_with_the_nearest() -> None:
    with pytest.raises(ConfigError, match="delta"):
        options(codec="dleta")
    with pytest.raises(ConfigError, match="packed"):
        options(result_format="pakced")


def test_a_length_that_the_blocks_do_not_hold_is_refused() -> None:
    with pytest.raises(ConfigError, match="max_model_len 100 is more than 2 blocks of 16"):
        EngineOptions(max_model_len=100, num_blocks=2)


def test_memory_is_planned_within_the_models_length_and_the_blocks() -> None:
    def plan(num_blocks: int | None, max_model_len: int | None, share: float = 0.5) -> tuple[int, int]:
        limits = plan_memory(
            SIM,
            dtype="float32",
            block_size=16,
            num_blocks=num_blocks,
            max_model_len=max_model_len,
            max_num_seqs=4,
            kv_share=share,
        )
        return limits.max_model_len, limits.num_blocks

    assert plan(None, 1000) == (1000, 4 * 63)
    assert plan(10, None) == (160, 10)
    for arguments, message in (
        ((10, 200), "max_model_len 200 does not fit: 10 blocks of 16 hold 160"),
        ((None, 40000), "beyond sim's own limit of 32768"),
        ((None, 1), "at least 2"),
        ((0, None), "num_blocks is 0"),
        ((10**12, None), "GiB are free"),
        ((None, None, 1.5), "above 0 and at most 1"),
    ):
        with pytest.raises(ConfigError, match=message):
            plan(*arguments)
