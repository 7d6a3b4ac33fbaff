"""Reads the header of a safetensors file: names, dtypes and shapes, in microseconds. It does not read tensors."""

import json
from pathlib import Path
from typing import Final

from serbench_engine.errors import ModelError

_LONGEST_HEADER: Final = 100_000_000  # as in the safetensors library


def read_shapes(path: Path) -> dict[str, tuple[int, ...]]:
    """Shape of every tensor in ``path``.

    Raises:
        ModelError: no safetensors file, or a truncated one, with the sizes.
    """
    size = path.stat().st_size
    with path.open("rb") as file:
        length = int.from_bytes(file.read(8), "little")
        if size < 8 or not 2 <= length <= min(size - 8, _LONGEST_HEADER):
            raise ModelError(f"{path} is no safetensors file, or a truncated one ({size} bytes)")
        header = file.read(length)
    try:
        entries = json.loads(header)
        tensors = {name: entry for name, entry in entries.items() if name != "__metadata__"}
        shapes = {name: tuple(map(int, entry["shape"])) for name, entry in tensors.items()}
        end = max((int(entry["data_offsets"][1]) for entry in tensors.values()), default=0)
    except (ValueError, KeyError, TypeError, AttributeError, IndexError, RecursionError):
        raise ModelError(f"{path} is no safetensors file: its header is not JSON of the right form") from None
    if 8 + length + end != size:
        raise ModelError(f"{path} has {size} bytes where its header tells of {8 + length + end}; download it again")
    return shapes
