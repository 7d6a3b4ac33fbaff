"""Runs the things that are compared as processes of their own, of which only the one asked takes CPU time.

It does not know what they measure. A child answers lines of JSON (child_loop.py). Between questions all of its
processes are stopped (SIGSTOP): a loaded engine keeps its memory, and nobody's spinning threads or busy queues take
cores from the one that is timed.
"""

import contextlib
import json
import os
import select
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping
from pathlib import Path
from types import TracebackType
from typing import Any, Final, Self

import msgspec
import psutil

REPOSITORY: Final = Path(__file__).resolve().parents[2]
GRACE_S: Final = 15.0
LAST_LINES: Final = 30


class ChildError(Exception):
    """A child died, or did not answer in time; the message ends with the end of its log."""


class Command(msgspec.Struct, frozen=True, kw_only=True):
    """How a child is started: a module of this folder under some environment's Python, with variables of its own."""

    python: str
    module: str
    options: tuple[str, ...] = ()
    variables: Mapping[str, str] = {}


class Answer(msgspec.Struct, frozen=True):
    """What a child said after how long, and how long the machine's cores worked meanwhile, for it and for others."""

    said: dict[str, Any]
    wall_s: float
    own_cpu_s: float
    foreign_cpu_s: float


class Child:
    """One of the things compared; starts on construction, stopped except while ``ask`` waits for it.

    Raises:
        OSError: there is no such program.
    """

    def __init__(self, name: str, command: Command, logs: Path) -> None:
        self.name = name
        self._log = logs / f"{name}.log"
        path = os.pathsep.join(str(REPOSITORY / root) for root in (".", "engine", "codecs"))
        with self._log.open("w") as log:
            self._process = subprocess.Popen(
                [command.python, "-m", f"benchmarks.peers.{command.module}", *command.options],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=log,
                cwd=REPOSITORY,
                env={**os.environ, "PYTHONPATH": path, "HF_HUB_OFFLINE": "1", **command.variables},
            )
        self.pid = self._process.pid
        self._tree = psutil.Process(self.pid)

    def ask(self, question: Mapping[str, Any], timeout_s: float) -> Answer:
        """Let it run until it has answered.

        Raises:
            ChildError: it didn't, and is ended.
        """
        self._signal(signal.SIGCONT)
        begun_s, own, all_ = time.monotonic(), self._cpu_s(), busy_s()
        try:
            self._write(question)
            said = self._read(timeout_s)
        except ChildError:
            self.close()
            raise
        wall_s, own, all_ = time.monotonic() - begun_s, self._cpu_s() - own, busy_s() - all_
        self._signal(signal.SIGSTOP)
        return Answer(said, wall_s, own, max(0.0, all_ - own))

    def close(self) -> None:
        """End it and all of its processes. Idempotent."""
        if self._process.returncode is not None:
            return
        self._signal(signal.SIGCONT)
        family = self._family()
        assert self._process.stdin is not None
        with contextlib.suppress(OSError):
            self._process.stdin.close()
        with contextlib.suppress(subprocess.TimeoutExpired):
            self._process.wait(GRACE_S)
        for one in family:
            with contextlib.suppress(psutil.NoSuchProcess):
                one.kill()
        self._process.wait()

    def _write(self, question: Mapping[str, Any]) -> None:
        assert self._process.stdin is not None
        try:
            self._process.stdin.write(json.dumps(question).encode() + b"\n")
            self._process.stdin.flush()
        except OSError as error:
            raise ChildError(self._complaint(f"can't be asked ({error})")) from None

    def _read(self, timeout_s: float) -> dict[str, Any]:
        """The next line; a child has one question at a time, so nothing else is ever buffered."""
        assert self._process.stdout is not None
        ready, _, _ = select.select([self._process.stdout], [], [], timeout_s)
        if not ready:
            raise ChildError(self._complaint(f"did not answer within {timeout_s:.0f} s"))
        line = self._process.stdout.readline()
        if not line:
            raise ChildError(self._complaint("ended"))
        said = json.loads(line)
        assert isinstance(said, dict), "children answer with objects"
        return said

    def _complaint(self, what: str) -> str:
        lines = self._log.read_text(errors="replace").splitlines()[-LAST_LINES:]
        return "\n".join([f"{self.name} {what}; the end of its log:", *lines])

    def _family(self) -> list[psutil.Process]:
        """It and all that it started, those that started others first."""
        try:
            return [self._tree, *self._tree.children(recursive=True)]
        except psutil.NoSuchProcess:
            return []

    def _signal(self, number: signal.Signals) -> None:
        for one in self._family():
            with contextlib.suppress(psutil.NoSuchProcess):
                one.send_signal(number)

    def _cpu_s(self) -> float:
        total = 0.0
        for one in self._family():
            with contextlib.suppress(psutil.NoSuchProcess):
                times = one.cpu_times()  # those of its children that ended count too: workers come and go
                total += times.user + times.system + times.children_user + times.children_system
        return total


def busy_s() -> float:
    """Seconds that this machine's cores have worked since it started, all together."""
    times = psutil.cpu_times()
    return float(times.user + times.nice + times.system + times.irq + times.softirq)


class Children:
    """Starts children, and ends them all with its block, or when this process dies within it, however that happens."""

    def __enter__(self) -> Self:
        self._started: list[Child] = []
        self._logs = tempfile.TemporaryDirectory()
        # In a session of its own, so that Ctrl-C doesn't reach it.
        self._guardian = subprocess.Popen(
            [sys.executable, str(Path(__file__).with_name("guardian.py"))],
            stdin=subprocess.PIPE,
            start_new_session=True,
        )
        return self

    def start(self, name: str, command: Command) -> Child:
        """A new one; it runs until it has answered for the first time.

        Raises:
            OSError: there is no such program.
        """
        child = Child(name, command, Path(self._logs.name))
        self._started.append(child)
        assert self._guardian.stdin is not None
        self._guardian.stdin.write(f"{child.pid}\n".encode())
        self._guardian.stdin.flush()
        return child

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, where: TracebackType | None
    ) -> None:
        for child in self._started:
            child.close()
        self._guardian.communicate()
        self._logs.cleanup()
