"""GGUF: written by its own library and read back, un-permuted and dequantized.

SmolLM2's own file is held against the transformers library in tests of the whole engine.
"""

from pathlib import Path
from typing import Any

import gguf
import numpy as np
import numpy.typing as npt
import pytest
import torch

from serbench_engine.errors import ModelError
from serbench_engine.models.catalogue import resolve_model
from serbench_engine.models.config import ModelConfig
from serbench_engine.models.hf_config import config_from_hf
from serbench_engine.text.tokenizer import load_tokenizer
from serbench_engine.weights.gguf_file import GGUFModel
from serbench_engine.weights.names import expected_shapes
from serbench_engine.weights.reader import iterate_weights
from tests.engine.weights.folders import LLAMA, Tensors, random_tensors

Array = npt.NDArray[np.float32]

RAW = LLAMA | {"hidden_size": 32, "intermediate_size": 64, "tie_word_embeddings": True}
NAMES = {
    "model.embed_tokens": "token_embd",
    "model.norm": "output_norm",
    "lm_head": "output",
    "input_layernorm": "attn_norm",
    "self_attn.q_proj": "attn_q",
    "self_attn.k_proj": "attn_k",
    "self_attn.v_proj": "attn_v",
    "self_attn.o_proj": "attn_output",
    "post_attention_layernorm": "ffn_norm",
    "mlp.gate_proj": "ffn_gate",
    "mlp.up_proj": "ffn_up",
    "mlp.down_proj": "ffn_down",
}


def gguf_name(name: str) -> str:
    stem = name.removesuffix(".weight")
    if stem in NAMES:
        return f"{NAMES[stem]}.weight"
    _, _, layer, rest = stem.split(".", 3)
    return f"blk.{layer}.{NAMES[rest]}.weight"


def permute(rows: Array, heads: int) -> Array:
    """The order of q and k rows that GGUF's converter gives them."""
    halves = rows.reshape(heads, 2, rows.shape[0] // heads // 2, rows.shape[1])
    return halves.swapaxes(1, 2).reshape(rows.shape)


def write_gguf(path: Path, tensors: Tensors, config: ModelConfig, quantize: bool = False, **extra: Any) -> None:
    writer = gguf.GGUFWriter(path, extra.pop("architecture", "llama"))
    writer.add_block_count(config.num_layers)
    writer.add_context_length(config.max_model_len)
    writer.add_embedding_length(config.hidden_size)
    writer.add_feed_forward_length(config.intermediate_size)
    writer.add_head_count(config.num_heads)
    writer.add_head_count_kv(config.num_kv_heads)
    writer.add_layer_norm_rms_eps(config.norm_eps)
    writer.add_rope_freq_base(config.rope.theta)
    writer.add_vocab_size(config.vocab_size)
    for key, value in extra.items():
        getattr(writer, f"add_{key}")(value)
    for name, tensor in tensors.items():
        array = tensor.numpy()
        if name.endswith(("q_proj.weight", "k_proj.weight")):
            array = permute(array, config.num_heads if "q_proj" in name else config.num_kv_heads)
        array = np.ascontiguousarray(array)
        if quantize and array.ndim == 2:
            kind = gguf.GGMLQuantizationType.Q8_0
            writer.add_tensor(gguf_name(name), gguf.quantize(array, kind), raw_dtype=kind)
        else:
            writer.add_tensor(gguf_name(name), array)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


@pytest.fixture
def config() -> ModelConfig:
    return config_from_hf(RAW)


def read(path: Path) -> tuple[Tensors, ModelConfig]:
    model = resolve_model(str(path))
    assert isinstance(model.config, ModelConfig)
    return dict(iterate_weights(model.weights, model.config)), model.config


def test_tensors_come_back_as_they_were(tmp_path: Path, config: ModelConfig) -> None:
    tensors = random_tensors(RAW)
    write_gguf(tmp_path / "tiny.gguf", tensors, config)
    found, read_config = read(tmp_path / "tiny.gguf")
    assert read_config == config_from_hf(RAW | {"bos_token_id": None, "eos_token_id": None})
    assert found.keys() == tensors.keys() == expected_shapes(config).keys()
    assert all(torch.equal(found[name], tensors[name]) for name in tensors)


def test_quantized_tensors_are_near_and_float32(tmp_path: Path, config: ModelConfig) -> None:
    tensors = random_tensors(RAW)
    write_gguf(tmp_path / "tiny.gguf", tensors, config, quantize=True)
    found, _ = read(tmp_path / "tiny.gguf")
    for name, tensor in tensors.items():
        assert found[name].dtype == torch.float32
        torch.testing.assert_close(found[name], tensor, rtol=0, atol=0.02)
    assert not all(torch.equal(found[name], tensors[name]) for name in tensors)


def test_a_head_of_its_own_unties_the_embedding(tmp_path: Path) -> None:
    untied = RAW | {"tie_word_embeddings": False}
    write_gguf(tmp_path / "tiny.gguf", random_tensors(untied), config_from_hf(untied))
    found, config = read(tmp_path / "tiny.gguf")
    assert not config.tie_word_embeddings
    assert "lm_head.weight" in found


def test_the_float32_of_the_metadata_is_read_as_the_decimal_it_means(tmp_path: Path) -> None:
    raw = RAW | {"rms_norm_eps": 1e-5, "rope_theta": 1e6}
    write_gguf(tmp_path / "tiny.gguf", random_tensors(raw), config_from_hf(raw))
    found = GGUFModel(tmp_path / "tiny.gguf").hf_config()
    assert (found["rms_norm_eps"], found["rope_theta"]) == (1e-5, 1e6)


def test_a_truncated_file_is_one_clear_line(tmp_path: Path, config: ModelConfig) -> None:
    path = tmp_path / "tiny.gguf"
    write_gguf(path, random_tensors(RAW), config)
    whole = path.read_bytes()
    for size in (30, 200, len(whole) // 2, len(whole) - 64):
        path.write_bytes(whole[:size])
        with pytest.raises(ModelError, match="is no GGUF file, or a truncated one") as caught:
            read(path)
        assert "\n" not in str(caught.value)


def test_another_architecture_and_rope_scaling_are_refused(tmp_path: Path, config: ModelConfig) -> None:
    write_gguf(tmp_path / "qwen.gguf", {}, config, architecture="qwen2")
    with pytest.raises(ModelError, match="has the architecture 'qwen2'; from GGUF, 'llama' is supported"):
        resolve_model(str(tmp_path / "qwen.gguf"))
    write_gguf(tmp_path / "scaled.gguf", {}, config, rope_scaling_type=gguf.RopeScalingType.YARN)
    with pytest.raises(ModelError, match="scales its rotary embedding"):
        resolve_model(str(tmp_path / "scaled.gguf"))


def test_a_tensor_that_is_not_a_llamas_is_named(tmp_path: Path, config: ModelConfig) -> None:
    write_gguf(tmp_path / "tiny.gguf", random_tensors(RAW), config)
    model = GGUFModel(tmp_path / "tiny.gguf")
    model._reader.tensors[3] = model._reader.tensors[3]._replace(name="blk.0.ssm_conv1d.weight")
    with pytest.raises(ModelError, match=r"tensor blk\.0\.ssm_conv1d\.weight is not part of a Llama model"):
        dict(model.tensors(config))


def test_its_own_sentencepiece_tokenizer_is_written_once(
    tmp_path: Path, config: ModelConfig, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    tokens = ["<unk>", "<s>", "</s>", *(f"<0x{b:02X}>" for b in range(3)), "▁", "a", "b", "ab", "▁ab"]
    scores = [0.0] * 6 + [-9.0, -8.0, -8.0, -1.0, -2.0]
    kinds = [2, 3, 3, 6, 6, 6, 1, 1, 1, 1, 1]
    write_gguf(
        tmp_path / "tiny.gguf",
        random_tensors(RAW),
        config,
        tokenizer_model="llama",
        token_list=tokens,
        token_scores=scores,
        token_types=kinds,
        bos_token_id=1,
        eos_token_id=2,
    )
    model = resolve_model(str(tmp_path / "tiny.gguf"))
    tokenizer = load_tokenizer(model.tokenizer)
    assert model.tokenizer is not None
    assert model.tokenizer.startswith(str(tmp_path / "cache"))
    assert tokenizer.encode("abba") == [1, 10, 8, 7]
    assert tokenizer.decode([1, 10, 8, 7, 2]) == "abba"
    assert (tokenizer.bos_token_id, tokenizer.eos_token_id) == (1, 2)
    assert resolve_model(str(tmp_path / "tiny.gguf")).tokenizer == model.tokenizer
