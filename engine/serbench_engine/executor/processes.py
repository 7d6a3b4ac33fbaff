"""The processes of an executor's workers: starting, hearing, diagnosing, ending them. It knows no session or payload.

A worker that fails takes the others with it, at once: they could not go on, and nothing may be left behind.
"""

import contextlib
import os
import select
import signal
import socket
import subprocess
import sys
import weakref
from collections.abc import Iterator, Mapping, Sequence
from types import MappingProxyType
from typing import Final, NoReturn

from serbench_engine.errors import (
    ConfigError,
    EngineError,
    ModelError,
    TransportError,
    WorkerError,
    WorkerTimeout,
)
from serbench_engine.executor.base import EXECUTORS_SIGNALS, WorkerSpec
from serbench_engine.executor.control import (
    ControlSocket,
    Down,
    Failed,
    Opened,
    OpenSession,
    Ready,
    Refused,
    Report,
    Shutdown,
    Start,
    Up,
)
from serbench_engine.threads import set_thread_environment
from serbench_engine.transport.wait import Deadline

WORKER_PROGRAM: Final = ("serbench_engine.executor.worker_process",)
"""The module a worker runs, and what it is told before the number of its control socket."""

PATIENCE_S: Final = 2.0
"""What a worker that was told to end gets before it is killed."""

_SPEAKING_S: Final = 5.0  # for the rest of what a worker has begun to say
_DYING_S: Final = 1.0  # from a closed control channel to an exit code
_NOT_SAID: Final[Mapping[type[Up], str]] = MappingProxyType(
    {
        Ready: "has not loaded its model (a limit apart from the step timeout)",
        Opened: "did not open the session",
        Report: "did not report",
    }
)
_USER_ERRORS: Final = MappingProxyType({"ConfigError": ConfigError, "ModelError": ModelError})


class WorkerProcess:
    """One worker: its process, and this side of its control channel."""

    def __init__(self, rank: int, program: Sequence[str]) -> None:
        set_thread_environment()
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_STREAM)
        self.rank = rank
        self.control = ControlSocket(ours)
        self.in_session = False  # it hears nothing on the control channel then
        command = [sys.executable, "-P", "-m", *program, str(theirs.fileno())]
        path = os.pathsep.join(os.path.abspath(entry) for entry in sys.path)
        with theirs:
            self.process = subprocess.Popen(
                command,
                pass_fds=[theirs.fileno()],
                stdin=subprocess.DEVNULL,
                stdout=2,  # whatever a library prints: standard output belongs to the user's results
                env={**os.environ, "PYTHONPATH": path},
            )

    def hear(self) -> Up:
        """What the worker has begun to say. Raises TransportError if it is gone or stops in the middle."""
        said, _ = self.control.receive(_SPEAKING_S)
        assert not isinstance(said, Down)
        return said

    def death(self) -> str:
        """How the process ended, in words."""
        try:
            code = self.process.wait(_DYING_S)
        except subprocess.TimeoutExpired:
            return "lives, but is not heard any more"
        if code >= 0:
            return f"ended with exit code {code}"
        hint = " (the system does so when memory runs out)" if code == -signal.SIGKILL else ""
        return f"was ended by {signal.Signals(-code).name}{hint}"


class Workers:
    """All workers of an executor, started and ready. Once one has failed all are ended. ``program``: what they run.

    Raises:
        ConfigError, ModelError: what a worker found wrong with ``spec``.
        WorkerError: one died or raised. WorkerTimeout: not ready within ``start_timeout_s``.
    """

    def __init__(
        self, spec: WorkerSpec, num_workers: int, start_timeout_s: float, program: Sequence[str] = WORKER_PROGRAM
    ) -> None:
        self._processes: list[WorkerProcess] = []
        self._owner = os.getpid()
        weakref.finalize(self, _end, self._processes, self._owner, PATIENCE_S)
        self._refused: list[tuple[int, Refused]] = []
        self._failure: EngineError | None = None
        self._ready = False
        try:
            for rank in range(num_workers):
                with _interrupts_held():
                    self._processes.append(WorkerProcess(rank, program))
            for worker in self._processes:
                self.tell(worker.rank, Start(worker.rank, spec))
            self.gather(Ready, start_timeout_s)
        except BaseException:
            self.end(patience_s=0)
            raise
        self._ready = True

    def check(self) -> None:
        """Raises WorkerError if the workers were ended, by a failure or by ``end``."""
        if not self._processes:
            raise WorkerError(0, f"not running any more; ended after: {self._failure or 'close()'}")

    def tell(self, rank: int, what: Down, fds: Sequence[int] = ()) -> None:
        """Say something to one worker. Raises WorkerError if it is gone."""
        try:
            self._processes[rank].control.send(what, fds)
            self._processes[rank].in_session = isinstance(what, OpenSession)
        except TransportError:
            self.explain(rank)

    def gather(self, kind: type[Up], timeout_s: float) -> list[Up]:
        """Wait until every worker has said something of ``kind``; in order of rank."""
        deadline = Deadline(timeout_s)
        said: dict[int, Up] = {}
        while len(said) < len(self._processes):
            heard = self._hear(deadline.left_s())
            said.update((rank, what) for rank, what in heard if isinstance(what, kind))
            if not heard:
                missing = min(worker.rank for worker in self._processes if worker.rank not in said)
                self.fail(WorkerTimeout(missing, f"{_NOT_SAID[kind]} within {timeout_s:g} s"))
        if kind is Report:
            for worker in self._processes:
                worker.in_session = False
        return [said[rank] for rank in sorted(said)]

    def look(self) -> list[tuple[int, Refused]]:
        """What workers have refused since the last look, with their ranks. Raises WorkerError on a failure."""
        self._hear(0)
        refused, self._refused = self._refused, []
        return refused

    def explain(self, rank: int) -> NoReturn:
        """Raise the WorkerError that tells why ``rank`` can't be reached."""
        deadline = Deadline(_SPEAKING_S)
        while self._hear(deadline.left_s()):
            pass
        self.fail(WorkerError(rank, "its channel is closed, yet its process lives"))

    def fail(self, error: EngineError) -> NoReturn:
        """End all workers at once and raise ``error``."""
        self._failure = error
        self.end(patience_s=0)
        raise error

    def end(self, patience_s: float = PATIENCE_S) -> None:
        """Tell all to end, and kill those that do not within ``patience_s``. Idempotent."""
        _end(self._processes, self._owner, patience_s)

    def _hear(self, timeout_s: float) -> list[tuple[int, Up]]:
        """What comes within ``timeout_s``. Refusals are also kept for ``look``; failures and deaths are raised."""
        self.check()
        poll = select.poll()
        for worker in self._processes:
            poll.register(worker.control.fileno(), select.POLLIN)
        ready = {fd for fd, _ in poll.poll(timeout_s * 1000)}
        heard: list[tuple[int, Up]] = []
        silent: list[WorkerProcess] = []
        for worker in self._processes:
            if worker.control.fileno() not in ready:
                continue
            try:
                heard.append((worker.rank, worker.hear()))
            except TransportError:
                silent.append(worker)
        for rank, what in heard:
            if isinstance(what, Failed):
                self.fail(self._as_error(rank, what))
            if isinstance(what, Refused):
                self._refused.append((rank, what))
        if silent:
            self.fail(WorkerError(silent[0].rank, silent[0].death()))
        return heard

    def _as_error(self, rank: int, failed: Failed) -> EngineError:
        if not self._ready and failed.kind in _USER_ERRORS:
            return _USER_ERRORS[failed.kind](failed.reason)
        return WorkerError(rank, f"{failed.kind}: {failed.reason}", failed.traceback_text)


@contextlib.contextmanager
def _interrupts_held() -> Iterator[None]:
    """Let signals wait until a process is started and remembered; the process inherits this and never sees one."""
    before = signal.pthread_sigmask(signal.SIG_BLOCK, EXECUTORS_SIGNALS)
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def _end(processes: list[WorkerProcess], owner: int, patience_s: float) -> None:
    """End them all; only in the process that started them (a fork of it has the same objects).

    Those that can hear it are told so and get ``patience_s``.
    """
    if os.getpid() != owner:
        return
    try:
        if patience_s > 0:
            deadline = Deadline(patience_s)
            listening = [worker for worker in processes if not worker.in_session]
            for worker in listening:
                with contextlib.suppress(TransportError):
                    worker.control.send(Shutdown())
            for worker in listening:
                with contextlib.suppress(subprocess.TimeoutExpired):
                    worker.process.wait(deadline.left_s())
    finally:
        for worker in processes:
            worker.control.close()
            worker.process.kill()
        while processes:
            processes[-1].process.wait()
            processes.pop()
