"""Resolves a local folder or GGUF file to configuration, weights and tokenizer.

It does not know names, the hub or what is built in.
"""

import contextlib
from collections.abc import Iterator
from pathlib import Path
from typing import Literal, TypeAlias

from serbench_engine.errors import ModelError
from serbench_engine.models.config import ModelConfig, ResolvedModel, WeightsSource
from serbench_engine.models.fingerprint import config_fingerprint, weights_fingerprint
from serbench_engine.models.hf_config import config_from_hf, with_eos_ids
from serbench_engine.models.json_file import read_json
from serbench_engine.text.tokenizer import has_tokenizer
from serbench_engine.weights.files import check_file
from serbench_engine.weights.fit import check_fit
from serbench_engine.weights.folder import find_weights, gguf_source

WeightsChoice: TypeAlias = Literal["auto", "real", "dummy"]


def is_model_folder(path: Path) -> bool:
    """Whether ``path`` is a folder that is meant as a model."""
    return path.is_dir() and ((path / "config.json").is_file() or any(path.glob("*.gguf")))


def resolve_folder(name: str, folder: Path, weights: WeightsChoice) -> ResolvedModel:
    """The model in ``folder``: ``config.json`` with weights, or a GGUF file.

    Raises:
        ModelError: no configuration, a broken one, weights that do not fit it, or none where real ones are asked for.
    """
    if not (folder / "config.json").is_file():
        return _folder_without_config(name, folder, weights)
    config = _read_config(folder)
    source = find_weights(folder) if weights != "dummy" else WeightsSource("dummy")
    if source is None and weights == "real":
        raise ModelError(f"{folder} holds no weights; it needs safetensors files, pytorch_model.bin or a GGUF file")
    notes = () if source else (f"no weights in {folder}: dummy weights",)
    source = source or WeightsSource("dummy")
    check_fit(source, config, str(folder))
    tokenizer = str(folder.absolute()) if has_tokenizer(folder) else None
    return _resolved(name, config, source, tokenizer, notes)


def resolve_gguf(name: str, path: Path, weights: WeightsChoice) -> ResolvedModel:
    """The model in a GGUF file, whose tokenizer is the folder's where it has one, else the file's own.

    Raises:
        ModelError: no GGUF file, or one that isn't of the Llama architecture.
    """
    # Imported here: most models need neither.
    from serbench_engine.weights.convert import tokenizer_folder_of
    from serbench_engine.weights.gguf_file import GGUFModel

    check_file(path)
    model = GGUFModel(path)
    with _named(path):
        config = config_from_hf(model.hf_config())
    source = gguf_source(path) if weights != "dummy" else None
    tokenizer = path.parent if has_tokenizer(path.parent) else tokenizer_folder_of(model)
    return _resolved(
        name, config, source or WeightsSource("dummy"), str(tokenizer.absolute()) if tokenizer else None, ()
    )


def _folder_without_config(name: str, folder: Path, weights: WeightsChoice) -> ResolvedModel:
    source = find_weights(folder)
    if source is not None and source.kind == "gguf":
        return resolve_gguf(name, Path(source.files[0]), weights)
    state = "has no config.json" if any(folder.iterdir()) else "is empty"
    raise ModelError(f"{folder} {state}; a model folder holds config.json and weights, or a GGUF file")


def _read_config(folder: Path) -> ModelConfig:
    path = folder / "config.json"
    check_file(path)
    raw = read_json(path)
    with _named(path):
        config = config_from_hf(raw)
    generation = folder / "generation_config.json"
    if generation.is_file():
        # Chat models often list their end-of-turn ids only here.
        more = read_json(generation).get("eos_token_id")
        with _named(generation):
            config = with_eos_ids(config, more)
    return config


@contextlib.contextmanager
def _named(path: Path) -> Iterator[None]:
    """Say in which file the error is."""
    try:
        yield
    except ModelError as error:
        raise ModelError(f"{path}: {error}") from None


def _resolved(
    name: str, config: ModelConfig, source: WeightsSource, tokenizer: str | None, notes: tuple[str, ...]
) -> ResolvedModel:
    real = source.kind != "dummy"
    fingerprint = weights_fingerprint(source, config) if real else config_fingerprint("dummy", config)
    return ResolvedModel(name, config, source, fingerprint, tokenizer, notes)
