"""Reads a model's tensors one after the other, under the transformers library's names, from any format.

It does not know where the files came from, nor where in a model the tensors go.
"""

import pickle
import warnings
import zipfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Final

import torch
from safetensors import SafetensorError, safe_open

from serbench_engine.errors import ModelError
from serbench_engine.models.config import ModelConfig, WeightsSource
from serbench_engine.weights.files import check_file
from serbench_engine.weights.names import full_name

Tensors = Iterator[tuple[str, torch.Tensor]]


def iterate_weights(source: WeightsSource, config: ModelConfig) -> Tensors:
    """Every tensor of ``source`` with its name; nothing for ``dummy`` and ``sim``.

    Tensors may alias their file: copy them before the iterator goes on. Names of checkpoints that were saved from the
    bare decoder get the leading ``model.`` that they lack.

    Raises:
        ModelError: a file that is missing or none of its kind.
    """
    read = _READERS.get(source.kind)
    if read is None:
        return
    for file in source.files:
        check_file(Path(file))
        for name, tensor in read(Path(file), config):
            yield full_name(name, config), tensor


def _safetensors(path: Path, _config: ModelConfig) -> Tensors:
    try:
        with safe_open(path, framework="pt", device="cpu") as file:
            for name in file.keys():  # noqa: SIM118 - it is no mapping
                yield name, file.get_tensor(name)
    except SafetensorError as error:
        raise ModelError(f"{path} is no safetensors file, or a truncated one: {error}") from None


def _bin(path: Path, _config: ModelConfig) -> Tensors:
    try:
        with warnings.catch_warnings(action="ignore"):  # about bytes that turn out to be no pickle
            # Files from before torch 1.6 are no archives and can't be mapped.
            tensors = torch.load(path, map_location="cpu", weights_only=True, mmap=zipfile.is_zipfile(path))
    except Exception as error:  # unpickling damaged bytes may raise anything
        reason = _reason(error)
        raise ModelError(
            f"{path} can't be read as PyTorch weights: it is damaged, or holds more than tensors{reason}"
        ) from None
    if not isinstance(tensors, dict):
        raise ModelError(f"{path} holds a {type(tensors).__name__}; it must be a dictionary of tensors")
    for name, tensor in tensors.items():
        if not isinstance(tensor, torch.Tensor):
            raise ModelError(f"{path}: {name} is a {type(tensor).__name__}; it must be a tensor")
        yield name, tensor


def _reason(error: Exception) -> str:
    """What torch found, without its advice: to run whatever the file says."""
    said = str(error)
    if isinstance(error, pickle.UnpicklingError):
        said = said.partition("WeightsUnpickler error: ")[2]
    first = said.strip().partition("\n")[0].partition(". ")[0].rstrip(". ")
    return f" ({first})" if " " in first and first.isprintable() else ""


def _gguf(path: Path, config: ModelConfig) -> Tensors:
    # Imported here: most models need neither.
    from serbench_engine.weights.gguf_file import GGUFModel

    for name, array in GGUFModel(path).tensors(config):
        yield name, torch.from_numpy(array)


_READERS: Final[dict[str, Callable[[Path, ModelConfig], Tensors]]] = {
    "safetensors": _safetensors,
    "bin": _bin,
    "gguf": _gguf,
}
