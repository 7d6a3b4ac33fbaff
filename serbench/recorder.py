"""Records the plans and results of a run to a file. It does not know the file's layout, nor what plans are made of.

Plans depend on neither codec nor transport, so a run is recorded where they pass by as they are: codec ``none``, in
this process.
"""

import os
import tempfile
from collections.abc import Callable
from contextlib import AbstractContextManager
from datetime import UTC, datetime
from pathlib import Path
from types import TracebackType
from typing import BinaryIO

import msgspec

from serbench.environment import installed_version
from serbench.errors import NotWrittenError
from serbench.experiment import Experiment
from serbench.live import LiveEngine
from serbench.passes import Pace, Pass, drive, outputs_digest
from serbench.paths import kind_of
from serbench.plans.layout import About, RecordingError
from serbench.plans.writing import PlansWriter
from serbench.prepare import prepare
from serbench.prepared import Prepared
from serbench_codecs.codec import Body
from serbench_codecs.plan import StepPlan, StepResult
from serbench_engine.executor.base import Executor, Link, SessionSpec, WorkerReport
from serbench_engine.transport.base import Payload


class Recorded(msgspec.Struct, frozen=True):
    """What became of a run: ``num_bytes`` of the file for ``num_steps``."""

    about: About
    num_steps: int
    num_bytes: int


def recordable(experiment: Experiment) -> Experiment:
    """``experiment`` as it is recorded: payloads that pass by reference, in this process."""
    return msgspec.structs.replace(
        experiment, codec="none", result_format=None, transport=None, executor="inproc", workers=1
    )


def prepare_recording(experiment: Experiment) -> Prepared:
    """Settle the experiment to be recorded.

    Raises:
        ExperimentError, DatasetError: one that can't be. ConfigError: a model that can't be found or fitted.
    """
    return prepare([recordable(experiment)])[0]


def record_plans(prepared: Prepared, path: Path) -> Recorded:
    """Make one pass and write its plans and results to ``path``, at once when it is done or not at all.

    Raises:
        RecordingError, ResultsError: it can't be written. EngineError: what the engine raises. FaultError: requests
        that never ended.
    """
    if kind_of(path) == "folder":
        raise RecordingError(f"{path} is a folder; --output names the file to write")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        descriptor, temporary = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
    except OSError as error:
        raise RecordingError(f"{path} can't be written: {error.strerror}; --output chooses another file") from error
    try:
        with os.fdopen(descriptor, "wb") as file:
            recorded = _record(prepared, file)
            file.flush()
            os.fsync(file.fileno())
        Path(temporary).chmod(0o644)
        os.replace(temporary, path)
    except OSError as error:
        raise NotWrittenError(f"{path} can't be written: {error.strerror}") from error
    finally:
        Path(temporary).unlink(missing_ok=True)
    return recorded


def _record(prepared: Prepared, file: BinaryIO) -> Recorded:
    around: list[RecordingExecutor] = []

    def recording(executor: Executor) -> Executor:
        around.append(RecordingExecutor(executor, file))
        return around[0]

    engine = LiveEngine(prepared, recording)
    try:
        session = engine.session(prepared.experiment)
        pace = Pace(max_concurrency=prepared.experiment.arrivals.max_concurrency)
        done = drive(session, prepared.workload.requests(0), pace)
        session.close()
    finally:
        engine.close()
    [executor] = around
    about = _about(prepared, done)
    return Recorded(about, executor.writer.num_steps, executor.writer.finish(about))


def _about(prepared: Prepared, done: Pass) -> About:
    return About(
        serbench=installed_version("serbench") or "not installed",
        created=datetime.now(UTC).isoformat(timespec="seconds"),
        model=prepared.model.name,
        fingerprint=prepared.model.fingerprint,
        requests=len(done.finished),
        input_tokens=sum(len(one.prompt_token_ids) for one in done.finished),
        output_tokens=sum(len(one.output_token_ids) for one in done.finished),
        outputs_digest=outputs_digest(done.finished),
        spec=prepared.experiment,
    )


class RecordedLink:
    """A link within one process; what passes is written down. Implements Link."""

    runs_aside = False

    def __init__(self, link: Link, writer: PlansWriter) -> None:
        self._link = link
        self._writer = writer
        self._plan: StepPlan | None = None

    def send(self, header: bytes, body: Body) -> None:
        self._plan = body if isinstance(body, StepPlan) else None
        self._link.send(header, body)

    def receive(self) -> "RecordedPayload":
        return RecordedPayload(self._link.receive(), self._take)

    def close(self) -> list[WorkerReport]:
        return self._link.close()

    def _take(self, payload: Payload) -> None:
        assert self._plan is not None, "codec none hands plans over"
        assert isinstance(payload.body, StepResult), "result format none hands results over"
        self._writer.add(self._plan, payload.body)


class RecordedPayload(AbstractContextManager[Payload]):
    """The ``with`` block of a payload that is written down when it is handed out."""

    def __init__(self, lease: AbstractContextManager[Payload], take: Callable[[Payload], None]) -> None:
        self._lease = lease
        self._take = take

    def __enter__(self) -> Payload:
        payload = self._lease.__enter__()
        self._take(payload)
        return payload

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None
    ) -> bool | None:
        return self._lease.__exit__(kind, error, at)


class RecordingExecutor:
    """An executor whose one session is recorded to ``file``; implements Executor."""

    def __init__(self, executor: Executor, file: BinaryIO) -> None:
        self._executor = executor
        self._file = file
        self._writer: PlansWriter | None = None

    @property
    def writer(self) -> PlansWriter:
        """What was written so far."""
        assert self._writer is not None, "a session was opened"
        return self._writer

    @property
    def num_workers(self) -> int:
        return self._executor.num_workers

    def open(self, spec: SessionSpec) -> Link:
        assert self._writer is None, "one session is recorded"
        self._writer = PlansWriter(self._file, spec.limits)
        return RecordedLink(self._executor.open(spec), self._writer)

    def close(self) -> None:
        self._executor.close()
