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
