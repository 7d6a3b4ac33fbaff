"""Rotary position embedding with its published scalings. It does not know models, nor what it turns (rows.py)."""

import math
from collections.abc import Callable
from typing import Final

import torch
from torch import Tensor, nn

from serbench_engine.errors import ModelError
from serbench_engine.layers.rows import Angles
from serbench_engine.models.config import RopeConfig


class Rotary(nn.Module):
    """Angles of each position, once a step, for all layers (Su et al. 2021; the scalings are cited below).

    ``max_model_len`` is the length that the model was made for.
    """

    def __init__(self, head_dim: int, rope: RopeConfig, max_model_len: int) -> None:
        super().__init__()
        if _number(rope, "partial_rotary_factor", 1.0) != 1.0:
            raise ModelError("a partial_rotary_factor other than 1 is not supported")
        frequencies, self.scale = _SCALINGS[rope.scaling](_plain(head_dim, rope.theta), rope, max_model_len)
        self.register_buffer("frequencies", frequencies, persistent=False)
        self.frequencies: Tensor  # float32[head_dim / 2]

    def angles(self, positions: Tensor, dtype: torch.dtype) -> Angles:
        """Those of ``positions`` int[tokens], computed in float32."""
        angles = positions[:, None].float() * self.frequencies  # [tokens, head_dim / 2]
        angles = torch.cat((angles, angles), dim=-1)[:, None]  # [tokens, 1, head_dim]
        return (angles.cos() * self.scale).to(dtype), (angles.sin() * self.scale).to(dtype)


def _plain(head_dim: int, theta: float) -> Tensor:
    return 1.0 / (theta ** (torch.arange(0, head_dim, 2, dtype=torch.float32) / head_dim))


# Each takes the unscaled frequencies float32[head_dim / 2] and returns the scaled ones and a factor for cos and sin.


def _default(plain: Tensor, rope: RopeConfig, max_model_len: int) -> tuple[Tensor, float]:
    return plain, 1.0


def _linear(plain: Tensor, rope: RopeConfig, max_model_len: int) -> tuple[Tensor, float]:
    return plain / _number(rope, "factor"), 1.0


def _dynamic(plain: Tensor, rope: RopeConfig, max_model_len: int) -> tuple[Tensor, float]:
    # It begins beyond the length the model was made for, and no request grows beyond that.
    return plain, 1.0


def _llama3(plain: Tensor, rope: RopeConfig, max_model_len: int) -> tuple[Tensor, float]:
    """Llama 3.1: long waves are slowed by ``factor``, short ones kept, those between blended."""
    original = _number(rope, "original_max_position_embeddings", max_model_len)
    low, high = _number(rope, "low_freq_factor"), _number(rope, "high_freq_factor")
    turns = original * plain / (2 * math.pi)  # within the original context
    kept = ((turns - low) / (high - low)).clamp(0, 1)
    return (1 - kept) * plain / _number(rope, "factor") + kept * plain, 1.0


def _yarn(plain: Tensor, rope: RopeConfig, max_model_len: int) -> tuple[Tensor, float]:
    """YaRN (Peng et al. 2023): as llama3, but blended along the dimensions; cos and sin grow with the factor."""
    original = _number(rope, "original_max_position_embeddings", max_model_len)
    factor = _number(rope, "factor", max_model_len / original)
    half = len(plain)

    def dimension_of(turns: float) -> float:  # whose frequency makes so many turns in the original context
        return half * math.log(original / (turns * 2 * math.pi)) / math.log(rope.theta)

    low = dimension_of(_number(rope, "beta_fast", 32))
    high = dimension_of(_number(rope, "beta_slow", 1))
    if _number(rope, "truncate", 1):
        low, high = math.floor(low), math.ceil(high)
    low, high = max(low, 0), min(high, 2 * half - 1)
    width = high - low if high != low else 0.001
    slowed = ((torch.arange(half, dtype=torch.float32) - low) / width).clamp(0, 1)
    return plain / factor * slowed + plain * (1 - slowed), _yarn_scale(rope, factor)


def _yarn_scale(rope: RopeConfig, factor: float) -> float:
    def magnitude(weight: float) -> float:
        return 0.1 * weight * math.log(factor) + 1.0 if factor > 1 else 1.0

    given = _number(rope, "attention_factor", 0)
    if given:
        return given
    weight, weight_all = _number(rope, "mscale", 0), _number(rope, "mscale_all_dim", 0)
    return magnitude(weight) / magnitude(weight_all) if weight and weight_all else magnitude(1)


def _longrope(plain: Tensor, rope: RopeConfig, max_model_len: int) -> tuple[Tensor, float]:
    """LongRoPE (Ding et al. 2024): a factor for each dimension.

    Always the long ones where the model is made for more than its original length: a request's keys must not depend on
    how long it grows later, or a preemption would change its output.
    """
    original = _number(rope, "original_max_position_embeddings", max_model_len)
    factor = _number(rope, "factor", max_model_len / original)
    name = "long_factor" if max_model_len > original else "short_factor"
    factors = rope.parameters.get(name)
    if not isinstance(factors, list) or len(factors) != len(plain):
        raise ModelError(f"longrope needs {name} with {len(plain)} numbers, the configuration has {factors!r}")
    grown = math.sqrt(1 + math.log(factor) / math.log(original)) if factor > 1 else 1.0
    return plain / torch.tensor(factors, dtype=torch.float32), _number(rope, "attention_factor", 0) or grown


def _number(rope: RopeConfig, name: str, default: float | None = None) -> float:
    value = rope.parameters.get(name, default)
    if value is None and default is not None:
        value = default
    if not isinstance(value, int | float):
        raise ModelError(f"rope scaling {rope.scaling!r} needs the number {name!r}, the configuration has {value!r}")
    return float(value)


_SCALINGS: Final[dict[str, Callable[[Tensor, RopeConfig, int], tuple[Tensor, float]]]] = {
    "default": _default,
    "linear": _linear,
    "dynamic": _dynamic,
    "llama3": _llama3,
    "yarn": _yarn,
    "longrope": _longrope,
}
