"""Runs the workers in the scheduler's own process: the ceiling that every transport falls short of.

It does not know what is in a payload. A worker runs while its link's ``receive`` is waited on.
"""

import traceback

from serbench_codecs.codec import END, Body, codec_id, pack_header
from serbench_engine.errors import ConfigError, EngineError, PayloadRefused, TransportError, WorkerError
from serbench_engine.executor.base import SessionSpec, WorkerReport, WorkerSpec
from serbench_engine.runner.base import ModelRunner
from serbench_engine.runner.factory import make_runner
from serbench_engine.transport import inproc
from serbench_engine.transport.base import Sender
from serbench_engine.transport.lease import Lease
from serbench_engine.worker import Worker


class InprocLink:
    """A session with workers of this process; implements Link."""

    runs_aside = False

    def __init__(self, runners: list[ModelRunner], spec: SessionSpec) -> None:
        plans = inproc.InprocChannel(len(runners))
        results = inproc.InprocChannel(1)
        self._codec_id = codec_id(spec.codec)
        self._plans: Sender = plans.sender()
        self._results = results.receiver(0)
        self._refused: list[PayloadRefused] = []
        self._failed = False
        self._open = True
        self._workers = [
            Worker(
                rank=rank,
                runner=runner,
                spec=spec,
                receiver=plans.receiver(rank),
                sender=results.sender() if rank == 0 else None,
                refuse=self._refused.append,
                runs_aside=self.runs_aside,
            )
            for rank, runner in enumerate(runners)
        ]

    def send(self, header: bytes, body: Body) -> None:
        self._plans.send(header, body, timeout_s=0)

    def receive(self) -> Lease:
        """Let every worker run what it was sent, then hand out rank 0's answer."""
        for rank in range(len(self._workers)):
            self._step(rank)
        if self._refused:
            refused = self._refused[0]
            self._refused.clear()
            raise refused
        return self._results.receive(timeout_s=0)

    def close(self) -> list[WorkerReport]:
        if not self._open:
            return []
        self._open = False
        try:
            return [] if self._failed else self._end()
        except TransportError:  # an interrupted send has ended the channel: there is nothing to report
            return []
        finally:
            self._plans.close()
            self._results.close()

    def _end(self) -> list[WorkerReport]:
        self._plans.send(pack_header(END, self._codec_id, 0, 0, b""), b"", timeout_s=0)
        reports = []
        for rank, worker in enumerate(self._workers):
            while self._step(rank):
                pass
            reports.append(worker.report())
        return reports

    def _step(self, rank: int) -> bool:
        """One step of one worker; False at the session's end."""
        try:
            return self._workers[rank].step(timeout_s=0)
        except TransportError:
            raise
        except Exception as error:
            self._failed = True
            raise WorkerError(rank, f"{type(error).__name__}: {error}", traceback.format_exc()) from error


class InprocExecutor:
    """Workers with runners of their own in this process; implements Executor."""

    def __init__(self, spec: WorkerSpec, num_workers: int = 1) -> None:
        self._runners = [make_runner(spec) for _ in range(num_workers)]
        self._link: InprocLink | None = None

    @property
    def num_workers(self) -> int:
        return len(self._runners)

    def open(self, spec: SessionSpec) -> InprocLink:
        if spec.transport != "inproc":
            raise ConfigError(f"executor inproc works with transport inproc only, not with {spec.transport}")
        if not self._runners:
            raise EngineError("this executor is closed")
        self._end_session()
        self._link = InprocLink(self._runners, spec)
        return self._link

    def close(self) -> None:
        self._end_session()
        self._runners = []

    def _end_session(self) -> None:
        if self._link is not None:
            self._link.close()
            self._link = None
