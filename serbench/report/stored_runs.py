"""Finds and reads the runs that a report is to be made of: ids, files, folders. It does not know what is shown."""

import os
from collections.abc import Sequence
from pathlib import Path
from typing import Final

import msgspec

from serbench.documents import decode_json
from serbench.errors import ResultsError
from serbench.paths import kind_of, names_in, unreadable
from serbench.report.figures import counted
from serbench.results import SCHEMA, Run, find_run, read_run
from serbench.spans import SUFFIX as SPANS_SUFFIX
from serbench.sweep.manifest import SCHEMA as SWEEP_SCHEMA

_ANY_RUN: Final = SCHEMA.rpartition("/")[0]


class Gathered(msgspec.Struct, frozen=True):
    """Runs in the order of their names, without repetition, and ``left_out``: a line for each that isn't there."""

    runs: list[Run]
    left_out: list[str]


class _Failure(msgspec.Struct):
    point: str
    reason: str
    repeats: int


class _Sweep(msgspec.Struct):
    """What a report wants of a sweep's manifest."""

    failures: list[_Failure] = []


def gather_runs(names: Sequence[str], folder: Path) -> Gathered:
    """Read what is named: a folder's run files, also those further down, or a run by its file or its id in ``folder``.

    What is named itself must be a run, or a run's time stamps, which a wildcard names too; in folders other files are
    passed over, and those that can't be read are told.

    Raises:
        ResultsError: nothing to report on, or a named run that can't be found or read.
    """
    runs: dict[str, Run] = {}
    left_out: list[str] = []
    for name in names:
        if kind_of(Path(name)) == "folder":
            found, lines = _read_folder(Path(name))
            left_out += lines
        elif name.endswith(SPANS_SUFFIX) and kind_of(Path(name)) == "file":
            continue
        else:
            found = [read_run(find_run(name, folder))]
        runs.update((run.id, run) for run in found)
    full = {identity: run for identity, run in runs.items() if run.repeats}
    left_out += [f"{identity} has no repeats" for identity in runs if identity not in full]
    if not full:
        told = f": {'; '.join(left_out)}" if left_out else ""
        raise ResultsError(f"there is no run with repeats in {', '.join(names)}{told}")
    return Gathered(sorted(full.values(), key=lambda run: (run.created, run.id)), left_out)


def _read_folder(folder: Path) -> tuple[list[Run], list[str]]:
    runs = []
    paths, left_out = _json_files(folder)
    for path in paths:
        try:
            if kind_of(path) != "file":
                continue
            schema = _schema(path)
            if schema == SWEEP_SCHEMA:
                left_out += _failures(path)
            elif schema is None or schema.startswith(_ANY_RUN):
                runs.append(read_run(path))
        except ResultsError as error:
            left_out.append(str(error))
    return runs, left_out


def _json_files(folder: Path) -> tuple[list[Path], list[str]]:
    """Those in ``folder`` and below, and a line for each folder below that can't be read.

    Files whose names begin with a dot are being written.

    Raises:
        ResultsError: ``folder`` itself can't be read.
    """
    names_in(folder)
    errors: list[OSError] = []
    names = [
        Path(where, name)
        for where, _, names in os.walk(folder, onerror=errors.append)
        for name in names
        if name.endswith(".json") and not name.startswith(".")
    ]
    return sorted(names), [str(unreadable(error.filename, error)) for error in errors]


def _schema(path: Path) -> str | None:
    """What the file says it is; empty for JSON that doesn't say, None where reading it as a run tells what is wrong."""
    try:
        document = decode_json(path.read_bytes())
    except (OSError, msgspec.DecodeError, UnicodeDecodeError):
        return None
    return str(document.get("schema", "")) if isinstance(document, dict) else ""


def _failures(path: Path) -> list[str]:
    """The points of a sweep that were given up, with the reason."""
    try:
        failures = decode_json(path.read_bytes(), _Sweep).failures
    except msgspec.ValidationError as error:
        return [f"{path}: which points failed can't be read: {error}"]
    return [f"{one.point} failed after {counted(one.repeats, 'repeat')}: {one.reason}" for one in failures]
