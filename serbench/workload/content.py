"""Reads a file as text, compressed by gzip or not. It does not know what the text means.

A byte order mark is left out. Line ends are left as they are: formats that have lines take CRLF too.
"""

import gzip
import zlib
from pathlib import Path
from typing import Final

from serbench.errors import DatasetError, ResultsError
from serbench.paths import kind_of

_GZIP: Final = b"\x1f\x8b"


def read_text(path: Path) -> str:
    """All of ``path``.

    Raises:
        DatasetError: it is missing, empty, broken gzip or no UTF-8 text; with the line where there is one.
    """
    data = _unzipped(path, _read(path))
    if b"\0" in data:
        line = data.count(b"\n", 0, data.index(b"\0")) + 1
        raise DatasetError(f"{path}:{line}: not text but binary data (it has a zero byte); wanted UTF-8")
    try:
        text = data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = data.count(b"\n", 0, error.start) + 1
        raise DatasetError(f"{path}:{line}: not UTF-8 text (byte {data[error.start]:#04x})") from None
    if not text.strip():
        raise DatasetError(f"{path}: the file is empty")
    return text


def _read(path: Path) -> bytes:
    try:
        kind = kind_of(path)
    except ResultsError as error:
        raise DatasetError(str(error)) from None
    if kind is None:
        raise DatasetError(f"{path}: there is no such file")
    if kind == "other":
        raise DatasetError(f"{path}: a pipe or device, but it is read more than once; write it to a file first")
    try:
        return path.read_bytes()
    except OSError as error:
        raise DatasetError(f"{path}: can't be read: {error.strerror}") from None


def _unzipped(path: Path, data: bytes) -> bytes:
    """Told by the first bytes, whatever the file's name is."""
    if not data.startswith(_GZIP):
        return data
    try:
        return gzip.decompress(data)
    except (OSError, EOFError, zlib.error) as error:
        raise DatasetError(f"{path}: can't be unzipped: {error}") from None
