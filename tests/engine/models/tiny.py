"""Tiny random models made by the transformers library's own classes: the reference for ours.

Their weights are drawn at a standard deviation at which every token of a prompt matters; biases and norms are
random too.
"""

from collections.abc import Callable
from typing import Any, Final

import torch
from torch import Tensor
from transformers import (
    LlamaConfig,
    MistralConfig,
    OPTConfig,
    PretrainedConfig,
    PreTrainedModel,
    Qwen2Config,
    Qwen3Config,
)
from transformers.models.auto.modeling_auto import AutoModelForCausalLM

from serbench_engine.models.config import ModelConfig
from serbench_engine.models.hf_config import config_from_hf

VOCAB: Final = 131
LENGTH: Final = 128
STD: Final = 0.25


def _opt(**changes: Any) -> OPTConfig:
    sizes: dict[str, Any] = {"hidden_size": 48, "ffn_dim": 96, "num_hidden_layers": 3, "num_attention_heads": 4}
    return OPTConfig(vocab_size=VOCAB, max_position_embeddings=LENGTH, **sizes | changes)


def _llama(kind: Callable[..., PretrainedConfig] = LlamaConfig, **changes: Any) -> PretrainedConfig:
    sizes: dict[str, Any] = {
        "hidden_size": 48,
        "intermediate_size": 80,
        "num_hidden_layers": 3,
        "num_attention_heads": 4,
        "num_key_value_heads": 2,
    }
    return kind(vocab_size=VOCAB, max_position_embeddings=LENGTH, bos_token_id=1, eos_token_id=2, **sizes | changes)


def _rope(kind: str, **parameters: Any) -> PretrainedConfig:
    return _llama(rope_parameters={"rope_type": kind, "rope_theta": 100.0, **parameters})


TINY: Final[dict[str, Callable[[], PretrainedConfig]]] = {
    "opt": _opt,
    "opt-post-norm": lambda: _opt(do_layer_norm_before=False, word_embed_proj_dim=24),
    "opt-no-bias": lambda: _opt(enable_bias=False, activation_function="gelu", tie_word_embeddings=False),
    "opt-no-final-norm": lambda: _opt(_remove_final_layer_norm=True),
    "llama": _llama,
    "llama-tied-biased": lambda: _llama(tie_word_embeddings=True, attention_bias=True, mlp_bias=True),
    "llama-one-key-head": lambda: _llama(num_key_value_heads=1, rms_norm_eps=1e-3),
    "llama-linear": lambda: _rope("linear", factor=4.0),
    "llama-dynamic": lambda: _rope("dynamic", factor=2.0),
    "llama-llama3": lambda: _rope(
        "llama3", factor=8.0, low_freq_factor=1.0, high_freq_factor=4.0, original_max_position_embeddings=32
    ),
    "llama-yarn": lambda: _rope("yarn", factor=4.0, original_max_position_embeddings=32),
    "llama-yarn-more": lambda: _rope(
        "yarn",
        factor=4.0,
        original_max_position_embeddings=32,
        beta_fast=2.0,
        beta_slow=0.5,
        truncate=False,
        mscale=0.7,
        mscale_all_dim=1.0,
    ),
    "llama-longrope": lambda: _rope(
        "longrope",
        short_factor=[1.0] * 6,
        long_factor=[1.0, 1.5, 2.0, 3.0, 4.0, 5.0],
        original_max_position_embeddings=16,
    ),
    "mistral": lambda: _llama(MistralConfig, sliding_window=12),
    "qwen2": lambda: _llama(
        Qwen2Config, use_sliding_window=True, sliding_window=12, max_window_layers=1, tie_word_embeddings=True
    ),
    "qwen3": lambda: _llama(Qwen3Config, head_dim=20),
    "qwen3-windows": lambda: _llama(
        Qwen3Config,
        head_dim=16,
        use_sliding_window=True,
        sliding_window=10,
        layer_types=["full_attention", "sliding_attention", "full_attention"],
    ),
}
"""Name → the transformers library's configuration. Sizes are odd on purpose: nothing fits by accident."""


def tiny_config(name: str) -> ModelConfig:
    """Our configuration of the tiny model, by way of its config.json."""
    raw = TINY[name]().to_dict()
    raw["architectures"] = [type(tiny_model(name)).__name__]
    return config_from_hf(raw)


def tiny_model(name: str, seed: int = 0) -> PreTrainedModel:
    """The reference model in float32, with random biases and norms too."""
    model = AutoModelForCausalLM.from_config(TINY[name](), dtype=torch.float32).eval()
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for path, parameter in model.named_parameters():
            parameter.normal_(0, STD, generator=generator)
            if "norm" in path and path.endswith("weight"):
                parameter += 1
    return model


def state_of(model: PreTrainedModel) -> dict[str, Tensor]:
    """Its tensors by name, as a checkpoint would hold them."""
    return dict(model.state_dict())


def reference_logits(model: PreTrainedModel, token_ids: list[int]) -> Tensor:
    """float32[tokens, vocab]: of one text, in one go."""
    with torch.no_grad():
        logits: Tensor = model(torch.tensor([token_ids])).logits[0]
    return logits.float()
