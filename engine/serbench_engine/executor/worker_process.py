"""The main program of a worker's process: loads a model, then serves one session after another. It knows no codec.

``python -m serbench_engine.executor.worker_process FD``, where FD is the control socket, inherited from the executor.
It imports torch only if its model needs it. It ends when it is told to, when anything fails, and when the executor's
process is gone.
"""

import os
import signal
import socket
import sys
import threading
import traceback
from collections.abc import Callable
from typing import Final, NoReturn

from serbench_engine.errors import PayloadRefused, TransportError, TransportTimeout
from serbench_engine.executor.base import EXECUTORS_SIGNALS, WorkerSpec
from serbench_engine.executor.control import ControlSocket, Failed, Opened, OpenSession, Ready, Refused, Report, Start
from serbench_engine.runner.base import ModelRunner
from serbench_engine.runner.factory import make_runner
from serbench_engine.transport.registry import connect_receiver, connect_sender
from serbench_engine.transport.wait import PollSource
from serbench_engine.worker import Worker

EXIT_FAILED: Final = 1
EXIT_ORPHANED: Final = 3

_IDLE_S: Final = 3600.0
"""How long one wait for a payload is; the next one follows. The executor has a timeout, an idle worker has none."""


def main(arguments: list[str], runner_for: Callable[[WorkerSpec], ModelRunner] = make_runner) -> int:
    """Serve until told to end. Returns the exit code."""
    for number in EXECUTORS_SIGNALS:
        signal.signal(number, signal.SIG_IGN)
    connection = socket.socket(fileno=int(arguments[0]))
    connection.set_inheritable(False)
    control = ControlSocket(connection)
    threading.Thread(target=_exit_with_executor, args=(control.fileno(),), daemon=True).start()
    try:
        _serve(control, runner_for)
    except BaseException as error:  # whatever it is, the executor must hear of it
        control.send(Failed(type(error).__name__, str(error), traceback.format_exc()))
        return EXIT_FAILED
    return 0


def _exit_with_executor(fd: int) -> None:
    """End the process at once when the other side of the control channel is gone, whatever the main thread does."""
    executor = PollSource([], [fd])
    while not executor.block(_IDLE_S):
        pass
    os._exit(EXIT_ORPHANED)


def _serve(control: ControlSocket, runner_for: Callable[[WorkerSpec], ModelRunner]) -> None:
    start, _ = control.receive(None)
    assert isinstance(start, Start)
    runner = runner_for(start.spec)
    control.send(Ready())
    while True:
        told, fds = control.receive(None)
        if not isinstance(told, OpenSession):
            return
        _run_session(control, start.rank, runner, told, fds)


def _run_session(control: ControlSocket, rank: int, runner: ModelRunner, opening: OpenSession, fds: list[int]) -> None:
    receiver = connect_receiver(opening.plans, fds[: opening.plans.fds])
    sender = connect_sender(opening.results, fds[opening.plans.fds :]) if opening.results else None
    payloads = 0

    def refuse(refused: PayloadRefused) -> None:
        control.send(Refused(refused.epoch, refused.step, refused.reason, number=payloads))

    try:
        worker = Worker(rank, runner, opening.spec, receiver, sender, refuse, runs_aside=True)
        control.send(Opened())
        payloads = 1
        while _step(worker):
            payloads += 1
        control.send(Report(worker.report()))
    finally:
        receiver.close()
        if sender is not None:
            sender.close()


def _step(worker: Worker) -> bool:
    while True:
        try:
            return worker.step(_IDLE_S)
        except TransportTimeout as error:
            if error.receiver is not None:  # the answer found no room
                raise


def run(arguments: list[str], runner_for: Callable[[WorkerSpec], ModelRunner] = make_runner) -> NoReturn:
    """Be a worker until the process ends. ``runner_for`` loads what stands behind it."""
    try:
        sys.exit(main(arguments, runner_for))
    except TransportError:  # nobody is left to be told
        os._exit(EXIT_ORPHANED)


if __name__ == "__main__":
    run(sys.argv[1:])
