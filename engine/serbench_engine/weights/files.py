"""What can be told of a weights file without reading its tensors: that it is one, and a fingerprint of its content.

It does not know formats.
"""

import contextlib
import errno
import hashlib
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Final

from serbench_engine.errors import ModelError

_LFS_MARK: Final = b"version https://git-lfs"
_SAMPLE_BYTES: Final = 4096
_SAMPLES: Final = 64
_NO_ENTRY: Final = (errno.EACCES, errno.EPERM, errno.ENAMETOOLONG, errno.EIO, errno.ESTALE)
"""What the system says where a path can't even be looked at. That nothing is there, Path says by itself."""


@contextlib.contextmanager
def paths_looked_at() -> Iterator[None]:
    """Around code that asks what a path is.

    Raises:
        ModelError: the system lets nobody see, or this user not; or the name is longer than any.
    """
    try:
        yield
    except OSError as error:
        if error.errno not in _NO_ENTRY:
            raise
        raise ModelError(f"{error.filename} can't be read: {error.strerror}") from None


def check_file(path: Path) -> None:
    """Refuse what can't hold anything.

    Raises:
        ModelError: the file is missing, empty, unreadable or a Git LFS pointer.
    """
    try:
        size = path.stat().st_size
        with path.open("rb") as file:
            start = file.read(len(_LFS_MARK))
    except FileNotFoundError:
        raise ModelError(f"{path} is missing; download it again") from None
    except OSError as error:
        raise ModelError(f"{path} can't be read: {error.strerror}") from None
    if size == 0:
        raise ModelError(f"{path} is empty; download it again")
    if start == _LFS_MARK:
        raise ModelError(f"{path} is a Git LFS pointer, not the file itself: run `git lfs pull` in its folder")


def content_fingerprint(files: Iterable[Path]) -> str:
    """16 hexadecimal digits over names, sizes and samples of the content: cheap, and the same wherever the files lie.

    Each file gives its start and up to 64 pages spread over it, so that other values of the same shapes differ.
    """
    digest = hashlib.blake2b(digest_size=8)
    for path in files:
        size = path.stat().st_size
        digest.update(f"{path.name}:{size};".encode())
        with path.open("rb") as file:
            for i in range(_SAMPLES):
                file.seek(i * max(1, (size - _SAMPLE_BYTES)) // (_SAMPLES - 1) if size > _SAMPLE_BYTES else 0)
                digest.update(file.read(_SAMPLE_BYTES))
                if size <= _SAMPLE_BYTES:
                    break
    return digest.hexdigest()
