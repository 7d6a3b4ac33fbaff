"""What a model is to the runner, and where a checkpoint's tensors go in it. It knows no architecture.

A model computes hidden states of a step's tokens, in its last layer and its head only of those that sample. It holds no
KV cache: attention is handed to it, as a function, with every step.
"""

from typing import Protocol

from torch import Tensor, nn

from serbench_engine.attention.base import Attend, AttentionShape
from serbench_engine.layers.linear import StackedLinear
from serbench_engine.models.config import ModelConfig


class CausalLM(Protocol):
    """A model, as one of models/registry.py's classes makes it."""

    def forward(self, token_ids: Tensor, positions: Tensor, attend: Attend, last: Tensor | None) -> Tensor:
        """Hidden states [s, hidden_size] of those of t tokens that ``last`` int32[s] lists; None: all.

        ``positions`` int32[t], from 0, are the tokens' in their requests. All tokens' keys and values are written.
        """
        ...

    def logits(self, hidden: Tensor) -> Tensor:
        """Logits [s, vocab_size] for what follows the tokens with hidden states [s, hidden_size]."""
        ...

    def places(self) -> dict[str, Tensor]:
        """Where each tensor of a checkpoint goes: its name in the transformers library → the (part of a) parameter.

        Each part of each parameter appears exactly once; what is tied to another is not named.
        """
        ...


def attention_shape(config: ModelConfig) -> AttentionShape:
    """What the model asks of an attention backend."""
    return AttentionShape(
        num_heads=config.num_heads,
        num_kv_heads=config.num_kv_heads,
        head_dim=config.head_dim,
        windows=config.sliding_windows or (0,) * config.num_layers,
    )


def listed(last: Tensor | None, *states: Tensor) -> tuple[Tensor, ...]:
    """The rows that ``last`` lists, all if it is None: what goes on in a model's last layer."""
    return states if last is None else tuple(state.index_select(0, last) for state in states)


def module_places(root: nn.Module, prefix: str) -> dict[str, Tensor]:
    """The places within ``root``, whose attributes are named as in a checkpoint below ``prefix``.

    Only stacked layers differ: their parts are named as if they stood in the stack's stead.
    """
    places: dict[str, Tensor] = {}
    for path, module in root.named_modules(prefix=prefix):
        for kind, parameter in module.named_parameters(recurse=False):
            if isinstance(module, StackedLinear):
                parent = path.rpartition(".")[0]
                parts = parameter.data.split(list(module.parts.values()))
                places |= {f"{parent}.{name}.{kind}": part for name, part in zip(module.parts, parts, strict=True)}
            else:
                places[f"{path}.{kind}"] = parameter.data
    return places
