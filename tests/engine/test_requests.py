"""What is refused, and how: sampling parameters, prompts, ids, lengths."""

import re
from typing import Any

import numpy as np
import pytest

from serbench_codecs.plan import StepPlan
from serbench_codecs.reference import ReferenceCodec, ReferenceDecoder, ReferenceEncoder
from serbench_codecs.table import TableLimits
from serbench_engine.config import EngineOptions, WorkerLimits, plan_memory
from serbench_engine.engine import Engine
from serbench_engine.errors import BrokenCodecError, ConfigError, EngineError, RequestError, WorkerError
from serbench_engine.request import SamplingParams
from serbench_engine.runner.simulated import SimulatedBatch, SimulatedRunner
from serbench_engine.tracked import sampling_record
from tests.engine.serving import SIM, Workload, greedy, options, random_workload, serve, serve_sim, sim_executor


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("temperature", -0.1),
        ("temperature", float("nan")),
        ("temperature", float("inf")),
        ("temperature", 1e39),  # float32 makes it infinite
        ("temperature", 10**400),
        ("top_p", 0.0),
        ("top_p", 1.1),
        ("top_k", -2),
        ("top_k", 2**31),
        pytest.param("top_k", 10**5000, id="top_k-enormous"),  # Python does not print it
        ("min_p", 1.5),
        ("repetition_penalty", 0.0),
        ("repetition_penalty", 1e300),
        ("presence_penalty", 2.1),
        ("frequency_penalty", -2.1),
        ("max_tokens", 0),
        ("max_tokens", 2**31),
        ("min_tokens", -1),
        ("min_tokens", 2**31),
        ("logprobs", -1),
        ("logprobs", 2**31),
        ("seed", -1),
        ("seed", 2**64),
        ("stop", ("",)),
        ("stop", (b"x",)),
        ("stop", 5),
        ("n", 2),
        ("n", 1.0),
        ("max_tokens", 2.5),
        ("max_tokens", True),
        ("min_tokens", None),
        ("top_k", "5"),
        ("seed", 1.0),
        ("temperature", "0"),
        ("temperature", True),
        ("ignore_eos", "yes"),
        ("ignore_eos", 1),
        ("stop_token_ids", 5),
    ],
)
def test_sampling_parameters_out_of_range_are_refused_with_value_and_range(field: str, value: object) -> None:
    with pytest.raises(RequestError, match=rf"{field} is .*; it must be "):
        SamplingParams(**{field: value})  # type: ignore[arg-type]


@pytest.mark.parametrize("ids", [[1.5], [True], ["1"], [2**70], np.array([1.5]), np.array([[1]])])
def test_stop_token_ids_that_are_no_whole_numbers_are_refused(ids: object) -> None:
    with pytest.raises(RequestError, match="stop_token_ids has token id"):
        SamplingParams(stop_token_ids=ids)  # type: ignore[arg-type]


def test_what_scripts_for_vllm_give_is_taken() -> None:
    given: dict[str, object] = {
        "n": 1,
        "temperature": np.float32(0.5),
        "max_tokens": np.int64(7),
        "ignore_eos": np.True_,
        "stop": None,
        "stop_token_ids": np.array([3, 5]),
    }
    params = SamplingParams(**given)  # type: ignore[arg-type]
    expected = SamplingParams(temperature=0.5, max_tokens=7, ignore_eos=True, stop_token_ids=(3, 5))
    assert params == expected
    assert type(params.max_tokens) is int
    assert SamplingParams(stop=["a", "b"]).stop == ("a", "b")  # type: ignore[arg-type]


def test_parameters_that_float32_can_not_tell_from_zero_harm_nobody() -> None:
    record = sampling_record(SamplingParams(top_p=1e-300, repetition_penalty=1e-300), seed=1)
    assert float(record["top_p"][0]) > 0
    assert float(record["repetition_penalty"][0]) > 0


def test_the_largest_parameters_are_served() -> None:
    most, largest = 2**31 - 1, float(np.finfo(np.float32).max)
    params = SamplingParams(
        temperature=largest, top_k=most, repetition_penalty=largest, min_tokens=most, max_tokens=most
    )
    record = sampling_record(params, seed=2**64 - 1)
    assert np.isfinite([record["temperature"][0], record["repetition_penalty"][0]]).all()
    ids, reason = serve_sim(Workload([("a", [7] * 250, params)])).outputs["a"]
    assert (len(ids), reason) == (6, "length")


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
        ([2**70], f"token id {2**70}"),
        ([1.0], r"token id 1\.0; it must be a whole number"),
        ([1, True], "token id True; it must be a whole number"),
        (np.array([1.0]), r"token ids in an array of float64, shape \(1,\)"),
    ],
)
def test_a_bad_prompt_is_refused_and_the_others_are_served(prompt: Any, message: str) -> None:
    engine = Engine(sim_executor(), options(), SIM)
    with pytest.raises(RequestError, match=message):
        engine.add_request("bad", prompt, greedy(4))
    workload = random_workload(1, 3, (4, 9), (5, 5))
    assert serve(engine, workload).outputs == serve_sim(workload).outputs


def test_a_stop_id_outside_the_vocabulary_is_refused() -> None:  # to forbid it for a while would harm the step
    engine = Engine(sim_executor(), options(), SIM)
    with pytest.raises(RequestError, match="'a' has stop token id 32768; the vocabulary is 0 … 32767"):
        engine.add_request("a", [1], SamplingParams(stop_token_ids=(32768,), min_tokens=4))
    assert not engine.has_unfinished


def test_a_prompt_over_the_limit_is_told_whose_limit_it_is() -> None:
    engine = Engine(sim_executor(), options(max_model_len=32, num_blocks=2), SIM)
    with pytest.raises(RequestError, match=r"32 tokens \(max_model_len; the KV cache's 2 blocks of 16 hold no more\)"):
        engine.add_request("a", [1] * 32, greedy())
    engine = Engine(sim_executor(), options(max_model_len=32), SIM)
    with pytest.raises(RequestError, match=r"32 tokens \(max_model_len\)"):
        engine.add_request("a", [1] * 32, greedy())


def test_a_step_within_a_step_and_one_after_an_interrupt_are_refused() -> None:
    engine = Engine(sim_executor(), options(codec=f"{__name__}:INTERRUPTED"), SIM)
    engine.add_request("a", [1], greedy())
    with pytest.raises(KeyboardInterrupt):
        engine.step()
    with pytest.raises(EngineError, match=r"another step runs .* or one was interrupted"):
        engine.step()


def test_a_step_after_one_that_failed_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    # What the failed one has done is not known: rows may be freed, tokens counted and blocks given that no worker has.
    forward, calls = SimulatedRunner.forward, iter(range(9))

    def fails_once(runner: SimulatedRunner, batch: SimulatedBatch) -> int:
        if next(calls) == 1:
            raise MemoryError("no memory for the attention of 2 tokens")
        return forward(runner, batch)

    monkeypatch.setattr(SimulatedRunner, "forward", fails_once)
    engine = Engine(sim_executor(), options(), SIM)
    engine.add_request("a", [1], greedy())
    engine.step()
    with pytest.raises(WorkerError, match="no memory"):
        engine.step()
    with pytest.raises(EngineError, match=r"^a step failed \(.*no memory.*\); make a new LLM or Engine$"):
        engine.step()
    engine.close()


def test_a_step_after_one_that_could_not_be_encoded_is_refused() -> None:
    engine = Engine(sim_executor(), options(codec=f"{__name__}:OUT_OF_MEMORY"), SIM)
    engine.add_request("a", [1], greedy())
    with pytest.raises(BrokenCodecError):
        engine.step()
    with pytest.raises(EngineError, match=r"a step failed \(.*MemoryError"):
        engine.step()
    engine.close()


class Raising(ReferenceCodec, frozen=True):
    """Makes no payload."""

    error: type[BaseException] = KeyboardInterrupt

    def ends(self, limits: TableLimits) -> tuple[ReferenceEncoder, ReferenceDecoder]:
        encoder, decoder = super().ends(limits)
        encoder.encode = self._raise  # type: ignore[method-assign]
        return encoder, decoder

    def _raise(self, objects: StepPlan) -> StepPlan:
        raise self.error


INTERRUPTED = Raising()
OUT_OF_MEMORY = Raising(error=MemoryError)


def test_a_request_id_in_use_is_refused() -> None:
    engine = Engine(sim_executor(), options(), SIM)
    engine.add_request("a", [1], greedy(4))
    with pytest.raises(RequestError, match="'a' is in use"):
        engine.add_request("a", [1], greedy(4))
    outcome = serve(engine, Workload([]))
    assert list(outcome.outputs) == ["a"]


@pytest.mark.parametrize("request_id", ["a\ud800", 7])
def test_a_request_id_that_no_payload_could_carry_is_refused(request_id: Any) -> None:
    engine = Engine(sim_executor(), options(), SIM)
    with pytest.raises(RequestError, match=r"request id .* must be text that can be written as UTF-8"):
        engine.add_request(request_id, [1], greedy(4))
    assert not engine.has_unfinished


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
    with pytest.raises(ConfigError, match=f"{name} is 0; it must be at least 1"):
        options(**{name: 0})
    with pytest.raises(ConfigError, match=f"{name} is {2**31}; it must be at least 1 and at most {2**31 - 1}"):
        options(**{name: 2**31})


@pytest.mark.parametrize("changes", [{"codec": "none"}, {"codec": "delta", "result_format": "none"}])
def test_what_is_handed_over_by_reference_stays_in_its_process(changes: dict[str, object]) -> None:
    with pytest.raises(ConfigError, match=r"hands things over by reference, .* so it can't go by transport shm; use"):
        options(transport="shm", **changes)


def test_a_seed_of_more_than_64_bits_is_refused() -> None:
    with pytest.raises(ConfigError, match=r"seed is .*; it must be a number of 64 bits"):
        options(seed=2**63)


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
            max_num_batched_tokens=64,
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
        ((2 * 10**9, None), "GiB are free"),
        ((None, None, 1.5), "above 0 and at most 1"),
    ):
        with pytest.raises(ConfigError, match=message):
            plan(*arguments)


@pytest.mark.parametrize("field", ["block_size", "num_blocks", "max_num_seqs", "max_num_batched_tokens"])
@pytest.mark.parametrize("value", [0, -1, 2**31, 2**70])
def test_memory_is_not_planned_for_numbers_that_can_not_be(field: str, value: int) -> None:
    with pytest.raises(ConfigError, match=f"{field} is {value}; it must be at least 1"):
        _plan(**{field: value})


def test_tables_of_more_requests_than_memory_holds_are_refused_with_how_many_it_holds(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("serbench_engine.config.available_bytes", lambda: 1 << 30)
    with pytest.raises(ConfigError) as caught:
        _plan(max_num_seqs=10**6)
    told = re.fullmatch(
        r"max_num_seqs 1000000 needs 259\.6 GiB for 2 request tables with rows of 32768 tokens; 1\.0 GiB are free "
        r"beside the weights: max_num_seqs (\d+) takes half of that, .*",
        str(caught.value),
    )
    assert told is not None
    assert _plan(max_num_seqs=int(told[1])).num_blocks > 0
    with pytest.raises(ConfigError, match=r"389\.3 GiB for 3 request tables"):
        _plan(max_num_seqs=10**6, num_workers=2)


def _plan(**changes: Any) -> WorkerLimits:
    sizes = {"block_size": 16, "num_blocks": None, "max_model_len": None, "max_num_seqs": 4, "kv_share": 0.5}
    return plan_memory(SIM, **{"dtype": "float32", "max_num_batched_tokens": 64, **sizes, **changes})
