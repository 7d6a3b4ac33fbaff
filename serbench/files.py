"""Writes whole files: a reader finds the old content or the new, never a part. It does not know what is in them."""

import os
import tempfile
from contextlib import suppress
from pathlib import Path
from typing import Final

_TEMPORARY: Final = ".serbench-"
"""In the name of every file that is being written, so that it is mistaken for nobody else's."""


def write_atomically(path: Path, data: bytes) -> None:
    """Put ``data`` in the place of whatever is at ``path``, at once or not at all; parent folders are made.

    Raises:
        OSError: it can't be written; what was there is as it was.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    descriptor, temporary = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}{_TEMPORARY}")
    try:
        with os.fdopen(descriptor, "wb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        Path(temporary).chmod(0o644)
        os.replace(temporary, path)
    except BaseException:
        Path(temporary).unlink(missing_ok=True)
        raise


def remove_unfinished(folder: Path, suffix: str) -> None:
    """Remove what processes that were killed while they wrote files with ``suffix`` left in ``folder``.

    What can't be removed stays: it harms nobody.
    """
    for path in folder.glob(f".*{suffix}{_TEMPORARY}????????"):
        with suppress(OSError):
            path.unlink()
