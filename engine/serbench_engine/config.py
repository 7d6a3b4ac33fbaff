"""The options of one session, checked once, and how much KV cache a model gets. It does not know the command line."""

import math
from typing import Final, Literal

import msgspec

from serbench_codecs.codec import Codec
from serbench_codecs.errors import UnknownCodecError
from serbench_codecs.registry import RESULT_FORMATS, get_codec
from serbench_codecs.table import TableLimits
from serbench_engine.errors import ConfigError
from serbench_engine.models.config import ResolvedModel, SimConfig
from serbench_engine.models.memory import available_bytes, kv_block_bytes, weight_bytes
from serbench_engine.transport.registry import get_transport
from serbench_engine.transport.wait import WaitKind

SIM_KV_BYTES_PER_TOKEN: Final = 8
GIB: Final = 1 << 30

MOST: Final = (1 << 31) - 1
"""The largest count: tables, plans and payloads hold them as int32."""


class EngineOptions(msgspec.Struct, frozen=True, kw_only=True):
    """One session: codec, transport and the engine's limits. ``max_model_len`` and ``num_blocks`` from ``plan_memory``.

    ``result_format`` None: the codec's default. ``validate`` checks every plan on both sides (tests, debug runs);
    ``rolling_digest`` lets every worker keep a digest of all that it ran. ``wait``: how each process waits for the
    other's payloads (transport/wait.py).

    Raises:
        ConfigError: values that can't be.
    """

    codec: str = "delta"
    result_format: str | None = None
    transport: str = "shm"
    max_num_seqs: int = 256
    max_num_batched_tokens: int = 2048
    max_model_len: int
    block_size: int = 16
    num_blocks: int
    enable_prefix_caching: bool = False
    seed: int = 0
    validate: bool = False
    rolling_digest: bool = False
    wait: WaitKind = "auto"

    def __post_init__(self) -> None:
        for name in ("max_num_seqs", "max_num_batched_tokens", "max_model_len", "block_size", "num_blocks"):
            _check_count(name, getattr(self, name))
        if not -(1 << 63) <= self.seed < 1 << 63:
            raise ConfigError(f"seed is {self.seed}; it must be a number of 64 bits")
        if self.max_model_len > self.num_blocks * self.block_size:
            raise ConfigError(
                f"max_model_len {self.max_model_len} is more than {self.num_blocks} blocks of {self.block_size} hold"
            )
        try:
            codec = get_codec(self.codec)
        except UnknownCodecError as error:
            raise ConfigError(str(error)) from error
        if self.results(codec) not in RESULT_FORMATS:
            raise ConfigError(f"unknown result format {self.results(codec)!r}; there are: {', '.join(RESULT_FORMATS)}")
        self._check_stays_in_process(codec)

    def _check_stays_in_process(self, codec: Codec) -> None:
        by_reference = [f"codec {codec.name}"] if codec.traits.sends == "reference" else []
        by_reference += ["result format none"] if self.results(codec) == "none" else []
        if by_reference and get_transport(self.transport).leaves_process:
            raise ConfigError(
                f"{by_reference[0]} hands things over by reference, within one process, so it can't go by transport "
                f"{self.transport}; use transport inproc (executor inproc)"
            )

    def limits(self, vocab_size: int) -> TableLimits:
        """The shape of every table of the session."""
        return TableLimits(self.max_num_seqs, self.max_model_len, self.block_size, self.num_blocks, vocab_size)

    def results(self, codec: Codec) -> str:
        """The result format in use."""
        return self.result_format or codec.traits.result_format


class WorkerLimits(msgspec.Struct, frozen=True):
    """What fits: the longest request, the blocks of KV cache, and lines for the user about what was cut."""

    max_model_len: int
    num_blocks: int
    notes: tuple[str, ...] = ()


def plan_memory(
    model: ResolvedModel,
    *,
    dtype: Literal["float32", "bfloat16", "float16"],
    block_size: int,
    num_blocks: int | None,
    max_model_len: int | None,
    max_num_seqs: int,
    max_num_batched_tokens: int,
    kv_share: float,
    num_workers: int = 1,
) -> WorkerLimits:
    """Size the KV cache: ``num_blocks`` if given, else what ``max_num_seqs`` full requests need.

    Never more than ``kv_share`` of the memory that is free once the weights are loaded.

    Raises:
        ConfigError: a number that can't be, a length beyond the model's, or weights, KV cache or request tables that
            can't fit, with both numbers.
    """
    counts = {"block_size": block_size, "max_num_seqs": max_num_seqs, "max_num_batched_tokens": max_num_batched_tokens}
    for name, count in {**counts, "num_blocks": 1 if num_blocks is None else num_blocks}.items():
        _check_count(name, count)
    if not 0 < kv_share <= 1:
        raise ConfigError(f"the KV cache's share of free memory is {kv_share}; it must be above 0 and at most 1")
    longest = _model_len(model, max_model_len)
    row = longest if num_blocks is None else min(longest, num_blocks * block_size)
    weights, block = _bytes(model, dtype, block_size)
    free = _free_beside(model, dtype, weights)
    free -= _table_bytes(max_num_seqs, row, block_size, 1 + num_workers, free)
    if num_blocks is None:
        num_blocks = min(max_num_seqs * math.ceil(longest / block_size), int(free * kv_share) // block)
    elif num_blocks * block > free:
        raise ConfigError(
            f"{num_blocks} blocks of KV cache need {num_blocks * block / GIB:.1f} GiB; "
            f"{free / GIB:.1f} GiB are free beside weights and request tables"
        )
    if num_blocks < 1:
        raise ConfigError(f"no block of KV cache ({block} bytes) fits into {int(free * kv_share)} bytes")
    return _fitted(longest, max_model_len, num_blocks, block_size)


def _check_count(name: str, value: int) -> None:
    if not 1 <= value <= MOST:
        raise ConfigError(
            f"{name} is {value}; it must be at least 1" + (f" and at most {MOST}" if value > MOST else "")
        )


def _free_beside(model: ResolvedModel, dtype: str, weights: int) -> int:
    free = available_bytes()
    if weights > free:
        raise ConfigError(f"{model.name} in {dtype} needs {weights / GIB:.1f} GiB, {free / GIB:.1f} GiB are free")
    return free - weights


def _table_bytes(max_num_seqs: int, row_len: int, block_size: int, tables: int, free: int) -> int:
    """What the tables of the scheduler and of every worker take."""
    row = tables * TableLimits(1, row_len, block_size, 1, 1).row_bytes
    if max_num_seqs * row > free:
        raise ConfigError(
            f"max_num_seqs {max_num_seqs} needs {max_num_seqs * row / GIB:.1f} GiB for {tables} request tables with "
            f"rows of {row_len} tokens; {free / GIB:.1f} GiB are free beside the weights: max_num_seqs "
            f"{free // (2 * row)} takes half of that, a smaller max_model_len makes room for more"
        )
    return max_num_seqs * row


def _fitted(longest: int, asked: int | None, num_blocks: int, block_size: int) -> WorkerLimits:
    fits = num_blocks * block_size
    if longest <= fits:
        return WorkerLimits(longest, num_blocks)
    if asked is not None:
        raise ConfigError(f"max_model_len {asked} does not fit: {num_blocks} blocks of {block_size} hold {fits} tokens")
    note = f"requests are cut at {fits} tokens: that is what the KV cache's {num_blocks} blocks of {block_size} hold"
    return WorkerLimits(fits, num_blocks, (note,))


def _model_len(model: ResolvedModel, asked: int | None) -> int:
    own = model.config.max_model_len
    if asked is None:
        return own
    if asked < 2:
        raise ConfigError(f"max_model_len is {asked}; it must hold a prompt and one token, at least 2")
    if asked > own:
        raise ConfigError(f"max_model_len {asked} is beyond {model.name}'s own limit of {own}")
    return asked


def _bytes(model: ResolvedModel, dtype: str, block_size: int) -> tuple[int, int]:
    if isinstance(model.config, SimConfig):
        return 0, SIM_KV_BYTES_PER_TOKEN * block_size
    return weight_bytes(model.config, dtype), kv_block_bytes(model.config, dtype, block_size)
