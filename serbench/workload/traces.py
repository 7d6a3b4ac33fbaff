"""Turns one row of an Azure, BurstGPT or Mooncake trace into lengths and an exact time. It does not read files.

Times become whole nanoseconds without passing through a float: .NET's ticks are 100 ns.
"""

import re
from collections.abc import Mapping
from datetime import UTC, datetime, timedelta, timezone
from decimal import Decimal
from typing import Any, Final

from serbench.workload.rows import BLOCK_TOKENS, OTHER_FORMAT, TraceRow, Unusable

AZURE_COLUMNS: Final = ("timestamp", "contexttokens", "generatedtokens")
BURSTGPT_COLUMNS: Final = ("timestamp", "request tokens", "response tokens")
MOONCAKE_KEYS: Final = ("timestamp", "input_length", "output_length")

_STAMP: Final = re.compile(
    r"(\d{4})-(\d\d)-(\d\d)[ T](\d\d):(\d\d):(\d\d)(?:\.(\d{1,9}))?(Z|[+-]\d\d:?\d\d)?", re.ASCII
)
_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_FURTHEST_NS: Final = 10**21
"""Thirty thousand years: beyond it a time is a mistake."""

_LONGEST: Final = 1 << 40
"""Compared with, never reduced by: arithmetic on 1e999999999 raises."""


def azure_row(line: int, columns: Mapping[str, str]) -> TraceRow:
    """A row of Azure's LLM inference traces, whose columns are AZURE_COLUMNS.

    Raises:
        Unusable: a time or length that is none.
    """
    stamp, taken, given = (columns[name] for name in AZURE_COLUMNS)
    return _row(line, stamp_ns(stamp), _number(taken), _number(given))


def burstgpt_row(line: int, columns: Mapping[str, str]) -> TraceRow:
    """A row of BurstGPT, with or without its columns of sessions; times are in s.

    Raises:
        Unusable: a time or length that is none. Failed requests have lengths of 0.
    """
    stamp, taken, given = (columns[name] for name in BURSTGPT_COLUMNS)
    return _row(line, scaled_ns(stamp, 10**9), _number(taken), _number(given))


def mooncake_row(line: int, item: Mapping[str, Any]) -> TraceRow:
    """A row of a Mooncake trace; times are in ms, ``hash_ids`` name blocks of 512 tokens.

    Raises:
        Unusable: a time or length that is none, or names that are no list of numbers or too few for the length.
    """
    if not all(key in item for key in MOONCAKE_KEYS):
        raise Unusable(OTHER_FORMAT)
    stamp, taken, given = (item[name] for name in MOONCAKE_KEYS)
    ids = item.get("hash_ids") or []
    if not isinstance(ids, list) or not all(type(one) is int for one in ids):
        raise Unusable("hash_ids is no list of whole numbers")
    row = _row(line, scaled_ns(stamp, 10**6), _number(taken), _number(given), tuple(ids))
    if ids and len(ids) != -(-row.input_tokens // BLOCK_TOKENS):
        raise Unusable(f"hash_ids does not fit input_length, at {BLOCK_TOKENS} tokens each")
    return row


def stamp_ns(text: str) -> int:
    """``2023-11-16 18:17:03.9799600`` as ns since 1970, UTC unless a zone follows; exact to the last digit.

    Raises:
        Unusable: it is none.
    """
    match = _STAMP.fullmatch(text.strip())
    if match is None:
        raise Unusable("its time is none")
    *date, fraction, zone = match.groups()
    try:
        year, month, day, hour, minute, second = map(int, date)
        moment = datetime(year, month, day, hour, minute, second, tzinfo=_zone(zone))
    except (ValueError, OverflowError):
        raise Unusable("its time is none") from None
    return (moment - _EPOCH) // timedelta(seconds=1) * 10**9 + int((fraction or "").ljust(9, "0"))


def scaled_ns(value: Any, ns: int) -> int:
    """A number of units of ``ns`` each, as whole ns.

    Raises:
        Unusable: it is no number, or no time.
    """
    if isinstance(value, bool) or not isinstance(value, str | int | float):
        raise Unusable("its time is none")
    try:
        number = Decimal(str(value).strip()) * ns
    except ArithmeticError:
        raise Unusable("its time is none") from None
    if not number.is_finite() or not -_FURTHEST_NS < number < _FURTHEST_NS:
        raise Unusable("its time is none")
    return round(number)


def _zone(text: str | None) -> timezone:
    if text in (None, "Z"):
        return UTC
    assert text is not None, "checked above"
    sign = -1 if text[0] == "-" else 1
    return timezone(sign * timedelta(hours=int(text[1:3]), minutes=int(text[-2:])))


def _row(line: int, arrival_ns: int, taken: int, given: int, blocks: tuple[int, ...] = ()) -> TraceRow:
    if taken < 1 or given < 1:
        raise Unusable("a length below 1 token")
    return TraceRow(line, arrival_ns, taken, given, blocks)


def _number(value: Any) -> int:
    """A whole number from CSV or JSON; ``12.0`` is one too."""
    try:
        number = Decimal(str(value).strip())
    except ArithmeticError:
        number = Decimal("NaN")
    if isinstance(value, bool) or not number.is_finite() or not -_LONGEST < number < _LONGEST or number != int(number):
        raise Unusable("a length that is no whole number")
    return int(number)
