"""Fills a model's parameters, from a checkpoint's tensors or with dummy ones. It does not know files or architectures.

Both go by the names that the transformers library gives to tensors: how a model stacks its parameters changes neither.
"""

import hashlib
from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor
from typing import Final

import torch
from torch import Tensor, nn

from serbench_engine.errors import ModelError
from serbench_engine.layers.embedding import Embedding
from serbench_engine.layers.linear import Linear
from serbench_engine.layers.packed import OneDnnWeight
from serbench_engine.models.base import CausalLM

FLOATS: Final = (torch.float32, torch.bfloat16, torch.float16, torch.float64)
NOT_NEEDED: Final = ("lm_head.weight", "rotary_emb.inv_freq", "decoder.version")
SHOWN: Final = 3
"""Names that an error message lists before it only counts."""


def load_weights(model: CausalLM, weights: Iterable[tuple[str, Tensor]]) -> None:
    """Copy every tensor to its place, cast to the model's dtype.

    Passed over is what needs no place: the head of a model that ties it to its embedding, and rotary frequencies and
    format versions, which older checkpoints hold.

    Raises:
        ModelError: a tensor that has no place, another shape or no floating-point numbers; places that got none.
    """
    places = model.places()
    missing = dict.fromkeys(places)
    unexpected: list[str] = []
    for name, tensor in weights:
        if name in places:
            _copy(name, tensor, places[name])
            missing.pop(name, None)
        elif not name.endswith(NOT_NEEDED):
            unexpected.append(name)
    if missing:
        raise ModelError(f"the weights do not fit the configuration: {_some(list(missing))} not among them")
    if unexpected:
        raise ModelError(f"the weights do not fit the configuration: {_some(unexpected)} not part of the model")


def _copy(name: str, tensor: Tensor, place: Tensor) -> None:
    if tensor.shape != place.shape:
        raise ModelError(
            f"the weights do not fit the configuration: {name} is {list(tensor.shape)}, it must be {list(place.shape)}"
        )
    if tensor.dtype not in FLOATS:
        raise ModelError(f"{name} holds {tensor.dtype} numbers; weights must be float32, bfloat16 or float16")
    place.copy_(tensor)


def _some(names: list[str]) -> str:
    if len(names) == 1:
        return f"{names[0]} is"
    more = f" and {len(names) - SHOWN} more" if len(names) > SHOWN else ""
    return f"{len(names)} tensors ({', '.join(names[:SHOWN])}{more}) are"


def pack_weights(model: CausalLM) -> None:
    """Lay the loaded weights out for speed, where that helps. Nothing can be loaded after it."""
    assert isinstance(model, nn.Module)
    for module in model.modules():
        if isinstance(module, Linear | Embedding):
            module.pack()


def uses_onednn(model: CausalLM) -> bool:
    """Whether products with its packed weights are oneDNN's."""
    assert isinstance(model, nn.Module)
    packed = (module.packed for module in model.modules() if isinstance(module, Linear | Embedding))
    return any(isinstance(one, OneDnnWeight) for one in packed)


def fill_dummy(model: CausalLM, std: float, seed: int) -> None:
    """Seeded random weights: normal with standard deviation ``std``; norms are 1 and biases 0.

    Each tensor is drawn in float32 from its own stream, f(seed, name), then cast: the same in every dtype.
    """
    with ThreadPoolExecutor(torch.get_num_threads()) as pool:
        for _ in pool.map(lambda item: _fill(item[0], item[1], std, seed), model.places().items()):
            pass  # raises what a thread raised


def _fill(name: str, place: Tensor, std: float, seed: int) -> None:
    if name.endswith(".bias"):
        place.zero_()
    elif place.dim() == 1:  # the scale of a norm
        place.fill_(1)
    else:
        place.copy_(_normal(place.shape, std, seed, name))


def _normal(shape: torch.Size, std: float, seed: int, name: str) -> Tensor:
    digest = hashlib.blake2b(f"{seed}:{name}".encode(), digest_size=8).digest()
    generator = torch.Generator().manual_seed(int.from_bytes(digest, "little", signed=True))
    return torch.empty(shape, dtype=torch.float32).normal_(0, std, generator=generator)
