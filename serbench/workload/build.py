"""Turns a workload's specification into the workload, for one model. It does not know how either was chosen."""

from collections.abc import Sequence
from pathlib import Path
from typing import cast

from serbench.errors import ExperimentError
from serbench.workload.arrivals import ArrivingWorkload, check_gaps
from serbench.workload.base import Text, Workload
from serbench.workload.dataset import DatasetWorkload
from serbench.workload.formats import FORMATS, read_rows
from serbench.workload.left_out import LeftOut
from serbench.workload.prompts import PromptsWorkload
from serbench.workload.rows import Rows, TextRow, TraceRow
from serbench.workload.spec import Arrivals, Dataset, Prompts, Synthetic, WorkloadSpec
from serbench.workload.synthetic import SyntheticWorkload, prompt_ids
from serbench.workload.trace_workload import TraceWorkload
from serbench_engine.models.config import ModelConfig, ResolvedModel

TOGETHER = Arrivals()


def make_workload(
    spec: WorkloadSpec,
    *,
    seed: int,
    model: ResolvedModel,
    text: Text,
    max_model_len: int,
    arrivals: Arrivals = TOGETHER,
) -> Workload:
    """The workload that ``spec`` asks for, whose requests arrive as ``arrivals`` says.

    Raises:
        ExperimentError: it doesn't fit the model, or has no times of its own, or far ones, where they are asked for.
        DatasetError: its file can't be read.
    """
    found = read_rows(Path(spec.path), spec.format) if isinstance(spec, Dataset) else None
    if arrivals.kind == "trace":
        _check_has_times(spec, found)
    workload = _made(spec, found, seed=seed, model=model, text=text, max_model_len=max_model_len)
    if arrivals.kind == "trace" and isinstance(spec, Dataset) and isinstance(workload, TraceWorkload):
        check_gaps(workload.rows, arrivals.time_scale, spec.path)
    return ArrivingWorkload(workload, arrivals, seed=seed)


def _made(
    spec: WorkloadSpec, found: Rows | None, *, seed: int, model: ResolvedModel, text: Text, max_model_len: int
) -> Workload:
    match spec:
        case Synthetic():
            return SyntheticWorkload(
                spec,
                seed=seed,
                vocab_size=model.config.vocab_size,
                avoid=special_ids(model),
                max_model_len=max_model_len,
            )
        case Dataset():
            assert found is not None, "read by the caller"
            left_out = LeftOut(spec.path, found.left_out, strict=spec.strict, max_model_len=max_model_len)
            if found.is_trace:
                traced = cast(Sequence[TraceRow], found.rows)
                ids = prompt_ids(model.config.vocab_size, special_ids(model))
                return TraceWorkload(spec, traced, left_out, seed=seed, ids=ids, max_model_len=max_model_len)
            texts = cast(Sequence[TextRow], found.rows)
            return DatasetWorkload(spec, texts, left_out, seed=seed, text=text, max_model_len=max_model_len)
        case Prompts():
            encode = text.chat if spec.chat else text.encode
            return PromptsWorkload(spec, encode=encode, max_model_len=max_model_len)


def _check_has_times(spec: WorkloadSpec, found: Rows | None) -> None:
    traces = "an Azure, BurstGPT or Mooncake trace"
    if not isinstance(spec, Dataset) or found is None:
        raise ExperimentError(f"--arrivals trace goes by the clock of a file; give {traces} as --dataset")
    if found.rows and not found.is_trace:
        raise ExperimentError(
            f"--arrivals trace goes by the clock of {traces}; {spec.path} is {FORMATS[found.format].what}, which has "
            "none: give a --request-rate"
        )


def special_ids(model: ResolvedModel) -> list[int]:
    """Ids that mark the begin or end of a text, which random prompts do without."""
    config = model.config
    begin = config.bos_token_id if isinstance(config, ModelConfig) else None
    return [*config.eos_token_ids, *([] if begin is None else [begin])]
