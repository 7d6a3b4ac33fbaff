"""Keeps a sweep in its folder: ``sweep.json`` and a run a point below ``runs/``. It does not know how they come about.

All files are replaced at once or not at all, so a sweep may be killed at any moment. One process at a time works on a
folder; its lock ends with it, however it ends.
"""

import fcntl
import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import Final

import msgspec

from serbench.environment import Environment
from serbench.errors import NotWrittenError, ResultsError
from serbench.files import remove_unfinished, write_atomically
from serbench.paths import kind_of, unreadable
from serbench.results import Run, read_run, store_run
from serbench.sweep.grid import Point
from serbench.sweep.manifest import Failure, Manifest, Sitting, decode_manifest, digest_of, encode_manifest

MANIFEST: Final = "sweep.json"


class SweepFolder:
    """An opened sweep; ``manifest`` is as it was last written."""

    def __init__(self, path: Path, manifest: Manifest) -> None:
        self.path = path
        self.manifest = manifest

    def runs(self) -> dict[str, Run]:
        """What is stored so far, by point. Raises ResultsError for a file that is no run."""
        return stored_runs(self.path, self.manifest.points)

    def store(self, run: Run) -> Path:
        """Write a point's run, with its latest repeat; its path."""
        return store_run(run, self.path / "runs")

    def give_up(self, failure: Failure) -> None:
        """Note that a point failed."""
        self._write(failures=[*self.manifest.failures, failure])

    def forget_failures(self) -> None:
        """Let points that failed be tried again."""
        self._write(failures=[])

    def begin_sitting(self, already: Sequence[int]) -> None:
        """Note a new start, and the orders of the passes that are stored."""
        self._write(sittings=[*self.manifest.sittings, Sitting(begun=now(), already=list(already))])

    def _write(self, **changes: object) -> None:
        manifest = msgspec.structs.replace(self.manifest, **changes)
        _save(self.path, manifest)
        self.manifest = manifest


def stored_runs(path: Path, points: Sequence[Point]) -> dict[str, Run]:
    """What is stored of ``points`` in a sweep's folder, by point; nothing where there is no such folder.

    Raises:
        ResultsError: a file that is no run.
    """
    files = {point.id: path / "runs" / f"{point.id}.json" for point in points}
    return {name: read_run(file) for name, file in files.items() if kind_of(file) is not None}


@contextmanager
def opened(path: Path, points: Sequence[Point], stay: int, environment: Environment) -> Iterator[SweepFolder]:
    """The sweep of ``points`` in ``path``, begun or gone on with; no other process has it until the block ends.

    Raises:
        ResultsError: it can't be written, another process has it, or it holds another sweep or one of another machine.
    """
    with _locked(path):
        for folder in (path, path / "runs"):
            remove_unfinished(folder, ".json")
        file = path / MANIFEST
        digest = digest_of(points, stay)
        if kind_of(file) is not None:
            manifest = decode_manifest(_read(file), str(file))
            _check_same(path, manifest, digest, environment)
        else:
            manifest = Manifest(
                id=path.name, created=now(), digest=digest, stay=stay, environment=environment, points=list(points)
            )
            _save(path, manifest)
        yield SweepFolder(path, manifest)


def now() -> str:
    """The time in UTC, ISO 8601."""
    return datetime.now(UTC).isoformat(timespec="seconds")


@contextmanager
def _locked(path: Path) -> Iterator[None]:
    try:
        path.mkdir(parents=True, exist_ok=True)
        descriptor = os.open(path / ".lock", os.O_RDWR | os.O_CREAT, 0o644)
    except OSError as error:
        raise ResultsError(f"{path} can't be written: {error.strerror}; --output chooses another folder") from error
    try:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            raise ResultsError(f"another process is at work on the sweep in {path}; wait for it, or end it") from error
        yield
    finally:
        os.close(descriptor)


def _read(file: Path) -> bytes:
    try:
        return file.read_bytes()
    except OSError as error:
        raise unreadable(file, error) from error


def _check_same(path: Path, manifest: Manifest, digest: str, here: Environment) -> None:
    if not manifest.digest == digest == digest_of(manifest.points, manifest.stay):
        raise ResultsError(f"{path} holds another sweep, begun {manifest.created}; --name gives this one a folder")
    there = manifest.environment
    differ = [
        f"{what} ({then} then, {today} now)"
        for what, then, today in (
            ("processor", f"{there.cpu}, {there.architecture}", f"{here.cpu}, {here.architecture}"),
            ("cores", there.cores, here.cores),
            ("Python", there.python, here.python),
            *((name, there.versions.get(name), version) for name, version in here.versions.items()),
        )
        if then != today
    ]
    if differ:
        raise ResultsError(
            f"the sweep in {path} was begun elsewhere: {'; '.join(differ)}. Its repeats would not belong together; "
            "--name begins a new one"
        )


def _save(path: Path, manifest: Manifest) -> None:
    try:
        write_atomically(path / MANIFEST, encode_manifest(manifest))
    except OSError as error:
        raise NotWrittenError(f"{path / MANIFEST} can't be written: {error.strerror}") from error
