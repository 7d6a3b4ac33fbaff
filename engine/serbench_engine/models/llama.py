"""The Llama family: Llama (Touvron et al. 2023), SmolLM2, TinyLlama, Mistral, Qwen2 and Qwen3. It does not
know weight files, KV caches or sampling.

They differ in what ModelConfig says: biases, norms of q and k, sliding windows, tied embeddings, rope scaling.
"""

import torch
from torch import Tensor, nn

from serbench_engine.attention.base import Attend
from serbench_engine.layers.embedding import Embedding
from serbench_engine.layers.linear import GatedLinear, Linear, StackedLinear
from serbench_engine.layers.module import Module
from serbench_engine.layers.norm import RMSNorm
from serbench_engine.layers.rotary import Rotary
from serbench_engine.layers.rows import Angles
from serbench_engine.models.base import listed, module_places
from serbench_engine.models.config import ModelConfig


class Llama(Module):
    """The decoder with its head."""

    def __init__(self, config: ModelConfig) -> None:
        super().__init__()
        self.model = LlamaDecoder(config)
        self.lm_head = None if config.tie_word_embeddings else Linear(config.hidden_size, config.vocab_size, bias=False)

    def forward(self, token_ids: Tensor, positions: Tensor, attend: Attend, last: Tensor | None) -> Tensor:
        """See CausalLM.forward."""
        return self.model(token_ids, positions, attend, last)

    def logits(self, hidden: Tensor) -> Tensor:
        """See CausalLM.logits."""
        hidden = self.model.norm(hidden)
        return self.lm_head(hidden) if self.lm_head else self.model.embed_tokens.scores(hidden)

    def places(self) -> dict[str, Tensor]:
        """See CausalLM.places."""
        places = module_places(self.model, "model")
        return places | module_places(self.lm_head, "lm_head") if self.lm_head else places


class LlamaDecoder(Module):
    """Embedding and layers; ``norm`` is only for the tokens that sample."""

    def __init__(self, config: ModelConfig) -> None:
        super().__init__()
        self.embed_tokens = Embedding(config.vocab_size, config.hidden_size, config.tie_word_embeddings)
        self.rotary = Rotary(config.head_dim, config.rope, config.max_model_len)
        self.layers = nn.ModuleList(LlamaLayer(config, i) for i in range(config.num_layers))
        self.norm = RMSNorm(config.hidden_size, config.norm_eps)

    def forward(self, token_ids: Tensor, positions: Tensor, attend: Attend, last: Tensor | None) -> Tensor:
        hidden = self.embed_tokens(token_ids)
        angles = self.rotary.angles(positions, hidden.dtype)
        *layers, final = self.layers
        for layer in layers:
            hidden = layer(hidden, angles, attend)
        kept: Tensor = final(hidden, angles, attend, last)
        return kept


class LlamaLayer(Module):
    """Attention and a gated perceptron, each normalised before and added to the residual."""

    def __init__(self, config: ModelConfig, index: int) -> None:
        super().__init__()
        self.input_layernorm = RMSNorm(config.hidden_size, config.norm_eps)
        self.self_attn = LlamaAttention(config, index)
        self.post_attention_layernorm = RMSNorm(config.hidden_size, config.norm_eps)
        self.mlp = LlamaMLP(config)

    def forward(self, hidden: Tensor, angles: Angles, attend: Attend, last: Tensor | None = None) -> Tensor:
        hidden = self.self_attn(self.input_layernorm(hidden), hidden, angles, attend, last)
        return self.mlp(self.post_attention_layernorm(hidden), hidden)


class LlamaAttention(Module):
    """Grouped-query attention with rotary positions; Qwen3 normalises each head's q and k first."""

    def __init__(self, config: ModelConfig, index: int) -> None:
        super().__init__()
        queries, keys = config.num_heads * config.head_dim, config.num_kv_heads * config.head_dim
        self.index = index
        self.head_dim = config.head_dim
        self.qkv = StackedLinear(
            config.hidden_size, {"q_proj": queries, "k_proj": keys, "v_proj": keys}, config.qkv_bias
        )
        self.q_norm = RMSNorm(config.head_dim, config.norm_eps) if config.qk_norm else None
        self.k_norm = RMSNorm(config.head_dim, config.norm_eps) if config.qk_norm else None
        self.o_proj = Linear(queries, config.hidden_size, config.output_bias)

    def forward(self, hidden: Tensor, residual: Tensor, angles: Angles, attend: Attend, last: Tensor | None) -> Tensor:
        stacked = self.qkv(hidden)
        if self.q_norm and self.k_norm:
            query, key, value = self.qkv.split(stacked)
            stacked = torch.cat((self._each_head(self.q_norm, query), self._each_head(self.k_norm, key), value), dim=1)
        return self.o_proj.plus(*listed(last, attend(self.index, stacked, angles), residual))

    def _each_head(self, norm: RMSNorm, x: Tensor) -> Tensor:
        """[tokens, heads · head_dim] → the same."""
        return norm(x.unflatten(1, (-1, self.head_dim))).flatten(1)


class LlamaMLP(Module):
    """``down(act(gate(x)) · up(x))``, added to the residual; gate and up are one stacked layer."""

    def __init__(self, config: ModelConfig) -> None:
        super().__init__()
        inner = config.intermediate_size
        self.gate_up = GatedLinear(
            config.hidden_size, inner, ("gate_proj", "up_proj"), config.mlp_bias, config.activation
        )
        self.down_proj = Linear(inner, config.hidden_size, config.mlp_bias)

    def forward(self, hidden: Tensor, residual: Tensor) -> Tensor:
        return self.down_proj.plus(self.gate_up(hidden), residual)
