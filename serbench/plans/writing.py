"""Writes recorded plans to a file, step by step. It does not know where they come from.

What a column holds is looked up among what was stored last for any column: in a steady decode the batch stays, and the
ids a plan tells are those of the result before.
"""

import zlib
from typing import BinaryIO, Final

import msgspec
import numpy as np

from serbench.plans.layout import (
    ALIGNMENT,
    BLOB_DTYPE,
    COLUMNS,
    FIRST_BLOB,
    HEAD,
    HEAD_CHECK,
    MAGIC,
    STEP_DTYPE,
    VERSION,
    About,
    Columns,
)
from serbench_codecs.plan import Admissions, Ragged, StepPlan, StepResult
from serbench_codecs.table import TableLimits

_NAMES: Final = tuple(COLUMNS)
EMPTY_BLOB: Final = 0


class PlansWriter:
    """Appends steps to ``file``, which is whole only after ``finish``."""

    def __init__(self, file: BinaryIO, limits: TableLimits) -> None:
        self._file = file
        self._limits = limits
        self._blobs: list[tuple[int, int, int]] = [(FIRST_BLOB, 0, 0)]
        self._steps: list[tuple[int, int, list[int]]] = []
        self._last: dict[str, tuple[bytes, int]] = {}  # by column: what it held last, and in which blob
        self._end = FIRST_BLOB
        file.write(bytes(FIRST_BLOB))

    @property
    def num_steps(self) -> int:
        return len(self._steps)

    def add(self, plan: StepPlan, result: StepResult) -> None:
        """Append a step: the plan, and the result that answered it."""
        columns = columns_of(plan, result)
        known = dict(self._last.values())
        blobs = []
        for name in _NAMES:
            column = columns.get(name)
            content = b"" if column is None else column.astype(COLUMNS[name], copy=False).tobytes()
            blob = known.get(content) if content else EMPTY_BLOB
            if blob is None:
                blob = known[content] = self._store(content)
            if content:
                self._last[name] = content, blob
            blobs.append(blob)
        self._steps.append((plan.step, plan.epoch, blobs))

    def finish(self, about: About) -> int:
        """Write the tables, then the head; how many bytes the file has."""
        blobs = np.array(self._blobs, dtype=BLOB_DTYPE).tobytes()
        steps = np.array(self._steps, dtype=STEP_DTYPE).tobytes()
        sections = (blobs, steps, msgspec.json.encode(about))
        places = np.cumsum([self._end, *map(len, sections)]).tolist()
        check = 0
        for section in sections:
            self._file.write(section)
            check = zlib.crc32(section, check)
        limits = msgspec.structs.astuple(self._limits)
        counts = len(COLUMNS), len(self._steps), len(self._blobs)
        head = HEAD.pack(MAGIC, VERSION, *counts, *places[:3], *limits, check)
        self._file.seek(0)
        self._file.write(head + HEAD_CHECK.pack(zlib.crc32(head)))
        return int(places[3])

    def _store(self, content: bytes) -> int:
        padding = -len(content) % ALIGNMENT
        self._file.write(content + bytes(padding))
        self._blobs.append((self._end, len(content), zlib.crc32(content)))
        self._end += len(content) + padding
        return len(self._blobs) - 1


def columns_of(plan: StepPlan, result: StepResult) -> Columns:
    """The columns of a step by name; those that are empty may be left out."""
    columns: Columns = {
        "freed": plan.freed,
        "batch_rows": plan.batch_rows,
        "batch_counts": plan.batch_counts,
        "result.token_ids": result.token_ids,
    }
    if len(plan.admitted):
        columns |= _admitted_columns(plan.admitted)
    for group, writes in (("blocks", plan.blocks), ("tokens", plan.tokens)):
        for name in ("rows", "starts", "counts", "values"):
            columns[f"{group}.{name}"] = getattr(writes, name)
    if result.logprobs is not None:
        for name in ("counts", "token_ids", "values", "ranks"):
            columns[f"result.logprobs.{name}"] = getattr(result.logprobs, name)
    return columns


def _admitted_columns(admitted: Admissions) -> Columns:
    names = [one.encode() for one in admitted.request_ids]
    columns: Columns = {
        "request_ids.offsets": np.cumsum([0, *map(len, names)]).astype(np.int32),
        "request_ids.utf8": np.frombuffer(b"".join(names), dtype=np.uint8),
        "sampling": admitted.sampling,
    }
    for name in ("rows", "serials", "num_prompt_tokens", "num_computed_tokens"):
        columns[name] = getattr(admitted, name)
    for name in ("token_ids", "block_ids", "stop_ids"):
        ragged: Ragged = getattr(admitted, name)
        columns[f"{name}.offsets"], columns[f"{name}.values"] = ragged.offsets, ragged.values
    return {f"admitted.{name}": column for name, column in columns.items()}
