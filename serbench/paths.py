"""Asks what is at a path or in a folder, and refuses outputs that are inputs. It reads and writes no file.

pathlib's own is_file, is_dir and exists raise where a folder may not be entered or a name is too long.
"""

import os
import stat
from collections.abc import Mapping
from pathlib import Path
from typing import Literal, TypeAlias

from serbench.errors import ExperimentError, ResultsError

Kind: TypeAlias = Literal["file", "folder", "other"]


def kind_of(path: Path) -> Kind | None:
    """What is at ``path``, links followed; ``other`` is a pipe, socket or device, None that there is nothing.

    Raises:
        ResultsError: it can't be looked at; says why.
    """
    try:
        mode = path.stat().st_mode
    except (FileNotFoundError, NotADirectoryError):
        return None
    except (OSError, ValueError) as error:
        raise unreadable(path, error) from error
    return "file" if stat.S_ISREG(mode) else "folder" if stat.S_ISDIR(mode) else "other"


def names_in(folder: Path) -> list[str]:
    """What is in ``folder``, sorted; nothing where there is no such folder.

    Raises:
        ResultsError: it can't be looked at; says why.
    """
    try:
        return sorted(os.listdir(folder))
    except (FileNotFoundError, NotADirectoryError):
        return []
    except OSError as error:
        raise unreadable(folder, error) from error


def unreadable(path: str | Path, error: Exception) -> ResultsError:
    """What to raise where ``error`` keeps ``path`` from being read."""
    return ResultsError(f"{path} can't be read: {getattr(error, 'strerror', None) or error}")


def check_can_write(what: str, path: Path) -> None:
    """Find out before measuring whether a file, which the message calls ``what``, can be made, or written to.

    Raises:
        ResultsError: it can't.
    """
    kind = kind_of(path)
    _check_place(what, path, kind, path.parent if kind is None else path)


def check_can_replace(what: str, path: Path) -> None:
    """The same for a file that is replaced at once, and whose folders are made.

    Raises:
        ResultsError: it can't.
    """
    there = next(folder for folder in path.absolute().parents if kind_of(folder) is not None)
    _check_place(what, path, kind_of(path), there)


def _check_place(what: str, path: Path, kind: Kind | None, place: Path) -> None:
    why = None
    if kind == "folder":
        why = "it is a folder; name a file"
    elif place != path and kind_of(place) != "folder":
        why = f"there is no folder {place}"
    elif not os.access(place, os.W_OK):
        why = "Permission denied"
    if why:
        raise ResultsError(f"{what} {path} can't be written: {why}")


def refuse_overwriting(outputs: Mapping[str, str | Path | None], inputs: Mapping[str, str | Path | None]) -> None:
    """Keep a command from writing over what it reads. Both map what a message calls a file to its path or None.

    Raises:
        ExperimentError: an output is an input, under whatever name.
    """
    for output, path in outputs.items():
        for read, there in inputs.items():
            if path and there and _same(path, there):
                raise ExperimentError(f"{output} {path} would be written over {read} ({there}); choose another file")


def _same(a: str | Path, b: str | Path) -> bool:
    try:
        return os.path.samefile(a, b)
    except OSError:  # what is not there, or can't be looked at, is told by whoever reads or writes it
        return os.path.abspath(a) == os.path.abspath(b)
