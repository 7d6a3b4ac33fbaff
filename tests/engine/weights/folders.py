"""Model folders for tests: tiny configurations with weights in every format. It knows no reader."""

import json
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import save_file

from serbench_engine.models.config import ModelConfig
from serbench_engine.models.hf_config import config_from_hf
from serbench_engine.weights.names import expected_shapes

Tensors = dict[str, torch.Tensor]

LLAMA: dict[str, Any] = {
    "architectures": ["LlamaForCausalLM"],
    "vocab_size": 32,
    "hidden_size": 16,
    "intermediate_size": 24,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "max_position_embeddings": 64,
}
OPT: dict[str, Any] = {
    "architectures": ["OPTForCausalLM"],
    "vocab_size": 32,
    "hidden_size": 16,
    "ffn_dim": 24,
    "num_hidden_layers": 2,
    "num_attention_heads": 2,
    "max_position_embeddings": 64,
}


def random_tensors(raw: dict[str, Any]) -> Tensors:
    """All that a checkpoint of the configuration must hold."""
    generator = torch.Generator().manual_seed(0)
    shapes = expected_shapes(config_from_hf(raw))
    return {name: torch.randn(shape, generator=generator) for name, shape in shapes.items()}


def write_config(folder: Path, raw: dict[str, Any]) -> ModelConfig:
    folder.mkdir(exist_ok=True)
    (folder / "config.json").write_text(json.dumps(raw, indent=1))
    return config_from_hf(raw)


def write_safetensors(folder: Path, tensors: Tensors, shards: int = 1) -> None:
    _write(folder, tensors, shards, "model", "safetensors")


def write_bin(folder: Path, tensors: Tensors, shards: int = 1) -> None:
    _write(folder, tensors, shards, "pytorch_model", "bin")


def _write(folder: Path, tensors: Tensors, shards: int, stem: str, kind: str) -> None:
    folder.mkdir(exist_ok=True)
    names = list(tensors)
    weight_map: dict[str, str] = {}
    for i in range(shards):
        file = f"{stem}.{kind}" if shards == 1 else f"{stem}-{i + 1:05}-of-{shards:05}.{kind}"
        part = {name: tensors[name] for name in names[i::shards]}
        weight_map |= dict.fromkeys(part, file)
        if kind == "bin":
            torch.save(part, folder / file)
        else:
            save_file(part, folder / file)
    if shards > 1:
        (folder / f"{stem}.{kind}.index.json").write_text(json.dumps({"weight_map": weight_map}))
