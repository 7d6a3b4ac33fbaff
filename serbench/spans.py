"""Stores the stamps of every step beside a run's file, ``ID.spans.npz``, and reads them. It draws nothing from them.

The file is an archive of plain arrays, read without pickle: ``header`` (JSON as uint8), and for each repeat the
scheduler's log ``scheduler.GROUP`` and each worker's ``worker.RANK.GROUP``, int64[steps, fields] with the fields that
the header names. results/README.md documents it.
"""

import io
import re
import zipfile
import zlib
from pathlib import Path
from typing import Final

import msgspec
import numpy as np
import numpy.typing as npt

from serbench.documents import decode_json
from serbench.errors import NotWrittenError, ResultsError
from serbench.files import write_atomically
from serbench.paths import kind_of
from serbench_engine.phases import SCHEDULER_FIELDS, WORKER_FIELDS, SessionReport

SCHEMA: Final = "serbench/spans/2"
SUFFIX: Final = ".spans.npz"

Int64Matrix = npt.NDArray[np.int64]

_SCHEDULER: Final = re.compile(r"scheduler\.(\d+)")
_WORKER: Final = re.compile(r"worker\.(\d+)\.(\d+)")


class RepeatSpans(msgspec.Struct, frozen=True, eq=False):
    """The logs of one repeat: int64[steps, SCHEDULER_FIELDS], and int64[steps, WORKER_FIELDS] by rank."""

    scheduler: Int64Matrix
    workers: list[Int64Matrix]


class _Header(msgspec.Struct, frozen=True, kw_only=True):
    schema: str = SCHEMA
    run: str
    scheduler_fields: tuple[str, ...] = SCHEDULER_FIELDS
    worker_fields: tuple[str, ...] = WORKER_FIELDS


class SpanStore:
    """Collects the logs of runs, and writes a run's file anew after each of its repeats."""

    def __init__(self) -> None:
        self._arrays: dict[Path, dict[str, npt.NDArray[np.generic]]] = {}

    def keep(self, run_path: Path, group: int, report: SessionReport) -> Path:
        """Add a repeat's logs; the file they are in.

        Raises:
            NotWrittenError: it can't be written.
        """
        header = np.frombuffer(msgspec.json.encode(_Header(run=run_path.stem)), dtype=np.uint8)
        arrays = self._arrays.setdefault(run_path, {"header": header})
        arrays[f"scheduler.{group}"] = report.scheduler_spans
        arrays.update({f"worker.{rank}.{group}": log for rank, log in enumerate(report.worker_spans)})
        path = spans_path(run_path)
        data = io.BytesIO()
        np.savez_compressed(data, allow_pickle=False, **arrays)
        try:
            write_atomically(path, data.getvalue())
        except OSError as error:
            raise NotWrittenError(f"{path} can't be written: {error.strerror}") from error
        return path


def spans_path(run_path: Path) -> Path:
    """Where the stamps of a run's file are."""
    return run_path.with_name(run_path.stem + SUFFIX)


def read_spans(run_path: Path) -> dict[int, RepeatSpans]:
    """The logs of a stored run by group.

    Raises:
        ResultsError: there are none, or the file holds something else; says which.
    """
    path = spans_path(run_path)
    if kind_of(path) is None:
        raise ResultsError(f"there are no time stamps of {run_path.stem} ({path}): `serbench run --trace` keeps them")
    try:
        with np.load(path, allow_pickle=False) as archive:
            arrays = {name: archive[name] for name in archive.files}
    except (OSError, ValueError, EOFError, KeyError, NotImplementedError, zipfile.BadZipFile, zlib.error) as error:
        raise ResultsError(f"{path} is no archive of time stamps: {error}") from error
    _check_header(path, arrays.pop("header", None))
    return _by_group(path, arrays)


def _check_header(path: Path, header: npt.NDArray[np.generic] | None) -> None:
    if header is None:
        raise ResultsError(f"{path} is no archive of time stamps: it has no header")
    try:
        read = decode_json(header.tobytes(), _Header)
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise ResultsError(f"{path} is no archive of time stamps: {error}") from error
    if read.schema != SCHEMA:
        raise ResultsError(f"{path}: its schema is {read.schema!r}, this serbench reads {SCHEMA!r}")
    if (read.scheduler_fields, read.worker_fields) != (SCHEDULER_FIELDS, WORKER_FIELDS):
        raise ResultsError(f"{path} has other fields than this serbench: {read.scheduler_fields}, {read.worker_fields}")


def _by_group(path: Path, arrays: dict[str, npt.NDArray[np.generic]]) -> dict[int, RepeatSpans]:
    workers: dict[int, dict[int, Int64Matrix]] = {}
    for name, array in arrays.items():
        if found := _WORKER.fullmatch(name):
            workers.setdefault(int(found[2]), {})[int(found[1])] = _matrix(path, name, array, len(WORKER_FIELDS))
    groups = {
        int(found[1]): _matrix(path, name, array, len(SCHEDULER_FIELDS))
        for name, array in arrays.items()
        if (found := _SCHEDULER.fullmatch(name))
    }
    return {
        group: RepeatSpans(scheduler, [log for _, log in sorted(workers.get(group, {}).items())])
        for group, scheduler in sorted(groups.items())
    }


def _matrix(path: Path, name: str, array: npt.NDArray[np.generic], fields: int) -> Int64Matrix:
    if array.dtype != np.int64 or array.ndim != 2 or array.shape[1] != fields:
        raise ResultsError(f"{path}: {name} is {array.dtype}{array.shape}, it must be int64[steps, {fields}]")
    return array.astype(np.int64, copy=False)
