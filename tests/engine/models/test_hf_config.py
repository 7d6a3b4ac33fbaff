"""Configurations: real files, the transformers library's own classes and defaults, and what must be refused."""

import json
from pathlib import Path
from typing import Any

import msgspec
import pytest
from transformers import LlamaConfig, MistralConfig, OPTConfig, Qwen2Config, Qwen3Config

from serbench_engine.errors import ModelError
from serbench_engine.models.config import ModelConfig
from serbench_engine.models.hf_config import SUPPORTED_ARCHITECTURES, config_from_hf
from serbench_engine.models.known import SMOLLM2_135M, find_known, num_parameters

CLASSES: dict[str, Any] = {
    "OPTForCausalLM": OPTConfig,
    "LlamaForCausalLM": LlamaConfig,
    "MistralForCausalLM": MistralConfig,
    "Qwen2ForCausalLM": Qwen2Config,
    "Qwen3ForCausalLM": Qwen3Config,
}

LLAMA3: dict[str, Any] = {
    "rope_type": "llama3",
    "factor": 8.0,
    "low_freq_factor": 1.0,
    "high_freq_factor": 4.0,
    "original_max_position_embeddings": 8192,
}


def read(shared_data: Path, name: str, file: str = "config.json") -> ModelConfig:
    return config_from_hf(json.loads((shared_data / "models" / name / file).read_text()))


def llama(**changes: Any) -> ModelConfig:
    return config_from_hf({"architectures": ["LlamaForCausalLM"]} | changes)


def qwen(**changes: Any) -> ModelConfig:
    return config_from_hf({"architectures": ["Qwen2ForCausalLM"], "num_hidden_layers": 4} | changes)


@pytest.mark.parametrize("size", ["125m", "350m", "1.3b"])
def test_the_built_in_opt_configurations_are_the_real_ones(shared_data: Path, size: str) -> None:
    known, _ = find_known(f"opt-{size}")
    assert known is not None
    assert read(shared_data, f"facebook-opt-{size}") == known.config


def test_350m_normalizes_afterwards_and_has_narrow_embeddings(shared_data: Path) -> None:
    config = read(shared_data, "facebook-opt-350m")
    assert (config.norm_before, config.final_norm, config.word_embed_proj_dim) == (False, False, 512)


@pytest.mark.parametrize(
    ("name", "file", "parameters"),
    [
        ("facebook-opt-125m", "config.json", 125_239_296),
        ("facebook-opt-350m", "config.json", 331_196_416),
        ("qwen2.5-0.5b", "config.json", 494_032_768),
        ("tinyllama-1.1b-chat", "config.json", 1_100_048_384),
        ("smollm2-135m", "hf_config.json", 134_515_008),
    ],
)
def test_real_files_have_the_published_numbers_of_parameters(
    shared_data: Path, name: str, file: str, parameters: int
) -> None:
    assert num_parameters(read(shared_data, name, file)) == parameters


def test_the_built_in_smollm2_is_the_real_one_but_for_the_chat_models_special_tokens(shared_data: Path) -> None:
    real = read(shared_data, "smollm2-135m", "hf_config.json")
    assert msgspec.structs.replace(real, eos_token_ids=(2,), bos_token_id=1) == SMOLLM2_135M


@pytest.mark.parametrize("architecture", SUPPORTED_ARCHITECTURES)
def test_absent_keys_mean_what_the_transformers_library_means_by_them(architecture: str) -> None:
    written = CLASSES[architecture]().to_dict() | {"architectures": [architecture], "dtype": None}
    assert config_from_hf({"architectures": [architecture]}) == config_from_hf(written)


@pytest.mark.parametrize("architecture", SUPPORTED_ARCHITECTURES)
def test_the_fields_are_those_of_the_transformers_librarys_object(architecture: str) -> None:
    theirs = CLASSES[architecture]()
    ours = config_from_hf({"architectures": [architecture]})
    assert ours.vocab_size == theirs.vocab_size
    assert (ours.hidden_size, ours.num_layers) == (theirs.hidden_size, theirs.num_hidden_layers)
    assert ours.num_heads == theirs.num_attention_heads
    assert ours.max_model_len == theirs.max_position_embeddings
    assert ours.tie_word_embeddings == theirs.tie_word_embeddings
    assert ours.bos_token_id == theirs.bos_token_id
    assert list(ours.eos_token_ids) == ([] if theirs.eos_token_id is None else [theirs.eos_token_id])
    if ours.family == "llama":
        assert ours.num_kv_heads == theirs.num_key_value_heads
        assert ours.head_dim == (getattr(theirs, "head_dim", None) or theirs.hidden_size // theirs.num_attention_heads)
        assert (ours.norm_eps, ours.rope.theta) == (theirs.rms_norm_eps, theirs.rope_parameters["rope_theta"])
        assert ours.qk_norm == (architecture == "Qwen3ForCausalLM")


@pytest.mark.parametrize("architecture", ["Qwen2ForCausalLM", "Qwen3ForCausalLM"])
@pytest.mark.parametrize(
    "changes", [{"use_sliding_window": True}, {"use_sliding_window": True, "max_window_layers": 3}, {}]
)
def test_windows_are_those_of_the_librarys_layer_types(architecture: str, changes: dict[str, Any]) -> None:
    theirs = CLASSES[architecture](num_hidden_layers=5, sliding_window=64, **changes)
    raw = {"architectures": [architecture], "num_hidden_layers": 5, "sliding_window": 64} | changes
    expected = tuple(64 if kind == "sliding_attention" else 0 for kind in theirs.layer_types)
    assert config_from_hf(raw).sliding_windows == expected
    assert config_from_hf(theirs.to_dict() | {"architectures": [architecture]}).sliding_windows == expected


def test_mistral_has_one_window_for_all_layers_unless_it_is_null() -> None:
    raw = {"architectures": ["MistralForCausalLM"], "num_hidden_layers": 2}
    assert config_from_hf(raw).sliding_windows == (4096, 4096)
    assert config_from_hf(raw | {"sliding_window": None}).sliding_windows == (0, 0)


@pytest.mark.parametrize(
    "layout",
    [
        {"rope_theta": 500000.0, "rope_scaling": LLAMA3},
        {"rope_parameters": LLAMA3 | {"rope_theta": 500000.0}},
        {"rope_parameters": LLAMA3, "rope_theta": 500000.0},
    ],
)
def test_both_layouts_of_rope_are_read(layout: dict[str, Any]) -> None:
    rope = llama(max_position_embeddings=131072, **layout).rope
    assert (rope.theta, rope.scaling) == (500000.0, "llama3")
    assert rope.parameters == {k: float(v) for k, v in LLAMA3.items() if k != "rope_type"}


def test_old_names_of_rope_scaling_and_what_it_lacks() -> None:
    assert llama(rope_scaling={"type": "linear", "factor": 2}).rope.parameters == {"factor": 2.0}
    yarn = llama(rope_scaling={"rope_type": "yarn", "factor": 4.0, "truncate": False, "mscale": None}).rope
    assert yarn.parameters == {"factor": 4.0, "truncate": 0.0, "original_max_position_embeddings": 2048.0}
    assert llama(rope_theta=None, rope_scaling=None).rope.theta == 10000.0


@pytest.mark.parametrize("key", ["dtype", "torch_dtype"])
def test_both_names_of_the_dtype_are_read(key: str) -> None:
    assert llama(**{key: "bfloat16"}).dtype == "bfloat16"
    assert llama(**{key: "torch.float16"}).dtype == "float16"


def test_head_dim_and_kv_heads_that_are_absent_or_null() -> None:
    small = llama(hidden_size=64, num_attention_heads=4)
    assert (small.head_dim, small.num_kv_heads) == (16, 4)
    assert llama(hidden_size=64, num_attention_heads=4, head_dim=32).head_dim == 32
    mistral = {"architectures": ["MistralForCausalLM"]}
    assert config_from_hf(mistral | {"num_key_value_heads": None}).num_kv_heads == 32


def test_biases_follow_the_architecture() -> None:
    assert (qwen().qkv_bias, qwen().output_bias) == (True, False)
    assert not llama().qkv_bias
    biased = llama(attention_bias=True, mlp_bias=True)
    assert (biased.qkv_bias, biased.output_bias, biased.mlp_bias) == (True, True, True)
    mistral = config_from_hf({"architectures": ["MistralForCausalLM"], "attention_bias": True})
    assert not mistral.qkv_bias


def test_several_eos_ids_and_none() -> None:
    assert llama(eos_token_id=[2, 7]).eos_token_ids == (2, 7)
    assert llama(eos_token_id=None).eos_token_ids == ()


def test_an_unknown_architecture_is_told_with_the_supported_ones() -> None:
    with pytest.raises(ModelError, match="GPT2LMHeadModel is not supported; supported are OPTForCausalLM, Llama"):
        config_from_hf({"architectures": ["GPT2LMHeadModel"]})
    with pytest.raises(ModelError, match="names no architecture; supported are"):
        config_from_hf({})


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"hidden_size": "4096"}, "hidden_size is '4096'; it must be an integer of at least 1"),
        ({"num_hidden_layers": 0}, "num_hidden_layers is 0; it must be"),
        ({"vocab_size": True}, "vocab_size is True"),
        ({"tie_word_embeddings": 1}, "tie_word_embeddings is 1; it must be true or false"),
        ({"rms_norm_eps": "small"}, "rms_norm_eps is 'small'"),
        ({"hidden_act": 3}, "hidden_act is 3"),
        ({"num_key_value_heads": 3}, "32 attention heads are no multiple of 3 key-value heads"),
        ({"head_dim": 3}, "head_dim is 3; rotary embeddings need an even one"),
        ({"eos_token_id": 40000}, "eos_token_id 40000 is outside the vocabulary of 32000"),
        ({"eos_token_id": "</s>"}, "eos_token_id is '</s>'"),
        ({"rope_scaling": {"rope_type": "mrope"}}, "rope scaling 'mrope' is not supported; supported are default"),
        ({"rope_scaling": {"type": "linear", "factor": "2"}}, "rope parameter factor is '2'"),
        ({"rope_parameters": {"full_attention": {"rope_theta": 1.0}}}, "differ by layer type"),
        ({"partial_rotary_factor": 0.5}, "partial_rotary_factor is 0.5"),
        ({"torch_dtype": "float8_e4m3fn"}, "dtype is 'float8_e4m3fn'; supported are float32"),
        ({"quantization_config": {"quant_method": "awq"}}, "the weights are quantized \\(awq\\)"),
        ({"quantization_config": 5}, "the weights are quantized \\(5\\)"),
        ({"architectures": True}, "architectures is True; it must be a list of names"),
        ({"architectures": [5]}, r"architectures is \[5\]; it must be a list of names"),
        ({"rope_theta": [1]}, r"rope parameter rope_theta is \[1\]; it must be a number between"),
        ({"rope_theta": [10000.0]}, r"rope_theta is \[10000\.0\]; it must be a number"),
        ({"rope_theta": 0}, "rope parameter rope_theta is 0; it must be a number between"),
        ({"rope_theta": "high"}, "rope parameter rope_theta is 'high'"),
        ({"rope_scaling": 5}, "rope_scaling is 5; it must be an object"),
        ({"rope_parameters": [1]}, r"rope_parameters is \[1\]; it must be an object"),
        ({"rope_scaling": {"type": "linear", "factor": 0}}, "rope parameter factor is 0; it must be a number between"),
        ({"rope_scaling": {"type": "linear", "factor": 1e-320}}, "rope parameter factor is 1e-320; it must be"),
        ({"rope_scaling": {"type": "linear", "factor": float("nan")}}, "rope parameter factor is nan; it must be"),
        ({"rope_scaling": {"type": "yarn", "factor": 2, "beta_fast": 0}}, "rope parameter beta_fast is 0; it must be"),
        (
            {"rope_scaling": LLAMA3 | {"low_freq_factor": 4}},
            "low_freq_factor is 4; it must be below high",
        ),
        ({"rope_scaling": LLAMA3, "original_max_position_embeddings": [1]}, "original_max_position_embeddings is"),
        ({"initializer_range": float("inf")}, "initializer_range is inf; it must be a number of at least 0"),
        ({"rms_norm_eps": 10**400}, "rms_norm_eps is 10*; it must be a number of at least 0"),
        ({"hidden_size": 2**31}, "hidden_size is 2147483648; it must be an integer of at least 1 and at most"),
        ({"bos_token_id": "<s>"}, "bos_token_id is '<s>'; it must be an id or null"),
    ],
)
def test_values_that_can_not_be_are_told_by_their_key(changes: dict[str, Any], said: str) -> None:
    with pytest.raises(ModelError, match=said):
        llama(**changes)


def test_layer_types_must_fit_the_layers() -> None:
    sliding = {"use_sliding_window": True, "sliding_window": 8}
    with pytest.raises(ModelError, match="layer_types has 1 entries; num_hidden_layers is 4"):
        qwen(layer_types=["full_attention"], **sliding)
    with pytest.raises(ModelError, match="layer_types has 'chunked_attention'"):
        qwen(layer_types=["chunked_attention"] * 4, **sliding)
    with pytest.raises(ModelError, match="layer_types is 5; it must be a list of names"):
        qwen(layer_types=5, **sliding)
    with pytest.raises(ModelError, match="max_window_layers is 'x'; it must be an integer"):
        qwen(max_window_layers="x", **sliding)
    with pytest.raises(ModelError, match="sliding_window is 'x'; it must be an integer"):
        qwen(use_sliding_window=True, sliding_window="x")
