"""The standard streams as the command line needs them. It does not know what is written to them.

Standard output that can't be written is told as what it is; notes that can't be written end nothing. A stream that is
closed as the program begins is held by the null device: the next file opened would get its number else.
"""

import io
import os
import sys
from typing import TYPE_CHECKING, Final

from serbench.errors import OutputError

if TYPE_CHECKING:
    from _typeshed import ReadableBuffer

_HELD: Final = ((0, os.O_RDONLY), (1, os.O_RDONLY), (2, os.O_WRONLY))
"""What stands in for each stream that is closed: standard output must still fail when it is written."""


class _Output(io.FileIO):
    """Standard output. A reader that went away is a BrokenPipeError still."""

    def write(self, data: "ReadableBuffer", /) -> int:
        try:
            return super().write(data)
        except BrokenPipeError:
            raise
        except OSError as error:
            raise OutputError(f"standard output can't be written: {error.strerror}") from error


class _Notes(io.FileIO):
    """Standard error."""

    def write(self, data: "ReadableBuffer", /) -> int:
        try:
            return super().write(data)
        except OSError:
            return memoryview(data).nbytes


def prepare_streams() -> None:
    """Put ours in the place of Python's; one that knows no µ gets a ?, not a traceback."""
    for number, flags in _HELD:
        try:
            os.fstat(number)
        except OSError:
            os.open(os.devnull, flags)  # the lowest number that is free: this one
    sys.stdout = _text(_Output(1, "wb", closefd=False), sys.stdout)
    sys.stderr = _text(_Notes(2, "wb", closefd=False), sys.stderr)


def _text(raw: io.FileIO, before: object) -> io.TextIOWrapper:
    """``raw`` as text, encoded and buffered as the stream was that it takes the place of."""
    if isinstance(before, io.TextIOWrapper):
        before.flush()
        encoding, lines, at_once = before.encoding, before.line_buffering, before.write_through
    else:
        encoding, lines, at_once = "utf-8", True, False
    return io.TextIOWrapper(
        io.BufferedWriter(raw), encoding, errors="replace", line_buffering=lines, write_through=at_once
    )
