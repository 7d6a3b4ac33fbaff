"""Turns a workload's specification into the workload, for one model. It does not know how either was chosen."""

from serbench.workload.base import Text, Workload
from serbench.workload.dataset import DatasetWorkload
from serbench.workload.prompts import PromptsWorkload
from serbench.workload.spec import Dataset, Prompts, Synthetic, WorkloadSpec
from serbench.workload.synthetic import SyntheticWorkload
from serbench_engine.models.config import ModelConfig, ResolvedModel


def make_workload(spec: WorkloadSpec, *, seed: int, model: ResolvedModel, text: Text, max_model_len: int) -> Workload:
    """The workload that ``spec`` asks for.

    Raises:
        ExperimentError: it doesn't fit the model. DatasetError: its file can't be read.
    """
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
            return DatasetWorkload(spec, seed=seed, text=text, max_model_len=max_model_len)
        case Prompts():
            encode = text.chat if spec.chat else text.encode
            return PromptsWorkload(spec, encode=encode, max_model_len=max_model_len)


def special_ids(model: ResolvedModel) -> list[int]:
    """Ids that mark the begin or end of a text, which random prompts do without."""
    config = model.config
    begin = config.bos_token_id if isinstance(config, ModelConfig) else None
    return [*config.eos_token_ids, *([] if begin is None else [begin])]
