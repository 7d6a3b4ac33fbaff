"""Finds a local folder's weights files, whole and in order, whichever format they have.

It does not know what the tensors are called or how they are read.
"""

from pathlib import Path
from typing import Final, Literal

from serbench_engine.errors import ModelError
from serbench_engine.models.config import WeightsSource
from serbench_engine.models.json_file import read_json
from serbench_engine.weights.files import check_file

_Kind = Literal["safetensors", "bin"]

_LAYOUTS: Final[tuple[tuple[_Kind, str, str], ...]] = (
    ("safetensors", "model.safetensors", "*.safetensors"),
    ("bin", "pytorch_model.bin", "pytorch_model*.bin"),
)
"""Kind, the file that holds all tensors (its name and ``.index.json`` lists shards), other names; the first wins."""


def find_weights(folder: Path) -> WeightsSource | None:
    """The weights in ``folder``: safetensors before pytorch_model.bin before GGUF; None where there are none.

    Raises:
        ModelError: a shard that is missing, files of which none is the obvious one, or a Git LFS pointer.
    """
    for kind, whole, others in _LAYOUTS:
        files = _files(folder, whole, others)
        if files:
            return _source(kind, files)
    return gguf_source(_only(sorted(folder.glob("*.gguf")), "name the file itself"))


def gguf_source(path: Path | None) -> WeightsSource | None:
    """A GGUF file as a source; None for None.

    Raises:
        ModelError: it is missing, empty or a Git LFS pointer.
    """
    return _source("gguf", [path]) if path else None


def _files(folder: Path, whole: str, others: str) -> list[Path]:
    index = folder / f"{whole}.index.json"
    if index.is_file():
        return _shards(index)
    if (folder / whole).is_file():
        return [folder / whole]
    found = _only(sorted(folder.glob(others)), f"an index, {index.name}, must list them")
    return [found] if found else []


def _shards(index: Path) -> list[Path]:
    check_file(index)
    weight_map = read_json(index).get("weight_map")
    if not isinstance(weight_map, dict) or not weight_map:
        raise ModelError(f"{index} has no weight_map; it must say which file holds which tensor")
    wrong = next((tensor for tensor, name in weight_map.items() if not isinstance(name, str)), None)
    if wrong is not None:
        raise ModelError(f"{index}: the file of {wrong!r} is {weight_map[wrong]!r}; it must be a file's name")
    names = sorted(set(weight_map.values()))
    missing = [name for name in names if not (index.parent / name).is_file()]
    if missing:
        raise ModelError(
            f"{index.parent} lacks {len(missing)} of {len(names)} shards of its weights, the first is {missing[0]}"
        )
    return [index.parent / name for name in names]


def _only(found: list[Path], otherwise: str) -> Path | None:
    if len(found) > 1:
        names = ", ".join(path.name for path in found[:3]) + (", …" if len(found) > 3 else "")
        raise ModelError(f"{found[0].parent} holds {len(found)} weights files ({names}); {otherwise}")
    return found[0] if found else None


def _source(kind: Literal["safetensors", "bin", "gguf"], files: list[Path]) -> WeightsSource:
    for path in files:
        check_file(path)
    return WeightsSource(kind, tuple(str(path.absolute()) for path in files))
