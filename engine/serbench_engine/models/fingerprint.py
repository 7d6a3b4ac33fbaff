"""Tells models' weights apart by a short text: runs with different ones are never compared.

It does not know where weights come from.
"""

import hashlib
from pathlib import Path

import msgspec

from serbench_engine.models.config import ModelConfig, SimConfig, WeightsSource
from serbench_engine.weights.files import content_fingerprint


def config_fingerprint(kind: str, config: ModelConfig | SimConfig) -> str:
    """Of weights that follow from the configuration alone: dummy and simulated ones."""
    return f"{kind}-{_digest(config)}"


def weights_fingerprint(source: WeightsSource, config: ModelConfig) -> str:
    """Of weights in files: their content (sampled), and the configuration that they are used with."""
    return f"{source.kind}-{content_fingerprint(map(Path, source.files))}-{_digest(config)}"


def _digest(config: ModelConfig | SimConfig) -> str:
    # What a model was published in changes nothing that it computes.
    if isinstance(config, ModelConfig):
        config = msgspec.structs.replace(config, dtype="float32")
    return hashlib.blake2b(msgspec.json.encode(config), digest_size=8).hexdigest()
