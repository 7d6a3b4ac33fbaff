"""The formats of request files, one literal table: how each is told by content, and read. It does not know tokens.

A file that can't be read at all is an error; a row that is no request is left out under its reason, never silently.
"""

import csv
import io
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Final

import msgspec

from serbench.errors import DatasetError
from serbench.workload.content import read_text
from serbench.workload.json_items import NotJson, json_items
from serbench.workload.rows import OTHER_FORMAT, Row, Rows, TraceRow, Unusable, counted_reasons
from serbench.workload.strangers import known_stranger
from serbench.workload.texts import PROMPT_KEYS, batch_row, prompt_row, text_rows
from serbench.workload.traces import (
    AZURE_COLUMNS,
    BURSTGPT_COLUMNS,
    MOONCAKE_KEYS,
    azure_row,
    burstgpt_row,
    mooncake_row,
)


class JsonFormat(msgspec.Struct, frozen=True):
    """Objects; ``marks``: keys of which the first object has one (``all_of_them``: all)."""

    what: str
    marks: Sequence[str]
    row: Callable[[int, dict[str, Any]], Row]
    all_of_them: bool = True


class CsvFormat(msgspec.Struct, frozen=True):
    """Lines under a header; ``columns``: names that it has among others, in any case and order."""

    what: str
    columns: Sequence[str]
    row: Callable[[int, Mapping[str, str]], Row]


class PlainText(msgspec.Struct, frozen=True):
    """One prompt a line."""

    what: str


Format = JsonFormat | CsvFormat | PlainText

FORMATS: Final[Mapping[str, Format]] = {
    "sharegpt": JsonFormat('ShareGPT JSON ("conversations")', ("conversations",), prompt_row),
    "openai-batch": JsonFormat("OpenAI batch JSON lines", ("custom_id", "body"), batch_row),
    "mooncake": JsonFormat("a Mooncake trace", MOONCAKE_KEYS, mooncake_row),
    "jsonl": JsonFormat('JSON lines with "prompt", "text", "messages" or "turns"', PROMPT_KEYS[1:], prompt_row, False),
    "azure": CsvFormat("an Azure LLM inference trace (CSV)", AZURE_COLUMNS, azure_row),
    "burstgpt": CsvFormat("a BurstGPT trace (CSV)", BURSTGPT_COLUMNS, burstgpt_row),
    "text": PlainText("plain text, one prompt a line"),
}
"""In the order in which they are tried."""

WANTED: Final = (
    'wanted ShareGPT JSON, JSON lines with "prompt", "text", "messages" or "turns", an OpenAI batch, a trace of Azure, '
    "BurstGPT or Mooncake, or plain text"
)

NOT_JSON: Final = "not JSON"

_Numbered = tuple[int, Row | str]
"""A line with its row, or the reason why it has none."""


def find_format(path: Path, text: str) -> str:
    """The name of the format that ``text`` is in.

    Raises:
        DatasetError: none of them, saying what it looks like; or JSON that can't be read.
    """
    if text.lstrip()[0] in "{[":
        return _json_format(path, text)
    header = _header(text)
    for name, form in FORMATS.items():
        if isinstance(form, CsvFormat) and set(form.columns) <= set(header):
            return name
    stranger = known_stranger(path.name, text)
    if stranger is not None:
        raise DatasetError(f"{path}:1: {stranger}; {WANTED} (--dataset-format text takes any text line by line)")
    return "text"


def read_rows(path: Path, form: str | None = None) -> Rows:
    """Read all rows of ``path``, which is in the format of that name, None: in the one that its content shows.

    Raises:
        DatasetError: the file is missing, empty, no UTF-8, of no or of another format, or has no row at all.
    """
    text = read_text(path)
    name = form or find_format(path, text)
    rows: list[Row] = []
    left_out: dict[str, list[int]] = {}
    for line, found in _numbered(path, text, FORMATS[name]):
        if isinstance(found, str):
            left_out.setdefault(found, []).append(line)
        else:
            rows.append(found)
    if not rows and set(left_out) <= {NOT_JSON, OTHER_FORMAT}:
        raise DatasetError(f"{path} has no row of {FORMATS[name].what}: {counted_reasons(left_out) or 'it is empty'}")
    if rows and isinstance(rows[0], TraceRow):
        rows.sort(key=lambda row: row.arrival_ns if isinstance(row, TraceRow) else 0)
    return Rows(name, rows, left_out)


def _numbered(path: Path, text: str, form: Format) -> Iterator[_Numbered]:
    match form:
        case JsonFormat():
            return _json_rows(path, text, form)
        case CsvFormat():
            return _csv_rows(path, text, form)
        case PlainText():
            return ((row.line, row) for row in text_rows(text))


# --- JSON ---------------------------------------------------------------------------------------------------------


def _json_format(path: Path, text: str) -> str:
    """Told by the first object; where its marks have values of other types than they should, by a later one."""
    complaint = None
    for line, item in json_items(path, text):
        if isinstance(item, NotJson):
            complaint = complaint or f"{path}:{line}: not JSON: {item.why}"
            continue
        marked = _marked(item)
        if marked is not None and marked[1]:
            return marked[0]
        complaint = complaint or f"{path}:{line}: {known_stranger(path.name, text, item)}; {WANTED}"
        if marked is None:
            break
    raise DatasetError(complaint or f"{path}: the list is empty; {WANTED}")


def _marked(item: Any) -> tuple[str, bool] | None:
    """The format whose marks the object has, and whether one of them has a value that can be right."""
    for name, form in FORMATS.items():
        if isinstance(form, JsonFormat) and isinstance(item, dict):
            marks = [key in item for key in form.marks]
            if all(marks) if form.all_of_them else any(marks):
                return name, form.all_of_them or any(isinstance(item.get(key), str | list) for key in form.marks)
    return None


def _json_rows(path: Path, text: str, form: JsonFormat) -> Iterator[_Numbered]:
    for line, item in json_items(path, text):
        if isinstance(item, NotJson):
            yield line, NOT_JSON
        elif not isinstance(item, dict):
            yield line, OTHER_FORMAT
        else:
            try:
                yield line, form.row(line, item)
            except Unusable as reason:
                yield line, str(reason)


# --- CSV ----------------------------------------------------------------------------------------------------------


def _header(text: str) -> list[str]:
    first = text.lstrip().partition("\n")[0].rstrip("\r")
    try:
        return [name.strip().lower() for name in next(csv.reader([first]), [])]
    except csv.Error:  # a line that is too long, or has a carriage return within: no header
        return []


def _csv_rows(path: Path, text: str, form: CsvFormat) -> Iterator[_Numbered]:
    reader = csv.reader(io.StringIO(text, newline=""))
    header: list[str] = []
    try:
        for fields in reader:
            if not any(field.strip() for field in fields):
                continue
            if not header:
                header = _checked_header(path, fields, form)
            else:
                yield reader.line_num, _csv_row(reader.line_num, header, fields, form)
    except csv.Error as error:
        raise DatasetError(f"{path}:{reader.line_num}: not CSV: {error}") from None


def _checked_header(path: Path, fields: Sequence[str], form: CsvFormat) -> list[str]:
    header = [field.strip().lower() for field in fields]
    missing = [name for name in form.columns if name not in header]
    if missing:
        raise DatasetError(f"{path}:1: no column {', '.join(missing)}, which {form.what} has")
    return header


def _csv_row(line: int, header: Sequence[str], fields: Sequence[str], form: CsvFormat) -> Row | str:
    if len(fields) != len(header):
        return "of the wrong number of columns"
    try:
        return form.row(line, dict(zip(header, fields, strict=True)))
    except Unusable as reason:
        return str(reason)
