"""OPT (Zhang et al. 2022), all sizes. It does not know weight files, KV caches or sampling.

350m differs from the others: it normalises after each sublayer, and its embedding is narrower than its layers.
"""

from torch import Tensor, nn

from serbench_engine.attention.base import Attend
from serbench_engine.layers.embedding import Embedding
from serbench_engine.layers.linear import ActivatedLinear, Linear, StackedLinear
from serbench_engine.layers.module import Module
from serbench_engine.layers.norm import LayerNorm
from serbench_engine.models.base import listed, module_places
from serbench_engine.models.config import ModelConfig

FIRST_POSITION = 2
"""Where OPT's position embeddings begin; the two before it are never used."""


class OPT(Module):
    """The decoder with its head, which is its embedding again."""

    def __init__(self, config: ModelConfig) -> None:
        super().__init__()
        self.decoder = OPTDecoder(config)
        self.lm_head = (
            None if config.tie_word_embeddings else Linear(config.word_embed_proj_dim, config.vocab_size, bias=False)
        )

    def forward(self, token_ids: Tensor, positions: Tensor, attend: Attend, last: Tensor | None) -> Tensor:
        """See CausalLM.forward."""
        return self.decoder(token_ids, positions, attend, last)

    def logits(self, hidden: Tensor) -> Tensor:
        """See CausalLM.logits."""
        hidden = self.decoder.finish(hidden)
        return self.lm_head(hidden) if self.lm_head else self.decoder.embed_tokens.scores(hidden)

    def places(self) -> dict[str, Tensor]:
        """See CausalLM.places."""
        places = module_places(self.decoder, "model.decoder")
        return places | module_places(self.lm_head, "lm_head") if self.lm_head else places


class OPTDecoder(Module):
    """Embeddings and layers; ``finish`` is what a token that samples goes through besides."""

    def __init__(self, config: ModelConfig) -> None:
        super().__init__()
        hidden, narrow = config.hidden_size, config.word_embed_proj_dim
        self.embed_tokens = Embedding(config.vocab_size, narrow, config.tie_word_embeddings)
        self.embed_positions = Embedding(config.max_model_len + FIRST_POSITION, hidden)
        self.project_in = Linear(narrow, hidden, bias=False) if narrow != hidden else None
        self.layers = nn.ModuleList(OPTLayer(config, i) for i in range(config.num_layers))
        self.final_layer_norm = LayerNorm(hidden) if config.final_norm else None
        self.project_out = Linear(hidden, narrow, bias=False) if narrow != hidden else None

    def forward(self, token_ids: Tensor, positions: Tensor, attend: Attend, last: Tensor | None) -> Tensor:
        hidden = self.embed_tokens(token_ids)
        if self.project_in:
            hidden = self.project_in(hidden)
        hidden = hidden + self.embed_positions(positions + FIRST_POSITION)
        *layers, final = self.layers
        for layer in layers:
            hidden = layer(hidden, attend)
        kept: Tensor = final(hidden, attend, last)
        return kept

    def finish(self, hidden: Tensor) -> Tensor:
        """[s, hidden_size] → [s, word_embed_proj_dim]."""
        if self.final_layer_norm:
            hidden = self.final_layer_norm(hidden)
        return self.project_out(hidden) if self.project_out else hidden


class OPTLayer(Module):
    """Attention and a two-layer perceptron, each around a residual."""

    def __init__(self, config: ModelConfig, index: int) -> None:
        super().__init__()
        hidden, inner = config.hidden_size, config.intermediate_size
        self.norm_before = config.norm_before
        self.self_attn = OPTAttention(config, index)
        self.self_attn_layer_norm = LayerNorm(hidden)
        self.fc1 = ActivatedLinear(hidden, inner, config.enable_bias, config.activation)
        self.fc2 = Linear(inner, hidden, config.enable_bias)
        self.final_layer_norm = LayerNorm(hidden)

    def forward(self, hidden: Tensor, attend: Attend, last: Tensor | None = None) -> Tensor:
        if self.norm_before:
            hidden = self.self_attn(self.self_attn_layer_norm(hidden), hidden, attend, last)
            return self.fc2.plus(self.fc1(self.final_layer_norm(hidden)), hidden)
        hidden = self.self_attn_layer_norm(self.self_attn(hidden, hidden, attend, last))
        return self.final_layer_norm(self.fc2.plus(self.fc1(hidden), hidden))


class OPTAttention(Module):
    """Multi-head attention, added to the residual; q, k and v come from one stacked layer."""

    def __init__(self, config: ModelConfig, index: int) -> None:
        super().__init__()
        hidden = config.hidden_size
        self.index = index
        self.qkv = StackedLinear(hidden, {"q_proj": hidden, "k_proj": hidden, "v_proj": hidden}, config.enable_bias)
        self.out_proj = Linear(hidden, hidden, config.enable_bias)

    def forward(self, hidden: Tensor, residual: Tensor, attend: Attend, last: Tensor | None) -> Tensor:
        return self.out_proj.plus(*listed(last, attend(self.index, self.qkv(hidden), None), residual))
