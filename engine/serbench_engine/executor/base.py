"""What an executor is: living workers with loaded weights, to which sessions are opened one after another.

It does not know how payloads are encoded (the codec's business) nor what is in them.
"""

import signal
from contextlib import AbstractContextManager
from typing import Final, Literal, Protocol

import msgspec

from serbench_codecs.codec import Body
from serbench_codecs.table import TableLimits
from serbench_engine.models.config import ResolvedModel
from serbench_engine.transport.base import Payload
from serbench_engine.transport.wait import WaitKind

EXECUTORS_SIGNALS: Final = (signal.SIGINT, signal.SIGTERM)
"""Sent to a process group they are the executor's to handle (Ctrl-C, ``timeout``): no worker ever sees one."""


class WorkerSpec(msgspec.Struct, frozen=True):
    """What a worker is made of, for its whole life: weights and KV cache are loaded once.

    ``num_blocks`` × ``block_size`` KV slots; ``max_num_batched_tokens`` bounds a step; ``threads`` for the model's
    computation (0: all cores); ``seed`` of dummy weights.
    """

    model: ResolvedModel
    dtype: Literal["float32", "bfloat16", "float16"]
    device: str
    block_size: int
    num_blocks: int
    max_num_batched_tokens: int
    threads: int = 0
    seed: int = 0


class SessionSpec(msgspec.Struct, frozen=True):
    """What one repeat uses, made anew for it: codec, result format, transport (their registries), table shape.

    ``validate`` checks every plan against the table (tests, debug runs); ``rolling_digest``: every worker keeps one.
    ``wait``: how payloads are waited for (transport/wait.py); without meaning within one process.
    """

    codec: str
    result_format: str
    transport: str
    limits: TableLimits
    validate: bool = False
    rolling_digest: bool = False
    wait: WaitKind = "auto"


class WorkerReport(msgspec.Struct, frozen=True):
    """What a worker hands over when a session ends, on its control channel.

    ``spans``: the bytes of its span log (phases.py); ``cpu_s``: user + system seconds of its process in the session;
    ``peak_rss_bytes`` of its process; ``rolling_digest`` hex, empty if it kept none.
    """

    rank: int
    spans: bytes
    cpu_s: float
    peak_rss_bytes: int
    rolling_digest: str = ""


class Link(Protocol):
    """One session with all workers: payloads go out to every rank, rank 0 answers."""

    @property
    def runs_aside(self) -> bool:
        """Whether the workers run while the scheduler does something else."""
        ...

    def send(self, header: bytes, body: Body) -> None:
        """Send to every worker. Raises WorkerError if one is gone or makes no room within the step timeout."""
        ...

    def receive(self) -> AbstractContextManager[Payload]:
        """Wait for rank 0's answer; valid within the ``with`` block.

        Raises:
            WorkerError: a worker died or raised (within 5 s, with its traceback).
            WorkerTimeout: no answer within the step timeout.
            PayloadRefused: a worker could not decode what it was sent.
        """
        ...

    def close(self) -> list[WorkerReport]:
        """End the session; the workers live on. Reports are in order of rank. Safe after a failure (then empty)."""
        ...


class Executor(Protocol):
    """Workers, alive until ``close``."""

    @property
    def num_workers(self) -> int: ...

    def open(self, spec: SessionSpec) -> Link:
        """Open a session with new channels, decoders and tables. One at a time."""
        ...

    def close(self) -> None:
        """End all workers and wait for them; leaves no process, memory or socket behind. Idempotent."""
        ...
