"""Finds and reads the runs that a report is to be made of: ids, files, folders. It does not know what is shown."""

from collections.abc import Iterable, Sequence
from pathlib import Path

import msgspec

from serbench.errors import ResultsError
from serbench.results import SCHEMA, Run, find_run, read_run


class Gathered(msgspec.Struct, frozen=True):
    """Runs in the order of their names, without repetition, and ``left_out``: a line for each that isn't there."""

    runs: list[Run]
    left_out: list[str]


class _SchemaOnly(msgspec.Struct):
    schema: object = None


def gather_runs(names: Sequence[str], folder: Path) -> Gathered:
    """Read what is named: a folder's run files, also those further down, or a run by its file or its id in ``folder``.

    What is named itself must be a run; in folders other files are passed over, and those that can't be read are told.

    Raises:
        ResultsError: nothing to report on, or a named run that can't be found or read.
    """
    runs: dict[str, Run] = {}
    left_out: list[str] = []
    for name in names:
        if Path(name).is_dir():
            found, lines = _read_folder(Path(name))
            left_out += lines
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
    runs, left_out = [], []
    for path in _json_files(folder):
        try:
            if _is_another_document(path):
                continue
            runs.append(read_run(path))
        except ResultsError as error:
            left_out.append(str(error))
    return runs, left_out


def _json_files(folder: Path) -> Iterable[Path]:
    """Files whose names begin with a dot are being written."""
    return (path for path in sorted(folder.rglob("*.json")) if path.is_file() and not path.name.startswith("."))


def _is_another_document(path: Path) -> bool:
    """Whether the file is JSON and no run, of whatever version: a manifest, a comparison, somebody's notes."""
    try:
        document = msgspec.json.decode(path.read_bytes())
    except (OSError, msgspec.DecodeError, UnicodeDecodeError):
        return False  # reading it as a run tells what is wrong
    schema = document.get("schema") if isinstance(document, dict) else None
    return not (isinstance(schema, str) and schema.startswith(SCHEMA.rpartition("/")[0]))
