"""Tests how experiments are settled before anything starts. They do not know the engine."""

import json
from pathlib import Path
from typing import Any

import pytest

from serbench.errors import ExperimentError
from serbench.experiment import Experiment
from serbench.prepare import prepare
from serbench.workload.spec import Dataset, Prompts, Synthetic, WorkloadSpec
from serbench_engine.errors import ConfigError


def test_what_was_open_is_filled_in() -> None:
    [thing] = prepare([Experiment(model="sim", max_num_seqs=4)])
    assert thing.experiment.max_model_len == 32768
    assert thing.experiment.num_blocks == 4 * 2048
    assert (thing.experiment.dtype, thing.experiment.device) == ("float32", "cpu")


def test_things_that_can_share_an_engine_share_model_and_prompts() -> None:
    first, second, other = prepare(
        [Experiment(model="sim"), Experiment(model="sim", codec="pickle"), Experiment(model="sim", seed=1)]
    )
    assert first.workload is second.workload
    assert first.model is second.model
    assert (first.experiment.codec, second.experiment.codec) == ("delta", "pickle")
    assert (first.experiment.result_format, second.experiment.result_format) == ("msgspec", "pickle")
    assert other.workload is not first.workload


def test_a_dataset_is_stored_with_the_digest_of_its_content(tmp_path: Path) -> None:
    path = tmp_path / "a.jsonl"
    path.write_text(json.dumps({"prompt": "x"}))
    [thing] = prepare([Experiment(model="sim", workload=Dataset(path=str(path)))])
    assert isinstance(thing.experiment.workload, Dataset)
    assert len(thing.experiment.workload.digest) == 32


def test_a_misspelt_codec_is_told_before_any_model_is_looked_for() -> None:
    with pytest.raises(ExperimentError, match="no codec 'detla'"):
        prepare([Experiment(model="no such model"), Experiment(model="no such model", codec="detla")])


@pytest.mark.parametrize("workload", [Synthetic(), Prompts(texts=("x" * 40,))])
def test_a_request_over_what_the_blocks_hold_is_told_that_it_is_they(workload: WorkloadSpec) -> None:
    with pytest.raises(ExperimentError, match="that is what the KV cache's 2 blocks of 16 hold") as caught:
        prepare([Experiment(model="sim", num_blocks=2, workload=workload)])
    assert "model" not in str(caught.value)  # whose limit is another


@pytest.mark.parametrize(
    ("limits", "message"),
    [
        (
            {"max_num_batched_tokens": 10**30},
            "max_num_batched_tokens is 10{30}; it must be at least 1 and at most 2147483647",
        ),
        ({"max_num_seqs": 2**31 - 1}, r"max_num_seqs 2147483647 needs \d+\.\d GiB for 3 request tables"),
    ],
)
def test_limits_that_no_engine_can_have_are_refused(limits: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        prepare([Experiment(model="sim", workers=2, **limits)])


def test_text_becomes_ids_and_ids_text() -> None:
    [thing] = prepare([Experiment(model="sim", workload=Prompts(texts=("Grüße",)))])
    [request] = thing.workload.requests(0)
    assert thing.text.decode(request.prompt_token_ids.tolist()) == "Grüße"
    assert thing.text.answer_length("Grüße") == 7
    with pytest.raises(ExperimentError, match="--chat needs a chat template"):
        thing.text.chat("x")
