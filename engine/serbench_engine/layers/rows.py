"""What layers do to each row by itself, by kernels in C++ where there are some, else by torch. It does not know models.

bfloat16 is computed in float32 and rounded once, either way.
"""

from typing import Final, TypeAlias

import torch
import torch.nn.functional as F
from torch import Tensor

from serbench_engine.layers.activation import Activation
from serbench_engine.native.library import LayerKernels, layer_kernels

Angles: TypeAlias = tuple[Tensor, Tensor]
"""Cosines and sines [tokens, 1, head_dim] of the angles by which each token's vectors are turned."""

NAMES: Final = {torch.float32: "float32", torch.bfloat16: "bfloat16", torch.float16: "float16"}


def kernels_for(x: Tensor) -> LayerKernels | None:
    """The kernels that can work on ``x``."""
    if x.device.type != "cpu" or x.dtype not in NAMES:
        return None
    kernels = layer_kernels(NAMES[x.dtype])
    return None if isinstance(kernels, str) else kernels


def rms_norm(x: Tensor, weight: Tensor, eps: float) -> Tensor:
    """Root mean square 1 over the last dimension of [tokens, size] or [tokens, heads, size], then scaled."""
    kernels = kernels_for(x)
    if kernels is None:
        return F.rms_norm(x, weight.shape, weight, eps)
    outer, *inner, size = x.shape
    if x.stride(-1) != 1 or (inner and x.stride(1) != size):
        x = x.contiguous()
    out = x.new_empty(x.shape)
    shape = outer, x.stride(0), inner[0] if inner else 1, size
    kernels.rms_norm(x.data_ptr(), *shape, weight.data_ptr(), eps, out.data_ptr(), torch.get_num_threads())
    return out


def layer_norm(x: Tensor, weight: Tensor, bias: Tensor, eps: float) -> Tensor:
    """Mean 0 and variance 1 over the last dimension of [tokens, size], then scaled and shifted."""
    kernels = kernels_for(x)
    if kernels is None:
        return F.layer_norm(x, weight.shape, weight, bias, eps)
    x = x.contiguous()
    out = torch.empty_like(x)
    parameters = weight.data_ptr(), bias.data_ptr()
    kernels.layer_norm(x.data_ptr(), *x.shape, *parameters, eps, out.data_ptr(), torch.get_num_threads())
    return out


def gate(x: Tensor, activation: Activation) -> Tensor:
    """``activation(first half) · second half`` of the last dimension: [tokens, 2 · size] → [tokens, size]."""
    kernels = kernels_for(x) if activation is F.silu else None
    if kernels is None:
        first, second = x.chunk(2, dim=-1)
        return activation(first) * second
    x = x.contiguous()
    rows, size = x.shape[0], x.shape[1] // 2
    out = x.new_empty((rows, size))
    kernels.gate(x.data_ptr(), rows, size, out.data_ptr(), torch.get_num_threads())
    return out


def rotate(x: Tensor, angles: Angles) -> Tensor:
    """``x`` [tokens, heads, head_dim] turned by its positions' angles: dimension i pairs with i + head_dim / 2."""
    cos, sin = angles
    first, second = x.chunk(2, dim=-1)
    return x * cos + torch.cat((-second, first), dim=-1) * sin
