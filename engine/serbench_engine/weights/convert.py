"""Makes a model folder (safetensors, configuration, tokenizer) of a GGUF file, once, in the user's cache.

It does not know which file that is (catalogue.py) and imports no torch.
"""

import json
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from serbench_engine.models.hf_config import config_from_hf
from serbench_engine.weights.cache import made_once
from serbench_engine.weights.files import content_fingerprint

if TYPE_CHECKING:
    from serbench_engine.weights.gguf_file import GGUFModel

_FORMAT: Final = 1  # raise it when what is written changes: older folders are then left alone


def converted_folder(source: Path, tell: Callable[[str], None]) -> Path:
    """The folder made of the GGUF file ``source``; made now if it isn't there, which ``tell`` is told before.

    Raises:
        ModelError: no GGUF file, one of another architecture, or a cache that can't be written.
    """

    def fill(folder: Path) -> None:
        tell(f"converting {source.name}, which is done once and takes some seconds")
        _convert(source, folder)

    return made_once(f"{source.stem}-{content_fingerprint([source])}-v{_FORMAT}", fill)


def tokenizer_folder_of(model: "GGUFModel") -> Path | None:
    """The folder made of the tokenizer within a GGUF file, once; None if it is of a kind that can't be read."""
    from serbench_engine.text.from_gguf import has_tokenizer, write_tokenizer

    if not has_tokenizer(model.metadata):
        return None
    name = f"{model.path.stem}-{content_fingerprint([model.path])}-tokenizer-v{_FORMAT}"
    return made_once(name, lambda folder: write_tokenizer(model.metadata, folder))


def _convert(source: Path, folder: Path) -> None:
    # Imported here: when the folder is there already, none of it is needed.
    from safetensors.numpy import save_file

    from serbench_engine.text.from_gguf import has_tokenizer, write_tokenizer
    from serbench_engine.weights.gguf_file import GGUFModel

    model = GGUFModel(source)
    raw = model.hf_config()
    save_file(dict(model.tensors(config_from_hf(raw))), folder / "model.safetensors", metadata={"format": "pt"})
    if has_tokenizer(model.metadata):
        write_tokenizer(model.metadata, folder)
    _write_json(folder / "config.json", raw)


def _write_json(path: Path, value: dict[str, Any]) -> None:
    path.write_text(json.dumps(value, indent=2) + "\n", encoding="utf-8")
