"""Turns a model's name into facts: configuration, weights, tokenizer. The one place that knows where models come from.

It does not know how weights are read or models built, and imports neither torch nor transformers.
"""

import hashlib
from typing import Literal, TypeAlias

import msgspec

from serbench_engine.errors import ModelError
from serbench_engine.models.config import ModelConfig, ResolvedModel, SimConfig, WeightsSource
from serbench_engine.models.known import KNOWN_MODELS, KnownModel, find_known, nearest_names, num_parameters
from serbench_engine.models.simulated_spec import is_simulated, parse_simulated

__all__ = ["KNOWN_MODELS", "KnownModel", "WeightsChoice", "num_parameters", "resolve_model"]

WeightsChoice: TypeAlias = Literal["auto", "real", "dummy"]


def resolve_model(name: str, *, weights: WeightsChoice = "auto", tokenizer: str | None = None) -> ResolvedModel:
    """Find the model of that name: ``sim…``, a known one, a folder, a GGUF file, or any ``org/name``.

    ``weights``: real ones, dummy ones, or real ones where there are any. ``tokenizer`` is a folder that takes the place
    of the model's own.

    Raises:
        ModelError: no such model, no real weights where they are asked for, or files that are none; one line.
    """
    if is_simulated(name):
        return _simulated(name, tokenizer)
    known, notes = find_known(name)
    if known is None or known.config is None:
        near = nearest_names(name)
        raise ModelError(f"no model {name!r}" + (f"; did you mean {' or '.join(near)}?" if near else ""))
    if weights == "real":
        raise ModelError(f"no weights for {known.name} here")
    if weights == "auto":
        notes = (*notes, f"no weights for {known.name} here: dummy weights")
    return ResolvedModel(
        name=known.name,
        config=known.config,
        weights=WeightsSource("dummy"),
        fingerprint=_fingerprint("dummy", known.config),
        tokenizer=tokenizer,
        notes=notes,
    )


def _simulated(name: str, tokenizer: str | None) -> ResolvedModel:
    config = parse_simulated(name)
    return ResolvedModel(name, config, WeightsSource("sim"), _fingerprint("sim", config), tokenizer)


def _fingerprint(kind: str, config: ModelConfig | SimConfig) -> str:
    return f"{kind}-{hashlib.blake2b(msgspec.json.encode(config), digest_size=8).hexdigest()}"
