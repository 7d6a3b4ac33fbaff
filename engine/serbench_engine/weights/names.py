"""The transformers library's names of tensors, and the shapes that a configuration asks for. It reads no file."""

from collections.abc import Iterator
from typing import Final

from serbench_engine.models.config import ModelConfig

Shape = tuple[int, ...]

_INNER: Final[dict[str, tuple[str, ...]]] = {"opt": ("decoder.",), "llama": ("embed_tokens.", "layers.", "norm.")}
"""How names of a checkpoint begin that was saved from the bare decoder, without ``model.``."""


def full_name(name: str, config: ModelConfig) -> str:
    """``name`` as the whole causal model has it: with the leading ``model.`` that checkpoints of the decoder lack."""
    return f"model.{name}" if name.startswith(_INNER[config.family]) else name


def expected_shapes(config: ModelConfig) -> dict[str, Shape]:
    """Every tensor that a checkpoint must hold, where nothing is fused; what is tied to another is not among them."""
    shapes = _opt(config) if config.family == "opt" else _llama(config)
    return dict(shapes)


def _linear(name: str, outputs: int, inputs: int, bias: bool) -> Iterator[tuple[str, Shape]]:
    yield f"{name}.weight", (outputs, inputs)
    if bias:
        yield f"{name}.bias", (outputs,)


def _norm(name: str, width: int) -> Iterator[tuple[str, Shape]]:
    yield f"{name}.weight", (width,)
    yield f"{name}.bias", (width,)


def _opt(config: ModelConfig) -> Iterator[tuple[str, Shape]]:
    hidden, inner, bias, width = (
        config.hidden_size,
        config.intermediate_size,
        config.enable_bias,
        config.word_embed_proj_dim,
    )
    top = "model.decoder"
    yield f"{top}.embed_tokens.weight", (config.vocab_size, width)
    yield f"{top}.embed_positions.weight", (config.max_model_len + 2, hidden)
    if width != hidden:
        yield f"{top}.project_in.weight", (hidden, width)
        yield f"{top}.project_out.weight", (width, hidden)
    for i in range(config.num_layers):
        layer = f"{top}.layers.{i}"
        for part in ("q_proj", "k_proj", "v_proj", "out_proj"):
            yield from _linear(f"{layer}.self_attn.{part}", hidden, hidden, bias)
        yield from _linear(f"{layer}.fc1", inner, hidden, bias)
        yield from _linear(f"{layer}.fc2", hidden, inner, bias)
        yield from _norm(f"{layer}.self_attn_layer_norm", hidden)
        yield from _norm(f"{layer}.final_layer_norm", hidden)
    if config.final_norm:
        yield from _norm(f"{top}.final_layer_norm", hidden)
    if not config.tie_word_embeddings:
        yield "lm_head.weight", (config.vocab_size, width)


def _llama(config: ModelConfig) -> Iterator[tuple[str, Shape]]:
    hidden, inner = config.hidden_size, config.intermediate_size
    q, kv = config.num_heads * config.head_dim, config.num_kv_heads * config.head_dim
    yield "model.embed_tokens.weight", (config.vocab_size, hidden)
    for i in range(config.num_layers):
        layer = f"model.layers.{i}"
        yield from _linear(f"{layer}.self_attn.q_proj", q, hidden, config.qkv_bias)
        yield from _linear(f"{layer}.self_attn.k_proj", kv, hidden, config.qkv_bias)
        yield from _linear(f"{layer}.self_attn.v_proj", kv, hidden, config.qkv_bias)
        yield from _linear(f"{layer}.self_attn.o_proj", hidden, q, config.output_bias)
        if config.qk_norm:
            yield f"{layer}.self_attn.q_norm.weight", (config.head_dim,)
            yield f"{layer}.self_attn.k_norm.weight", (config.head_dim,)
        yield from _linear(f"{layer}.mlp.gate_proj", inner, hidden, config.mlp_bias)
        yield from _linear(f"{layer}.mlp.up_proj", inner, hidden, config.mlp_bias)
        yield from _linear(f"{layer}.mlp.down_proj", hidden, inner, config.mlp_bias)
        yield f"{layer}.input_layernorm.weight", (hidden,)
        yield f"{layer}.post_attention_layernorm.weight", (hidden,)
    yield "model.norm.weight", (hidden,)
    if not config.tie_word_embeddings:
        yield "lm_head.weight", (config.vocab_size, hidden)
