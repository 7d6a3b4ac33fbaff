"""One configuration to measure, as plain data that is checked once and stored with its results.

It does not know how it is measured, nor where its options come from.
"""

from typing import Final, Literal, TypeAlias

import msgspec

from serbench.errors import ExperimentError
from serbench.workload.spec import Arrivals, Synthetic, WorkloadSpec
from serbench_codecs.codec import Codec
from serbench_codecs.errors import UnknownCodecError
from serbench_codecs.registry import CODECS, get_codec, get_result_format

DType: TypeAlias = Literal["float32", "bfloat16", "float16"]

AT_LEAST_ONE: Final = ("workers", "max_num_seqs", "max_num_batched_tokens", "block_size", "repeats")


class Experiment(msgspec.Struct, frozen=True, kw_only=True):
    """What is measured. ``None`` and ``auto`` are settled before it runs: stored experiments hold what really ran. Only
    numbers are checked here, so that a stored one can be read where its codec, a plug-in, isn't there.

    ``dtype`` auto is float32, ``device`` auto is cpu; ``result_format`` None is the codec's own; ``transport`` None is
    shm, and inproc where the executor is; ``wait`` auto is the engine's to settle, wait by wait; ``max_model_len`` None
    is the model's, ``num_blocks`` None what ``kv_memory_share`` of the free memory holds. ``repeats`` are timed, after
    ``warmup`` that are not. ``tokenizer``: a folder.

    Raises:
        ExperimentError: values that can't be, alone or together.
    """

    model: str = "facebook/opt-125m"
    weights: Literal["auto", "real", "dummy"] = "auto"
    tokenizer: str | None = None
    dtype: Literal["auto"] | DType = "auto"
    device: Literal["auto", "cpu", "cuda"] = "auto"
    codec: str = "delta"
    result_format: str | None = None
    transport: Literal["inproc", "pipe", "shm", "zmq"] | None = None
    wait: Literal["auto", "spin", "block"] = "auto"
    executor: Literal["inproc", "mp"] = "mp"
    workers: int = 1
    workload: WorkloadSpec = Synthetic()
    arrivals: Arrivals = Arrivals()
    max_num_seqs: int = 256
    max_num_batched_tokens: int = 2048
    max_model_len: int | None = None
    block_size: int = 16
    num_blocks: int | None = None
    kv_memory_share: float = 0.5
    enable_prefix_caching: bool = False
    repeats: int = 5
    warmup: int = 1
    seed: int = 0
    step_timeout_s: float = 120.0

    def __post_init__(self) -> None:
        _check_numbers(self)


def _check_numbers(experiment: Experiment) -> None:
    for name in AT_LEAST_ONE:
        if getattr(experiment, name) < 1:
            raise ExperimentError(f"{name} is {getattr(experiment, name)}; it must be at least 1")
    for name, floor in (("num_blocks", 1), ("max_model_len", 2)):
        value = getattr(experiment, name)
        if value is not None and value < floor:
            raise ExperimentError(f"{name} is {value}; it must be at least {floor}")
    for name, ok, wanted in (
        ("warmup", experiment.warmup >= 0, "at least 0"),
        ("seed", 0 <= experiment.seed < 1 << 63, "between 0 and 2^63 - 1"),
        ("kv_memory_share", 0 < experiment.kv_memory_share <= 1, "above 0 and at most 1"),
        ("step_timeout_s", 0 < experiment.step_timeout_s < float("inf"), "a finite number above 0"),
    ):
        if not ok:
            raise ExperimentError(f"{name} is {getattr(experiment, name)}; it must be {wanted}")


def _codec_of(experiment: Experiment) -> Codec:
    try:
        if experiment.result_format is not None:
            get_result_format(experiment.result_format)
        return get_codec(experiment.codec)
    except UnknownCodecError as error:
        raise ExperimentError(str(error)) from error


def _check_together(experiment: Experiment, codec: Codec) -> None:
    by_reference = codec.traits.sends == "reference" or experiment.result_format == "none"
    if by_reference and experiment.executor != "inproc":
        what = f"codec {experiment.codec}" if codec.traits.sends == "reference" else "result format none"
        raise ExperimentError(
            f"{what} hands things over by reference, within one process, so it can't go with --executor "
            f"{experiment.executor}; use --executor inproc"
        )
    if experiment.transport is not None and (experiment.executor == "inproc") != (experiment.transport == "inproc"):
        right = "inproc" if experiment.executor == "inproc" else "shm, pipe or zmq"
        raise ExperimentError(
            f"--executor {experiment.executor} doesn't go with --transport {experiment.transport}; use {right}"
        )


def _is_ours(codec: str) -> bool:
    """Whether the codec's own name brings it back; others are found under the name that the user gave them only."""
    return codec.partition(":")[0] in CODECS


def settled(experiment: Experiment) -> Experiment:
    """``experiment`` with what was left open filled in, but for ``max_model_len`` and ``num_blocks``, which need the
    model.

    Raises:
        ExperimentError: no such codec or result format, or options that can't go together.
    """
    codec = _codec_of(experiment)
    _check_together(experiment, codec)
    if experiment.device == "cuda":
        raise ExperimentError("--device cuda isn't there yet; use --device cpu")
    return msgspec.structs.replace(
        experiment,
        codec=codec.name if _is_ours(experiment.codec) else experiment.codec,
        dtype="float32" if experiment.dtype == "auto" else experiment.dtype,
        device="cpu",
        result_format=experiment.result_format or codec.traits.result_format,
        transport=experiment.transport or ("shm" if experiment.executor == "mp" else "inproc"),
    )


def engine_key(experiment: Experiment) -> Experiment:
    """What two settled experiments must have in common to be served by the same living workers, one after the other.

    Codec, result format, transport and its way to wait are made anew for every session, so experiments that differ in
    them only share an engine and its weights.
    """
    return msgspec.structs.replace(experiment, codec="delta", result_format=None, transport=None, wait="auto")
