"""The layout of a file of recorded plans, version 1, as docs/plans-format.md has it. It neither reads nor writes one.

Little-endian throughout. A head; the contents ("blobs"), each distinct column once; a table of the blobs; a table of
the steps, which name a blob for each of their columns; and a text about the run.
"""

import struct
from typing import Any, Final

import msgspec
import numpy as np
import numpy.typing as npt

from serbench.errors import SerbenchError
from serbench.experiment import Experiment
from serbench_codecs.plan import SAMPLING_DTYPE

MAGIC: Final = b"serplans"
VERSION: Final = 1
ALIGNMENT: Final = 8

INT32: Final = np.dtype("<i4")
INT64: Final = np.dtype("<i8")
FLOAT32: Final = np.dtype("<f4")
UTF8: Final = np.dtype("u1")

COLUMNS: Final[dict[str, np.dtype[Any]]] = {
    "freed": INT32,
    "admitted.rows": INT32,
    "admitted.serials": INT64,
    "admitted.request_ids.offsets": INT32,
    "admitted.request_ids.utf8": UTF8,
    "admitted.num_prompt_tokens": INT32,
    "admitted.num_computed_tokens": INT32,
    "admitted.token_ids.offsets": INT32,
    "admitted.token_ids.values": INT32,
    "admitted.block_ids.offsets": INT32,
    "admitted.block_ids.values": INT32,
    "admitted.sampling": SAMPLING_DTYPE,
    "admitted.stop_ids.offsets": INT32,
    "admitted.stop_ids.values": INT32,
    "blocks.rows": INT32,
    "blocks.starts": INT32,
    "blocks.counts": INT32,
    "blocks.values": INT32,
    "tokens.rows": INT32,
    "tokens.starts": INT32,
    "tokens.counts": INT32,
    "tokens.values": INT32,
    "batch_rows": INT32,
    "batch_counts": INT32,
    "result.token_ids": INT32,
    "result.logprobs.counts": INT32,
    "result.logprobs.token_ids": INT32,
    "result.logprobs.values": FLOAT32,
    "result.logprobs.ranks": INT32,
}
"""Columns of a step in the order of the steps table, and their types: StepPlan's and StepResult's own."""

HEAD: Final = struct.Struct("<8sII5Q5II")
"""magic, version, columns, steps, blobs, at: blobs table, steps table, about; the five table limits; their checksum."""

HEAD_CHECK: Final = struct.Struct("<I")
HEAD_BYTES: Final = HEAD.size + HEAD_CHECK.size
FIRST_BLOB: Final = 128

BLOB_DTYPE: Final = np.dtype([("at", "<u8"), ("bytes", "<u4"), ("check", "<u4")])
"""Where a blob lies, and its CRC-32. Blob 0 is the empty one."""

STEP_DTYPE: Final = np.dtype([("step", "<i8"), ("epoch", "<u4"), ("columns", "<u4", (len(COLUMNS),))])
"""A step: its numbers, and the blob of each of its columns."""

Columns = dict[str, npt.NDArray[Any]]


class RecordingError(SerbenchError):
    """A file of recorded plans that can't be read, or holds what no run could have made."""


class About(msgspec.Struct, frozen=True, kw_only=True):
    """What was recorded, for people and reports: nothing here is needed to replay it.

    ``created`` is UTC, ISO 8601; tokens are those really taken and produced.
    """

    serbench: str
    created: str
    model: str
    fingerprint: str
    requests: int
    input_tokens: int
    output_tokens: int
    outputs_digest: str
    spec: Experiment
