"""A model's architecture as a plain frozen struct, so that a worker needs no transformers to build it.

It does not know where configurations or weights come from (catalogue.py, weights/).
"""

from typing import Literal

import msgspec


class RopeConfig(msgspec.Struct, frozen=True):
    """Rotary embedding: ``theta`` and one of the scalings of the transformers library (``default`` is none).

    ``parameters`` holds the scaling's own numbers under the names the transformers library uses (``factor``,
    ``low_freq_factor``, ``high_freq_factor``, ``original_max_position_embeddings``, …).
    """

    theta: float = 10000.0
    scaling: Literal["default", "linear", "dynamic", "llama3", "yarn", "longrope"] = "default"
    parameters: dict[str, float | list[float]] = {}


class ModelConfig(msgspec.Struct, frozen=True, tag="transformer"):
    """Everything a model class needs to know. ``sliding_windows`` has one entry a layer, 0 where there is none.

    ``family`` chooses the class: ``opt`` or ``llama`` (Llama, SmolLM2, TinyLlama, Mistral, Qwen2, Qwen3).
    ``eos_token_ids`` may be empty; ``dtype`` is the one that the weights were published in. Fields below the blank line
    are for one family only.
    """

    architecture: str
    family: Literal["opt", "llama"]
    vocab_size: int
    hidden_size: int
    intermediate_size: int
    num_layers: int
    num_heads: int
    num_kv_heads: int
    head_dim: int
    max_model_len: int
    tie_word_embeddings: bool
    activation: str
    eos_token_ids: tuple[int, ...]
    bos_token_id: int | None = None
    init_std: float = 0.02
    dtype: str = "float32"

    norm_eps: float = 1e-5
    sliding_windows: tuple[int, ...] = ()
    rope: RopeConfig = RopeConfig()
    qkv_bias: bool = False
    output_bias: bool = False
    mlp_bias: bool = False
    qk_norm: bool = False

    word_embed_proj_dim: int = 0
    norm_before: bool = True
    final_norm: bool = True
    enable_bias: bool = True


class SimConfig(msgspec.Struct, frozen=True, tag="sim"):
    """The simulated model: how long its device takes. ``step_us`` a step plus ``token_us`` a scheduled token."""

    step_us: float = 0.0
    token_us: float = 0.0
    vocab_size: int = 32768
    max_model_len: int = 32768
    eos_token_ids: tuple[int, ...] = ()


class WeightsSource(msgspec.Struct, frozen=True):
    """Where a model's weights are. ``files`` are absolute paths; none for ``dummy`` and ``sim``.

    ``origin``: what the files were made of here, None where they are as published.
    """

    kind: Literal["safetensors", "bin", "gguf", "dummy", "sim"]
    files: tuple[str, ...] = ()
    origin: str | None = None


class ResolvedModel(msgspec.Struct, frozen=True):
    """A name turned into facts: what to build, from which weights, with which tokenizer.

    ``tokenizer`` is a folder with ``tokenizer.json`` (or vocab and merges), None where none is at hand. ``notes`` are
    lines for the user (dummy weights, bytes as tokens, …). ``fingerprint`` tells weights apart: runs with different
    ones are never compared.
    """

    name: str
    config: ModelConfig | SimConfig
    weights: WeightsSource
    fingerprint: str
    tokenizer: str | None = None
    notes: tuple[str, ...] = ()
