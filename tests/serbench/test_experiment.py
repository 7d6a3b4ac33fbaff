"""Tests which experiments can be, and which of them share an engine. They do not know how they are measured."""

from typing import Any

import msgspec
import pytest

from serbench.errors import ExperimentError
from serbench.experiment import Experiment, engine_key, settled
from serbench.workload.spec import Dataset, Prompts, Synthetic


@pytest.mark.parametrize(
    ("options", "complaint"),
    [
        ({"workers": 0}, "workers is 0; it must be at least 1"),
        ({"max_num_seqs": -1}, "max_num_seqs is -1; it must be at least 1"),
        ({"max_num_batched_tokens": 0}, "max_num_batched_tokens is 0"),
        ({"block_size": 0}, "block_size is 0"),
        ({"num_blocks": 0}, "num_blocks is 0"),
        ({"max_model_len": 1}, "max_model_len is 1; it must be at least 2"),
        ({"repeats": 0}, "repeats is 0"),
        ({"warmup": -1}, "warmup is -1; it must be at least 0"),
        ({"seed": -1}, "seed is -1"),
        ({"kv_memory_share": 0.0}, "kv_memory_share is 0.0; it must be above 0 and at most 1"),
        ({"kv_memory_share": 1.5}, "kv_memory_share is 1.5"),
        ({"step_timeout_s": float("nan")}, "step_timeout_s is nan"),
    ],
)
def test_numbers_that_can_t_be(options: dict[str, Any], complaint: str) -> None:
    with pytest.raises(ExperimentError) as refused:
        Experiment(**options)
    assert complaint in str(refused.value)


@pytest.mark.parametrize(
    ("options", "complaint"),
    [
        ({"codec": "pickel"}, "Did you mean pickle"),
        ({"codec": "pickle:ids=none"}, "possible: pickle:ids=list|packed"),
        ({"result_format": "packd"}, "Did you mean packed"),
        ({"codec": "none"}, "can't go with --executor mp; use --executor inproc"),
        ({"result_format": "none"}, "result format none hands things over by reference"),
        (
            {"codec": "none", "executor": "inproc", "transport": "shm"},
            "doesn't go with --transport shm; use inproc",
        ),
        ({"transport": "inproc"}, "--executor mp doesn't go with --transport inproc; use shm, pipe or zmq"),
        ({"device": "cuda"}, "use --device cpu"),
    ],
)
def test_options_that_can_t_go_together(options: dict[str, Any], complaint: str) -> None:
    with pytest.raises(ExperimentError) as refused:
        settled(Experiment(**options))
    assert complaint in str(refused.value)
    assert "\n" not in str(refused.value)


def test_what_was_open_is_settled() -> None:
    ready = settled(Experiment())
    assert (ready.dtype, ready.device, ready.transport) == ("float32", "cpu", "shm")
    assert ready.result_format is not None
    within = settled(Experiment(codec="none", executor="inproc"))
    assert (within.transport, within.result_format) == ("inproc", "none")
    assert settled(Experiment(codec="pickle:ids=list")).codec == "pickle"


@pytest.mark.parametrize("options", [{"codec": "pickle"}, {"transport": "pipe"}, {"result_format": "pickle"}])
def test_what_differs_in_codec_and_transport_only_shares_an_engine(options: dict[str, Any]) -> None:
    assert engine_key(settled(Experiment(**options))) == engine_key(settled(Experiment()))


@pytest.mark.parametrize("options", [{"executor": "inproc"}, {"block_size": 8}, {"model": "sim"}, {"max_num_seqs": 3}])
def test_what_differs_in_more_does_not(options: dict[str, Any]) -> None:
    assert engine_key(settled(Experiment(**options))) != engine_key(settled(Experiment()))


@pytest.mark.parametrize("workload", [Synthetic(), Dataset(path="x"), Prompts(texts=("a", "b"), chat=True)])
def test_it_is_stored_as_it_is(workload: Any) -> None:
    experiment = settled(Experiment(workload=workload))
    assert msgspec.json.decode(msgspec.json.encode(experiment), type=Experiment) == experiment
