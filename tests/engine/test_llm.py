"""The offline API: what it takes, in which order outputs come, and how it refuses; on the simulated model."""

import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from serbench_engine import LLM, SamplingParams
from serbench_engine.errors import ConfigError, EngineError, RequestError
from serbench_engine.prompts import Prompt
from tests.engine.executor.workers import worker_pids

GREEDY = SamplingParams(temperature=0.0, max_tokens=3, seed=7)


@pytest.fixture
def llm() -> Iterator[LLM]:
    """A model in this process; bytes are its tokens."""
    with LLM("sim", executor="inproc", max_model_len=64) as made:
        yield made


def generated(llm: LLM, prompts: Any) -> list[list[int]]:
    return [output.outputs[0].token_ids for output in llm.generate(prompts, GREEDY, use_tqdm=False)]


@pytest.mark.parametrize(
    "prompts",
    [
        "ab",
        ["ab"],
        [97, 98],
        [[97, 98]],
        [np.int64(97), np.int32(98)],
        np.array([97, 98]),
        np.array([[97, 98]]),
        [np.array([97, 98], dtype=np.uint16)],
        np.array(["ab"]),
        {"prompt": "ab"},
        {"prompt_token_ids": [97, 98]},
        [{"prompt": "ab", "prompt_token_ids": np.array([97, 98])}],
        ({"prompt": text} for text in ["ab"]),
    ],
)
def test_a_prompt_may_be_given_in_all_the_ways_that_vllm_takes(llm: LLM, prompts: Any) -> None:
    assert generated(llm, prompts) == generated(llm, [[97, 98]])


def test_several_prompts_of_different_kinds_keep_their_order_and_texts(llm: LLM) -> None:
    prompts: list[Prompt] = ["ab", {"prompt": "c"}, [100]]
    outputs = llm.generate(prompts, GREEDY)
    assert [output.prompt for output in outputs] == ["ab", "c", None]
    assert [output.prompt_token_ids for output in outputs] == [[97, 98], [99], [100]]
    assert generated(llm, []) == []


@pytest.mark.parametrize(
    ("prompts", "message"),
    [
        (None, "the prompts are None; give a text, a list of token ids"),
        (5, "the prompts are of type int"),
        (b"ab", "a prompt is of type bytes; it must be a text"),
        (np.array(5), "the prompts are an array without a dimension; give a text"),
        ([np.array(5)], "a prompt is an array without a dimension; it must be a text"),
        ([None], "a prompt is None; it must be a text"),
        ([1.5, 2], r"token id 1\.5; it must be a whole number"),
        ([[1, True]], "token id True; it must be a whole number"),
        ([[]], "empty prompt"),
        ({}, "dictionary has no key; it must have 'prompt' or 'prompt_token_ids'"),
        ({"prompt": "a", "multi_modal_data": 1}, "dictionary has 'prompt', 'multi_modal_data'; it must have"),
        ({"prompt": None}, "'prompt' is None; it must be a text"),
        ({"prompt_token_ids": "ab"}, "'prompt_token_ids' is of type str; it must be a list of token ids"),
        (["ok", "x" * 64], "64 prompt tokens"),
    ],
)
def test_what_is_no_prompt_is_refused_in_one_line(llm: LLM, prompts: Any, message: str) -> None:
    with pytest.raises(RequestError, match=message) as caught:
        llm.generate(prompts, GREEDY)
    assert "\n" not in str(caught.value)
    assert not llm.engine.has_unfinished


@pytest.mark.parametrize(
    ("params", "message"),
    [
        ([SamplingParams(), None], "sampling parameters None; give SamplingParams"),
        ([SamplingParams(), SamplingParams(stop_token_ids=(99999,))], "stop token id 99999"),
        ([SamplingParams()], "1 sampling parameters for 2 prompts"),
        (SamplingParams(logprobs=2), "asks for logprobs; sim is simulated and has none"),
        (SamplingParams, "sampling_params is <class .*>; give SamplingParams"),
        (5, "sampling_params is 5; give SamplingParams"),
        ({"temperature": 0, "max_tokens": 3}, "sampling_params is {'temperature': 0, .*; give SamplingParams"),
    ],
)
def test_bad_parameters_of_one_leave_no_other_request_behind(llm: LLM, params: Any, message: str) -> None:
    with pytest.raises(RequestError, match=message):
        llm.generate(["a", "b"], params)
    assert not llm.engine.has_unfinished


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"block_size": 0}, "block_size is 0; it must be at least 1"),
        ({"max_num_seqs": -1}, "max_num_seqs is -1; it must be at least 1"),
        ({"max_num_batched_tokens": 2**64}, "max_num_batched_tokens is 18446744073709551616; it must be"),
        ({"max_num_seqs": 2**31 - 1}, r"needs \d+\.\d GiB for 2 request tables"),
        ({"step_timeout_s": 1e300}, r"step timeout of 1e\+300 s"),
        ({"seed": 2**70}, "seed is 1180591620717411303424"),
        ({"codec": "none"}, "codec none hands things over by reference"),
        ({"result_format": "none"}, "result format none hands things over by reference"),
        ({"transport": "inproc"}, "executor mp does not work with transport inproc; it works with pipe, shm, zmq"),
        ({"executor": "inproc", "transport": "shm"}, "executor inproc does not work with transport shm"),
        ({"dtype": "int4"}, "dtype is 'int4'; it must be one of auto, float32, bfloat16, float16"),
        ({"device": "cuda"}, "device is 'cuda'; it must be one of auto, cpu"),
        ({"executor": "ray"}, "executor is 'ray'; it must be one of mp, inproc"),
        ({"wait": "sleep"}, "wait is 'sleep'; it must be one of auto, "),
        ({"weights": "fake"}, "weights is 'fake'; it must be one of auto, "),
        ({"tensor_parallel_size": 2}, "no option 'tensor_parallel_size'; there are: weights"),
    ],
)
def test_options_that_can_not_be_are_refused_before_a_worker_is_started(
    options: dict[str, Any], message: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("serbench_engine.executor.registry.MpExecutor", None)
    with pytest.raises(ConfigError, match=message):
        LLM("sim", **options)


@pytest.mark.parametrize("model", [None, 5, b"sim"])
def test_what_is_no_models_name_is_refused_in_one_line(model: Any) -> None:
    with pytest.raises(ConfigError, match=f"the model is {model!r}; it must be a name or a folder's path"):
        LLM(model)


def test_a_session_that_can_not_be_opened_leaves_no_worker(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("serbench_engine.llm.Engine", None)
    with pytest.raises(TypeError) as held:
        LLM("sim", max_model_len=64)
    assert worker_pids() == [], f"although somebody holds the error, and so the LLM: {held}"


def test_model_and_tokenizer_may_be_paths(shared_data: Path) -> None:
    folder = shared_data / "models" / "facebook-opt-125m"
    with pytest.raises(ConfigError, match=f"{folder}"):
        LLM(folder, executor="inproc", weights="real", tokenizer=folder)


def test_numbers_of_numpy_are_taken_for_options() -> None:
    with LLM("sim", executor="inproc", max_model_len=np.int64(64), kv_share=np.float32(0.25)) as llm:
        assert len(generated(llm, "ab")) == 1


def test_after_close_it_says_so(llm: LLM) -> None:
    llm.close()
    with pytest.raises(EngineError, match="this LLM is closed; make a new one"):
        llm.generate("ab")


def test_a_second_thread_is_refused_and_the_first_is_not_disturbed(llm: LLM, monkeypatch: pytest.MonkeyPatch) -> None:
    expected = generated(llm, "ab")
    told: list[Exception] = []

    def enter() -> None:
        try:
            llm.generate("cd")
        except EngineError as error:
            told.append(error)

    step = llm.engine.step

    def step_beside_another() -> Any:
        other = threading.Thread(target=enter)
        other.start()
        other.join()
        return step()

    monkeypatch.setattr(llm.engine, "step", step_beside_another)
    assert generated(llm, "ab") == expected
    assert len(told) == 3
    assert all("LLM is not thread-safe: another thread is in generate or chat" in str(error) for error in told)
