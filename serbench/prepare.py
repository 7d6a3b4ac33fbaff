"""Settles experiments before anything is started: model, memory, tokenizer and workload. It measures nothing."""

from collections.abc import Sequence

import msgspec

from serbench.errors import ExperimentError
from serbench.experiment import Experiment, engine_key, settled
from serbench.prepared import Prepared
from serbench.text import ModelText
from serbench.workload.build import make_workload
from serbench.workload.dataset import looked_at
from serbench.workload.spec import Dataset
from serbench_engine.config import plan_memory
from serbench_engine.models.catalogue import resolve_model
from serbench_engine.models.config import SimConfig


def prepare(experiments: Sequence[Experiment]) -> list[Prepared]:
    """Settle each; those that can share an engine share model, tokenizer and workload.

    Raises:
        ExperimentError, DatasetError: an experiment that can't be. ConfigError: a model that can't be found or fitted.
    """
    shared: dict[Experiment, Prepared] = {}
    ready = []
    for experiment in [settled(one) for one in experiments]:  # all before any model is looked for
        key = engine_key(experiment)
        base = shared.get(key)
        if base is None:
            base = shared[key] = _prepare(experiment)
        ready.append(msgspec.structs.replace(base, experiment=_as(experiment, base.experiment)))
    return ready


def _as(experiment: Experiment, ready: Experiment) -> Experiment:
    """``ready`` with the codec, result format, transport and way to wait of ``experiment``."""
    return msgspec.structs.replace(
        ready,
        codec=experiment.codec,
        result_format=experiment.result_format,
        transport=experiment.transport,
        wait=experiment.wait,
    )


def _prepare(experiment: Experiment) -> Prepared:
    model = resolve_model(experiment.model, weights=experiment.weights, tokenizer=experiment.tokenizer)
    if experiment.workers > 1 and not isinstance(model.config, SimConfig):
        raise ExperimentError(
            f"--workers {experiment.workers} is for the simulated model only; {model.name} runs in one worker"
        )
    dtype = experiment.dtype
    assert dtype != "auto", "settled"
    limits = plan_memory(
        model,
        dtype=dtype,
        block_size=experiment.block_size,
        num_blocks=experiment.num_blocks,
        max_model_len=experiment.max_model_len,
        max_num_seqs=experiment.max_num_seqs,
        max_num_batched_tokens=experiment.max_num_batched_tokens,
        kv_share=experiment.kv_memory_share,
        num_workers=experiment.workers,
    )
    text = ModelText(model)
    spec = experiment.workload
    if isinstance(spec, Dataset):
        spec = looked_at(spec)
    try:
        workload = make_workload(
            spec,
            seed=experiment.seed,
            model=model,
            text=text,
            max_model_len=limits.max_model_len,
            arrivals=experiment.arrivals,
        )
    except ExperimentError as error:  # where the limit of tokens isn't the model's, it says whose it is
        raise ExperimentError("; ".join([str(error), *limits.notes])) from error
    ready = msgspec.structs.replace(
        experiment, workload=spec, max_model_len=limits.max_model_len, num_blocks=limits.num_blocks
    )
    return Prepared(ready, model, text, workload, (*model.notes, *limits.notes))
