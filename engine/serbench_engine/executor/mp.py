"""Runs the workers in processes of their own, and carries payloads to them by any transport that leaves a process.

It does not know what is in a payload, nor what a transport is made of. While it waits for an answer it looks at the
workers from time to time; a step whose answer comes at once pays for none of that.
"""

import time
from collections.abc import Sequence
from contextlib import AbstractContextManager, ExitStack, closing
from typing import Final

from serbench_codecs.codec import END, Body, Buffer, codec_id, pack_header, parse_header
from serbench_engine.errors import (
    ConfigError,
    PayloadRefused,
    TransportError,
    TransportTimeout,
    WorkerError,
    WorkerTimeout,
)
from serbench_engine.executor.base import SessionSpec, WorkerReport, WorkerSpec
from serbench_engine.executor.control import Opened, OpenSession, Refused, Report
from serbench_engine.executor.processes import WORKER_PROGRAM, Workers
from serbench_engine.executor.waiting import model_threads, settle_waiting, usable_cores
from serbench_engine.transport.base import Payload
from serbench_engine.transport.registry import get_transport
from serbench_engine.transport.wait import Deadline

STEP_TIMEOUT_S: Final = 120.0
START_TIMEOUT_S: Final = 600.0
"""For loading weights, apart from the step timeout; a worker that dies meanwhile is noticed at once."""

_SLICE_S: Final = 0.05  # between two looks at the workers while an answer is waited for
_LOOK_EVERY_S: Final = 0.5  # at workers that do not answer, while answers come at once
_INTERRUPTED_S: Final = 5.0  # for a step that was given up to end


class MpLink:
    """A session with workers in other processes; implements Link."""

    runs_aside = True

    def __init__(
        self, workers: Workers, num_workers: int, threads: int, spec: SessionSpec, step_timeout_s: float
    ) -> None:
        transport = get_transport(spec.transport)
        if not transport.leaves_process:
            raise ConfigError(f"transport {spec.transport} does not leave its process; executor mp needs another one")
        self._workers = workers
        self._step_timeout_s = step_timeout_s
        self._slice_s = min(_SLICE_S, step_timeout_s)
        self._codec_id = codec_id(spec.codec)
        self._last: tuple[Buffer, int] | None = None  # header and body length of the payload sent last
        self._sent = 0
        self._sending = False  # also after a send that failed or was interrupted
        self._answered = 0
        self._stale = 0  # the payloads up to this number belong to an epoch that is over
        self._look_at_s = time.monotonic() + _LOOK_EVERY_S
        self._open = True
        for_plans, for_results = settle_waiting(spec.wait, num_workers, threads, usable_cores())
        with ExitStack() as made:  # closed here, so that only the workers hold their ends: their death shows
            plans = made.enter_context(closing(transport.make_channel(num_workers, for_plans)))
            results = made.enter_context(closing(transport.make_channel(1, for_results)))
            for rank in range(num_workers):
                endpoint, fds = plans.receiver_endpoint(rank)
                back, back_fds = results.sender_endpoint() if rank == 0 else (None, [])
                workers.tell(rank, OpenSession(spec, endpoint, back), [*fds, *back_fds])
            self._plans, self._results = plans.sender(), results.receiver(0)
        try:
            workers.gather(Opened, step_timeout_s)
        except BaseException:
            self._close_ends()
            raise

    def send(self, header: bytes, body: Body) -> None:
        self._sending = True
        try:
            self._plans.send(header, body, self._step_timeout_s)
        except TransportTimeout as error:
            rank = error.receiver or 0
            self._workers.look()
            self._workers.fail(WorkerTimeout(rank, f"made no room for the payload within {self._step_timeout_s:g} s"))
        except TransportError as error:
            if error.receiver is None:
                raise
            self._workers.explain(error.receiver)
        self._last = (header, len(body))  # type: ignore[arg-type]
        self._sent += 1
        self._sending = False

    def receive(self) -> AbstractContextManager[Payload]:
        now_s = time.monotonic()
        if now_s >= self._look_at_s:
            self._look_at_s = now_s + _LOOK_EVERY_S
            self._look()
        try:
            lease = self._results.receive(self._slice_s)
        except TransportTimeout:
            lease = self._receive_late()
        except TransportError:
            self._workers.explain(0)
        self._answered += 1
        return lease

    def close(self) -> list[WorkerReport]:
        if not self._open:
            return []
        self._open = False
        try:
            self._workers.check()
        except WorkerError:
            self._close_ends()
            return []
        try:
            return self._end()
        finally:
            self._close_ends()

    def _receive_late(self) -> AbstractContextManager[Payload]:
        deadline = Deadline(self._step_timeout_s)
        while True:
            left_s = deadline.left_s()
            self._look()
            try:
                return self._results.receive(min(_SLICE_S, left_s))
            except TransportTimeout:
                if not left_s:
                    reason = f"no answer to {self._last_step()} within {self._step_timeout_s:g} s"
                    self._workers.fail(WorkerTimeout(0, reason))
            except TransportError:
                self._workers.explain(0)

    def _look(self) -> None:
        """Raise what a worker has to say; refusals of payloads that were given up already are dropped."""
        for rank, refused in self._workers.look():
            if refused.number > self._stale:
                self._stale = self._answered = self._sent  # whoever recovers sends everything anew
                raise PayloadRefused(rank, refused.epoch, refused.step, refused.reason)

    def _last_step(self) -> str:
        if self._last is None:
            return "nothing"
        return f"step {parse_header(*self._last).step}"

    def _end(self) -> list[WorkerReport]:
        """Tell the workers that the session is over, and gather what they report."""
        interrupted = self._sending or self._answered < self._sent
        timeout_s = min(_INTERRUPTED_S, self._step_timeout_s) if interrupted else self._step_timeout_s
        try:
            self._plans.send(pack_header(END, self._codec_id, 0, 0, b""), b"", timeout_s)
            reports = self._workers.gather(Report, timeout_s)
            self._look_once_more()
        except (TransportError, WorkerError):
            self._workers.end(patience_s=0)
            if interrupted:  # the first error is the one to show
                return []
            raise
        return [said.report for said in reports if isinstance(said, Report)]

    def _look_once_more(self) -> None:
        """A worker that does not answer may have refused the last payload: then it did not run what the others ran."""
        refused: list[tuple[int, Refused]] = [one for one in self._workers.look() if one[1].number > self._stale]
        if refused and self._answered == self._sent:
            rank, what = refused[0]
            raise WorkerError(rank, f"refused the payload of step {what.step}: {what.reason}")

    def _close_ends(self) -> None:
        self._plans.close()
        self._results.close()


class MpExecutor:
    """Worker processes that live until ``close``; implements Executor. ``program``: what they run.

    Raises:
        ConfigError, ModelError: ``spec`` can't be loaded. WorkerError: a worker died on the way, or took too long.
    """

    def __init__(
        self,
        spec: WorkerSpec,
        num_workers: int = 1,
        step_timeout_s: float = STEP_TIMEOUT_S,
        start_timeout_s: float = START_TIMEOUT_S,
        program: Sequence[str] = WORKER_PROGRAM,
    ) -> None:
        self._num_workers = num_workers
        self._step_timeout_s = step_timeout_s
        self._threads = model_threads(spec)
        self._link: MpLink | None = None
        self._workers = Workers(spec, num_workers, start_timeout_s, program)

    @property
    def num_workers(self) -> int:
        return self._num_workers

    def open(self, spec: SessionSpec) -> MpLink:
        self._workers.check()
        if self._link is not None:
            self._link.close()
        self._link = MpLink(self._workers, self._num_workers, self._threads, spec, self._step_timeout_s)
        return self._link

    def close(self) -> None:
        try:
            if self._link is not None:
                self._link.close()
        finally:
            self._link = None
            self._workers.end()
