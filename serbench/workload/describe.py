"""Says what a file of requests holds: lengths, rate, shared prefixes, what is left out. It shows and serves nothing.

The document, ``serbench/workload/1``, is made anew from the file whenever it is asked for, and stored nowhere.
"""

from collections.abc import Callable, Hashable, Sequence
from pathlib import Path
from typing import Final

import msgspec
import numpy as np
import numpy.typing as npt

from serbench.workload.base import Text
from serbench.workload.dataset import file_digest
from serbench.workload.formats import read_rows
from serbench.workload.left_out import LeftOut
from serbench.workload.rows import BLOCK_TOKENS, LINES_SHOWN, Row, Rows, TextRow, TraceRow

SCHEMA: Final = "serbench/workload/1"
SLICES: Final = 10
TEXT_BLOCK_TOKENS: Final = 16

Int64Array = npt.NDArray[np.int64]


class Bin(msgspec.Struct, frozen=True):
    """How many rows are in ``low`` … ``high``, both included (tokens), or from ``low`` to below ``high`` (s)."""

    low: float
    high: float
    rows: int


class LengthSummary(msgspec.Struct, frozen=True):
    """Lengths in tokens over ``rows`` rows; bins by powers of 2."""

    rows: int
    total: int
    min: int
    p50: float
    mean: float
    p99: float
    max: int
    histogram: list[Bin]


class Rate(msgspec.Struct, frozen=True):
    """Requests over a trace's time; ``peak_per_s`` is that of the fullest of the slices."""

    span_s: float
    mean_per_s: float
    peak_per_s: float
    slices: list[Bin]


class SharedPrefix(msgspec.Struct, frozen=True):
    """The share of all prompt tokens that a prefix cache without end, with such blocks, would have by then."""

    block_tokens: int
    share: float


class LeftOutRows(msgspec.Struct, frozen=True):
    """Rows that can't be used, for one reason; the first of their lines."""

    reason: str
    rows: int
    lines: list[int]


class Description(msgspec.Struct, frozen=True, kw_only=True):
    """A file. ``tokens``: what lengths are in: tokens of what was asked for, or bytes; a trace's are its own.

    ``output`` is over the rows that say it, ``rate`` None where the file has no times.
    """

    schema: str = SCHEMA
    path: str
    format: str
    digest: str
    tokens: str
    usable: int
    left_out: list[LeftOutRows]
    input: LengthSummary | None
    output: LengthSummary | None
    rate: Rate | None
    shared_prefix: SharedPrefix | None


def describe(
    path: Path,
    text: Text,
    tokens: str,
    *,
    form: str | None = None,
    max_model_len: int | None = None,
    strict: bool = False,
) -> Description:
    """Look at every row; those over ``max_model_len``, if it is given, are left out.

    Raises:
        DatasetError: the file can't be read, or is ``strict`` and has rows that can't be used.
        ExperimentError: it has none that can be.
    """
    found = read_rows(path, form)
    left_out = LeftOut(str(path), found.left_out, strict=strict, max_model_len=max_model_len or 0)
    measured = []
    for i, row in enumerate(found.rows):
        blocks, taken, given = _measured(row, text)
        if max_model_len is not None and taken + (given or 1) > max_model_len:
            left_out.over_limit(i, row.line)
        else:
            measured.append((row, blocks, taken, given))
    left_out.check(usable=len(measured))
    return Description(
        path=str(path),
        format=found.format,
        digest=file_digest(str(path)),
        tokens="tokens, the trace's own" if found.is_trace else tokens,
        usable=len(measured),
        left_out=[
            LeftOutRows(reason, len(lines), sorted(lines)[:LINES_SHOWN])
            for reason, lines in sorted(left_out.by_reason().items())
        ],
        input=_summary([taken for _, _, taken, _ in measured]),
        output=_summary([given for *_, given in measured if given is not None]),
        rate=_rate([row.arrival_ns for row, *_ in measured if isinstance(row, TraceRow)]),
        shared_prefix=_shared(found, [blocks for _, blocks, *_ in measured], [taken for _, _, taken, _ in measured]),
    )


# --- one row ------------------------------------------------------------------------------------------------------


def _measured(row: Row, text: Text) -> tuple[Sequence[Hashable], int, int | None]:
    """Names of the prompt's whole blocks, its tokens, and those of the output where the row says it."""
    if isinstance(row, TraceRow):
        return row.block_ids[: row.input_tokens // BLOCK_TOKENS], row.input_tokens, row.output_tokens
    ids = np.asarray(text.encode(row.prompt), dtype=np.int32)
    whole = len(ids) // TEXT_BLOCK_TOKENS
    blocks = [block.tobytes() for block in ids[: whole * TEXT_BLOCK_TOKENS].reshape(whole, TEXT_BLOCK_TOKENS)]
    return blocks, len(ids), _output_tokens(row, text.answer_length)


def _output_tokens(row: TextRow, length_of: Callable[[str], int]) -> int | None:
    if row.output_tokens is not None:
        return row.output_tokens
    return max(1, length_of(row.answer)) if row.answer.strip() else None


# --- all rows -----------------------------------------------------------------------------------------------------


def _summary(lengths: Sequence[int]) -> LengthSummary | None:
    if not lengths:
        return None
    values: Int64Array = np.array(lengths, dtype=np.int64)
    p50, p99 = np.percentile(values, (50, 99))
    return LengthSummary(
        rows=len(values),
        total=int(values.sum()),
        min=int(values.min()),
        p50=float(p50),
        mean=float(values.mean()),
        p99=float(p99),
        max=int(values.max()),
        histogram=_by_powers(values),
    )


def _by_powers(values: Int64Array) -> list[Bin]:
    powers = np.array([max(0, int(value).bit_length() - 1) for value in values])
    bins = []
    for power in range(int(powers.min()), int(powers.max()) + 1):
        bins.append(Bin(2**power, 2 ** (power + 1) - 1, int((powers == power).sum())))
    return bins


def _rate(arrivals_ns: Sequence[int]) -> Rate | None:
    if len(arrivals_ns) < 2 or min(arrivals_ns) == max(arrivals_ns):
        return None
    first = min(arrivals_ns)  # times may be further apart than int64 has ns
    since_s = np.array([(ns - first) / 1e9 for ns in arrivals_ns], dtype=np.float64)
    span_s = float(since_s.max())
    counts, edges = np.histogram(since_s, bins=SLICES, range=(0.0, span_s))
    slices = [
        Bin(low, high, count)
        for low, high, count in zip(edges[:-1].tolist(), edges[1:].tolist(), counts.tolist(), strict=True)
    ]
    return Rate(span_s, (len(since_s) - 1) / span_s, max(counts.tolist()) / (span_s / SLICES), slices)


def _shared(found: Rows, blocks: Sequence[Sequence[Hashable]], lengths: Sequence[int]) -> SharedPrefix | None:
    """None for traces that do not name their blocks."""
    if found.is_trace and not any(blocks):
        return None
    size = BLOCK_TOKENS if found.is_trace else TEXT_BLOCK_TOKENS
    known: dict[tuple[int, Hashable], int] = {}  # (the node before, a block's name) → the node that both lead to
    hits = 0
    for prompt in blocks:
        node, hit = 0, True
        for name in prompt:
            hit = hit and (node, name) in known
            hits += hit
            node = known.setdefault((node, name), len(known) + 1)
    return SharedPrefix(size, hits * size / sum(lengths)) if lengths else None
