"""Weights that do not fit are refused with one clear line, those that do land in place; dummy ones are seeded."""

from collections.abc import Callable

import msgspec
import pytest
import torch
from torch import Tensor

from serbench_engine.errors import ConfigError, ModelError
from serbench_engine.models.base import CausalLM
from serbench_engine.models.loading import fill_dummy, load_weights
from serbench_engine.models.memory import ITEM_BYTES, available_bytes, check_fits, kv_block_bytes, weight_bytes
from serbench_engine.models.registry import build_model
from serbench_engine.weights.names import expected_shapes
from tests.engine.models.tiny import TINY, state_of, tiny_config, tiny_model

State = dict[str, Tensor]


def build(name: str, dtype: torch.dtype = torch.float32) -> CausalLM:
    return build_model(tiny_config(name), dtype, "cpu")


@pytest.mark.parametrize("name", TINY)
def test_every_tensor_of_a_checkpoint_lands_in_its_place(name: str) -> None:
    model, state = build(name), state_of(tiny_model(name))
    load_weights(model, state.items())
    places = model.places()
    for path, tensor in state.items():
        if path in places:
            assert torch.equal(places[path], tensor)
    tied = {"lm_head.weight"} if tiny_config(name).tie_word_embeddings else set()
    assert places.keys() == state.keys() - tied


@pytest.mark.parametrize("name", TINY)
def test_places_cover_every_parameter_once(name: str) -> None:
    model = build(name)
    assert isinstance(model, torch.nn.Module)
    for parameter in model.parameters():
        parameter.zero_()
    for place in model.places().values():
        place += 1
    assert all(bool((parameter == 1).all()) for parameter in model.parameters())


@pytest.mark.parametrize("name", TINY)
def test_places_are_what_is_looked_for_in_files(name: str) -> None:
    shapes = {path: tuple(place.shape) for path, place in build(name).places().items()}
    assert shapes == expected_shapes(tiny_config(name))


Q = "model.layers.1.self_attn.q_proj.weight"


@pytest.mark.parametrize(
    ("spoil", "message"),
    [
        (lambda state: state | {Q: state[Q][:-1]}, rf"{Q} is \[47, 48\], it must be \[48, 48\]"),
        (
            lambda state: state | {Q: state[Q].to(torch.int8)},
            rf"{Q} holds torch\.int8 numbers; weights must be",
        ),
        (lambda state: {k: v for k, v in state.items() if k != Q}, rf"configuration: {Q} is not among them"),
        (
            lambda state: {k: v for k, v in state.items() if "layers.2" not in k},
            r"configuration: 9 tensors \(model\.layers\.2\.\S+, \S+, \S+ and 6 more\) are not among them",
        ),
        (lambda state: state | {"model.layers.3.a": state[Q]}, r"configuration: model\.layers\.3\.a is not part of"),
        (lambda state: {}, r"configuration: 30 tensors \(\S+ \S+ \S+ and 27 more\) are not among them"),
    ],
)
def test_weights_that_do_not_fit_are_refused(spoil: Callable[[State], State], message: str) -> None:
    state = spoil(state_of(tiny_model("llama")))
    with pytest.raises(ModelError, match=message) as caught:
        load_weights(build("llama"), state.items())
    assert "\n" not in str(caught.value)


def test_what_old_checkpoints_hold_besides_is_passed_over() -> None:
    state = state_of(tiny_model("llama")) | {"model.layers.0.self_attn.rotary_emb.inv_freq": torch.ones(6)}
    load_weights(build("llama"), state.items())
    load_weights(build("opt"), (state_of(tiny_model("opt")) | {"model.decoder.version": torch.ones(1)}).items())


@pytest.mark.parametrize("name", ["opt-post-norm", "llama-tied-biased", "qwen3"])
def test_dummy_weights(name: str) -> None:
    model, half, other = build(name), build(name, torch.bfloat16), build(name)
    for one, seed in ((model, 1), (half, 1), (other, 2)):
        fill_dummy(one, 0.5, seed)
    for path, place in model.places().items():
        assert torch.equal(half.places()[path], place.bfloat16())
        if path.endswith(".bias"):
            assert not place.any()
        elif "norm" in path:
            assert bool((place == 1).all())
        else:
            assert not torch.equal(other.places()[path], place)
            assert 0.45 < float(place.std()) < 0.55


def test_a_dummy_tensor_depends_on_its_name_alone() -> None:
    config = tiny_config("llama")
    small = msgspec.structs.replace(config, num_layers=2, sliding_windows=(0, 0))
    models = [build_model(one, torch.float32, "cpu") for one in (config, small)]
    for model in models:
        fill_dummy(model, 0.02, 7)
    large_places, small_places = (model.places() for model in models)
    assert len(small_places) < len(large_places)
    assert all(torch.equal(small_places[name], large_places[name]) for name in small_places)
    assert len({float(place.flatten()[0]) for name, place in large_places.items() if "norm" not in name}) > 20


@pytest.mark.parametrize("name", TINY)
@pytest.mark.parametrize("dtype", ITEM_BYTES)
def test_weight_bytes_is_what_the_model_takes(name: str, dtype: str) -> None:
    model = build(name, getattr(torch, dtype))
    assert isinstance(model, torch.nn.Module)
    assert weight_bytes(tiny_config(name), dtype) == sum(p.numel() * p.itemsize for p in model.parameters())


def test_a_model_that_can_not_fit_is_refused() -> None:
    config = tiny_config("llama")
    needed = weight_bytes(config, "float32") + 1000 * kv_block_bytes(config, "float32", 16)
    check_fits(config, "float32", 16, 1000, available=needed)
    with pytest.raises(ConfigError, match=r"0\.01 GB in all; 0\.01 GB are available: take fewer blocks"):
        check_fits(config, "float32", 16, 1000, available=needed - 1)
    assert available_bytes() > 1_000_000
