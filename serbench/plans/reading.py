"""Reads recorded plans: a file is mapped, checked, and its columns are views of it. It does not know what they are for.

Nothing is executed, and nothing is allocated by a number that a file says before it has been checked. Every byte is
under a checksum: those of the tables are compared when a file is opened, a column's when it is first looked at.
"""

import mmap
import zlib
from itertools import pairwise
from pathlib import Path
from typing import Any, Final

import msgspec
import numpy as np
import numpy.typing as npt

from serbench.documents import decode_json
from serbench.errors import ExperimentError
from serbench.plans.layout import (
    ALIGNMENT,
    BLOB_DTYPE,
    COLUMNS,
    FIRST_BLOB,
    HEAD,
    HEAD_BYTES,
    HEAD_CHECK,
    MAGIC,
    STEP_DTYPE,
    VERSION,
    About,
    Columns,
    RecordingError,
)
from serbench_codecs.plan import (
    NO_ADMISSIONS,
    NO_WRITES,
    Admissions,
    Logprobs,
    Ragged,
    StepPlan,
    StepResult,
    Writes,
)
from serbench_codecs.table import TableLimits

MOST_TABLE_IDS: Final = 1 << 33
"""Token ids that a table of the file's limits may hold; beyond that they are no limits of a run."""


class Step(msgspec.Struct, frozen=True, eq=False):
    """A recorded step. Equal columns of steps in a row are the same object, as a scheduler hands them out."""

    plan: StepPlan
    result: StepResult


class Recording:
    """An open file of recorded plans; ``step`` makes one from views of it.

    Raises:
        RecordingError: the file can't be read, or is none, truncated, garbled or of another version; one line.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self._data = _mapped(path)
        head = self._head()
        num_steps, num_blobs, blobs_at, steps_at, about_at = head[3:8]
        self.limits = TableLimits(*head[8:13])
        self._check_limits()
        self._check_places(num_steps, num_blobs, blobs_at, steps_at, about_at, check=head[13])
        self._blobs = np.frombuffer(self._data, BLOB_DTYPE, num_blobs, blobs_at)
        self._steps = np.frombuffer(self._data, STEP_DTYPE, num_steps, steps_at)
        self._check_tables(blobs_at)
        self.about = self._about(about_at)
        self._checked = bytearray(num_blobs)
        self._last: dict[str, tuple[int, npt.NDArray[Any]]] = {}

    def __len__(self) -> int:
        return len(self._steps)

    @property
    def num_bytes(self) -> int:
        """Of the file."""
        return len(self._data)

    def step(self, index: int) -> Step:
        """Step ``index`` of 0 … len − 1. Its arrays can't be written to.

        Raises:
            RecordingError: its bytes are garbled, or what they say can't be a plan.
        """
        row = self._steps[index]
        blobs = zip(COLUMNS, row["columns"].tolist(), strict=True)
        columns = {name: self._column(index, name, blob) for name, blob in blobs}
        number, epoch = int(row["step"]), int(row["epoch"])
        try:
            plan = StepPlan(
                number,
                epoch,
                columns["freed"],
                _admissions(columns),
                _writes(columns, "blocks"),
                _writes(columns, "tokens"),
                columns["batch_rows"],
                columns["batch_counts"],
            )
            return Step(plan, StepResult(number, epoch, columns["result.token_ids"], _logprobs(columns)))
        except (ValueError, IndexError) as error:
            raise RecordingError(f"{self._path}: step {index} can't be a plan: {error}") from error

    # --- the file's parts -------------------------------------------------------------------------------------------

    def _head(self) -> tuple[Any, ...]:
        if self._data[: len(MAGIC)] != MAGIC:
            raise RecordingError(f"{self._path} is no file of recorded plans: it does not begin with {MAGIC.decode()}")
        version = int.from_bytes(self._data[len(MAGIC) : len(MAGIC) + 4], "little")
        if version != VERSION:
            raise RecordingError(f"{self._path} is of version {version}; this serbench reads version {VERSION}")
        if len(self._data) < FIRST_BLOB:
            raise RecordingError(f"{self._path} is truncated: {len(self._data)} bytes are fewer than a head")
        head = self._data[: HEAD.size]
        [check] = HEAD_CHECK.unpack(self._data[HEAD.size : HEAD_BYTES])
        if check != zlib.crc32(head):
            raise RecordingError(f"{self._path} is garbled: its head does not fit its checksum")
        parts = HEAD.unpack(head)
        if parts[2] != len(COLUMNS):
            raise RecordingError(f"{self._path}: {parts[2]} columns where version {VERSION} has {len(COLUMNS)}")
        return parts

    def _check_limits(self) -> None:
        if min(msgspec.structs.astuple(self.limits)) < 1 or _table_ids(self.limits) > MOST_TABLE_IDS:
            raise RecordingError(f"{self._path}: {self.limits} are no limits of a run")

    def _check_places(self, num_steps: int, num_blobs: int, *places: int, check: int) -> None:
        """The tables lie one after the other, up to the text that ends the file."""
        blobs_at, steps_at, about_at = places
        if (
            blobs_at < FIRST_BLOB
            or steps_at != blobs_at + num_blobs * BLOB_DTYPE.itemsize
            or about_at != steps_at + num_steps * STEP_DTYPE.itemsize
            or about_at > len(self._data)
        ):
            raise RecordingError(f"{self._path} is truncated: {len(self._data)} bytes do not hold {num_steps} steps")
        if check != zlib.crc32(memoryview(self._data)[blobs_at:]):
            raise RecordingError(f"{self._path} is truncated or garbled: its tables do not fit their checksum")

    def _check_tables(self, blobs_at: int) -> None:
        """Every blob lies before the tables, every column names a blob and has a length its type can have."""
        ends = self._blobs["at"] + self._blobs["bytes"]
        at = self._blobs["at"]
        if len(at) < 1 or (at < FIRST_BLOB).any() or (at > blobs_at).any() or (ends > blobs_at).any():
            raise RecordingError(f"{self._path}: a column lies outside the file")
        named = self._steps["columns"]
        if named.size and int(named.max()) >= len(self._blobs):
            raise RecordingError(f"{self._path}: a step names column {int(named.max())} of {len(self._blobs)}")
        sizes = np.array([dtype.itemsize for dtype in COLUMNS.values()], dtype=np.uint32)
        if (self._blobs["bytes"][named] % sizes).any() or (self._blobs["at"] % ALIGNMENT).any():
            raise RecordingError(f"{self._path}: a column's length is no multiple of its type's")

    def _about(self, at: int) -> About:
        try:
            return decode_json(memoryview(self._data)[at:], About)
        except (msgspec.MsgspecError, UnicodeDecodeError, ExperimentError) as error:
            raise RecordingError(f"{self._path}: what it says about its run can't be read: {error}") from error

    def _column(self, index: int, name: str, blob: int) -> npt.NDArray[Any]:
        """The view of a column; the very one of the step read before where it is the same blob."""
        last = self._last.get(name)
        if last is not None and last[0] == blob:
            return last[1]
        at, size, check = self._blobs[blob].item()
        view = memoryview(self._data)[at : at + size]
        if not self._checked[blob]:
            if zlib.crc32(view) != check:
                raise RecordingError(f"{self._path} is garbled: {name} of step {index} does not fit its checksum")
            self._checked[blob] = 1
        array = np.frombuffer(view, COLUMNS[name])
        self._last[name] = blob, array
        return array


def _table_ids(limits: TableLimits) -> int:
    return limits.max_num_seqs * max(limits.max_model_len, limits.max_blocks)


def _mapped(path: Path) -> mmap.mmap:
    try:
        with path.open("rb") as file:
            return mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
    except OSError as error:
        raise RecordingError(f"{path} can't be read: {error.strerror or error}") from error
    except ValueError as error:  # nothing in it
        raise RecordingError(f"{path} is no file of recorded plans: it is empty") from error


def _writes(columns: Columns, group: str) -> Writes:
    parts = [columns[f"{group}.{name}"] for name in ("rows", "starts", "counts", "values")]
    return Writes(*parts) if len(parts[0]) else NO_WRITES


def _logprobs(columns: Columns) -> Logprobs | None:
    parts = [columns[f"result.logprobs.{name}"] for name in ("counts", "token_ids", "values", "ranks")]
    return Logprobs(*parts) if len(parts[0]) else None


def _admissions(columns: Columns) -> Admissions:
    rows = columns["admitted.rows"]
    if not len(rows):
        return NO_ADMISSIONS
    ragged = [
        Ragged(columns[f"admitted.{name}.offsets"], columns[f"admitted.{name}.values"])
        for name in ("token_ids", "block_ids", "stop_ids")
    ]
    return Admissions(
        rows,
        columns["admitted.serials"],
        _strings(columns["admitted.request_ids.offsets"], columns["admitted.request_ids.utf8"]),
        columns["admitted.num_prompt_tokens"],
        columns["admitted.num_computed_tokens"],
        ragged[0],
        ragged[1],
        columns["admitted.sampling"],
        ragged[2],
    )


def _strings(offsets: npt.NDArray[np.int32], utf8: npt.NDArray[np.uint8]) -> list[str]:
    """Raises ValueError for bytes that are no text."""
    data, ends = utf8.tobytes(), offsets.tolist()
    return [data[begin:end].decode() for begin, end in pairwise(ends)]
