"""What a file of requests holds, row by row: texts, or lengths with times. It does not know file formats or tokens."""

from collections.abc import Mapping, Sequence
from typing import Final, TypeAlias

import msgspec

LINES_SHOWN: Final = 5


class TextRow(msgspec.Struct, frozen=True):
    """What is asked, and the answer that the file has for it ("" if none).

    ``output_tokens``: how many tokens the file asks for, None where it doesn't say.
    """

    line: int
    prompt: str
    answer: str = ""
    output_tokens: int | None = None


class TraceRow(msgspec.Struct, frozen=True):
    """A request of which only lengths and the time are known. ``arrival_ns`` is on the trace's own clock.

    ``block_ids``: names of its prompt's blocks of BLOCK_TOKENS tokens; equal names mean equal tokens. Empty where the
    trace does not say.
    """

    line: int
    arrival_ns: int
    input_tokens: int
    output_tokens: int
    block_ids: tuple[int, ...] = ()


BLOCK_TOKENS: Final = 512
"""Tokens of a block that a trace names, as Mooncake's do."""

OTHER_FORMAT: Final = "of another format"
"""Why a row is left out that has not what makes a row of its file's format."""

Row: TypeAlias = TextRow | TraceRow


class Rows(msgspec.Struct, frozen=True):
    """A file's usable rows, all of one kind: texts in the file's order, a trace's by time. ``format``: of FORMATS.

    ``left_out``: the lines of the others, by reason.
    """

    format: str
    rows: Sequence[Row]
    left_out: Mapping[str, Sequence[int]]

    @property
    def is_trace(self) -> bool:
        """Whether its rows have lengths and times in place of texts."""
        return bool(self.rows) and isinstance(self.rows[0], TraceRow)


class Unusable(Exception):
    """A row that is no request; the message is the reason under which it is counted."""


def counted_reasons(left_out: Mapping[str, Sequence[int]]) -> str:
    """``2 prompt is empty (lines 3, 7); 1 not JSON (line 9)``; "" where nothing was left out."""
    return "; ".join(
        f"{len(lines):,} {reason} ({line_numbers(lines, len(lines))})"
        for reason, lines in sorted(left_out.items())
        if lines
    )


def line_numbers(lines: Sequence[int], count: int) -> str:
    """``lines 3, 7 and 12 more``: the first of them, each once, and how many of all ``count`` rows are not on these."""
    shown = sorted(set(lines))[:LINES_SHOWN]
    others = count - sum(line in shown for line in lines)
    more = f" and {others:,} more" if others else ""
    return f"line{'s' if len(shown) + others > 1 else ''} {', '.join(map(str, shown))}{more}"
