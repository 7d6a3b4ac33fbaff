"""Folders that are made once from a source file and kept under the user's cache; many processes may want one at once.

It does not know what is put into them.
"""

import fcntl
import os
import shutil
import tempfile
from collections.abc import Callable
from pathlib import Path

from serbench_engine.errors import ModelError


def cache_root() -> Path:
    """``$XDG_CACHE_HOME/serbench``, by default ``~/.cache/serbench``."""
    base = os.environ.get("XDG_CACHE_HOME")
    return (Path(base) if base and Path(base).is_absolute() else Path.home() / ".cache") / "serbench"


def made_once(name: str, fill: Callable[[Path], None], is_sound: Callable[[Path], bool] = lambda _: True) -> Path:
    """The folder ``name`` below the cache; ``fill`` is called with a new folder if it isn't there, or no more sound.

    A folder appears under its name only when it is complete. While one process fills it, others wait for it; what a
    killed one left behind is removed by the next.

    Raises:
        ModelError: the cache can't be written.
    """
    root = cache_root()
    folder = root / name
    if folder.is_dir() and is_sound(folder):
        return folder
    try:
        root.mkdir(parents=True, exist_ok=True)
        with (root / f"{name}.lock").open("w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)  # released with the process, however it ends
            if folder.is_dir() and not is_sound(folder):
                shutil.rmtree(folder)
            if not folder.is_dir():
                _fill_and_rename(folder, fill)
    except OSError as error:
        reason = error.strerror or str(error)
        raise ModelError(f"the cache {root} can't be written ({reason}); XDG_CACHE_HOME names another place") from error
    return folder


def _fill_and_rename(folder: Path, fill: Callable[[Path], None]) -> None:
    for left in folder.parent.glob(f"{folder.name}.part-*"):
        shutil.rmtree(left, ignore_errors=True)
    part = Path(tempfile.mkdtemp(prefix=f"{folder.name}.part-", dir=folder.parent))
    try:
        fill(part)
        part.rename(folder)
    except BaseException:
        shutil.rmtree(part, ignore_errors=True)
        raise
