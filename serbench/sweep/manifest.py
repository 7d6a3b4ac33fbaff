"""The format of a sweep's manifest, ``serbench/sweep/1``: what is swept, and what became of it besides the figures.

It does not know where it is kept (folder.py). The figures are in the points' runs, one file each.
"""

import hashlib
from collections.abc import Sequence
from typing import Final

import msgspec

from serbench.documents import decode_json
from serbench.environment import Environment
from serbench.errors import ExperimentError, ResultsError
from serbench.sweep.grid import Point

SCHEMA: Final = "serbench/sweep/1"


class Failure(msgspec.Struct, frozen=True, kw_only=True):
    """Why a point was given up, how many of its repeats were stored by then, and when (UTC, ISO 8601)."""

    point: str
    reason: str
    repeats: int
    at: str


class Sitting(msgspec.Struct, frozen=True, kw_only=True):
    """One start of the command: when (UTC, ISO 8601), and which passes (by order) earlier ones had stored."""

    begun: str
    already: list[int]


class Manifest(msgspec.Struct, frozen=True, kw_only=True):
    """A sweep. ``digest`` tells what is swept from all else; ``stay``: repeats made each time an engine is open."""

    schema: str = SCHEMA
    id: str
    created: str
    digest: str
    stay: int
    environment: Environment
    points: list[Point]
    failures: list[Failure] = []
    sittings: list[Sitting] = []


class _SchemaOnly(msgspec.Struct):
    schema: str | None = None


def digest_of(points: Sequence[Point], stay: int) -> str:
    """Hex that is the same for the same grid with the same options."""
    return hashlib.blake2b(msgspec.json.encode((list(points), stay)), digest_size=8).hexdigest()


def encode_manifest(manifest: Manifest) -> bytes:
    """Indented JSON with a final newline."""
    return msgspec.json.format(msgspec.json.encode(manifest), indent=2) + b"\n"


def decode_manifest(data: bytes, name: str) -> Manifest:
    """Read a manifest; ``name`` is what the message calls it.

    Raises:
        ResultsError: no JSON, or of another schema.
    """
    try:
        schema = decode_json(data, _SchemaOnly).schema
        if schema != SCHEMA:
            raise ResultsError(f"{name}: its schema is {schema!r}, this serbench reads {SCHEMA!r}")
        return decode_json(data, Manifest)
    except (msgspec.DecodeError, UnicodeDecodeError, ExperimentError) as error:
        raise ResultsError(f"{name} is no manifest of a sweep: {error}") from error
