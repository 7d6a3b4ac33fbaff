"""Reads a GGUF file of the Llama architecture as the transformers library would name and shape it, in float32.

It does not know tokenizers (text/from_gguf.py builds those from ``metadata``) or where such files come from; no torch.
"""

from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import gguf
import numpy as np
import numpy.typing as npt

from serbench_engine.errors import ModelError
from serbench_engine.models.config import ModelConfig

_TOP: Final = {
    "token_embd": "model.embed_tokens",
    "output_norm": "model.norm",
    "output": "lm_head",
}
_IN_LAYER: Final = {
    "attn_norm": "input_layernorm",
    "attn_q": "self_attn.q_proj",
    "attn_k": "self_attn.k_proj",
    "attn_v": "self_attn.v_proj",
    "attn_output": "self_attn.o_proj",
    "ffn_norm": "post_attention_layernorm",
    "ffn_gate": "mlp.gate_proj",
    "ffn_up": "mlp.up_proj",
    "ffn_down": "mlp.down_proj",
}


class GGUFModel:
    """An open GGUF file. Nothing but its metadata is read before ``tensors`` is iterated."""

    def __init__(self, path: Path) -> None:
        """Open ``path``.

        Raises:
            ModelError: no GGUF file, a truncated one, or another architecture than Llama's.
        """
        self.path = path
        try:
            self._reader = gguf.GGUFReader(path)
            architecture = self.metadata("general.architecture")
        except (ValueError, KeyError, IndexError, TypeError, OSError, OverflowError) as error:
            raise ModelError(f"{path} is no GGUF file, or a truncated one: {error}") from None
        if architecture != "llama":
            raise ModelError(f"{path} has the architecture {architecture!r}; from GGUF, 'llama' is supported")

    def metadata(self, key: str, default: Any = None) -> Any:
        """The value under ``key``, ``default`` where it is absent."""
        field = self._reader.get_field(key)
        return default if field is None else field.contents()

    def hf_config(self) -> dict[str, Any]:
        """What its ``config.json`` would say.

        Raises:
            ModelError: a key without which there is no configuration, or a rope scaling.
        """
        names = {tensor.name for tensor in self._reader.tensors}
        scaling = self.metadata("llama.rope.scaling.type", "none")
        if scaling not in ("none", None) or "rope_freqs.weight" in names:
            raise ModelError(f"{self.path} scales its rotary embedding, which is supported from safetensors only")
        heads = self._needed("attention.head_count")
        hidden = self._needed("embedding_length")
        vocab = self.metadata("llama.vocab_size") or len(self.metadata("tokenizer.ggml.tokens", []))
        return {
            "architectures": ["LlamaForCausalLM"],
            "model_type": "llama",
            "vocab_size": vocab,
            "hidden_size": hidden,
            "intermediate_size": self._needed("feed_forward_length"),
            "num_hidden_layers": self._needed("block_count"),
            "num_attention_heads": heads,
            "num_key_value_heads": self.metadata("llama.attention.head_count_kv", heads),
            "head_dim": self.metadata("llama.attention.key_length", hidden // heads),
            "hidden_act": "silu",
            "max_position_embeddings": self._needed("context_length"),
            "rms_norm_eps": _short(self._needed("attention.layer_norm_rms_epsilon")),
            "rope_theta": _short(self.metadata("llama.rope.freq_base", 10000.0)),
            "tie_word_embeddings": "output.weight" not in names,
            "bos_token_id": self.metadata("tokenizer.ggml.bos_token_id"),
            "eos_token_id": self.metadata("tokenizer.ggml.eos_token_id"),
            "torch_dtype": "float32",
        }

    def tensors(self, config: ModelConfig) -> Iterator[tuple[str, npt.NDArray[np.float32]]]:
        """Every tensor under the transformers library's name, dequantized.

        Raises:
            ModelError: a tensor that is not part of a Llama model, or a quantization that can't be read.
        """
        for tensor in self._reader.tensors:
            name = self._name(tensor.name)
            try:
                values = gguf.dequantize(tensor.data, tensor.tensor_type)
            except (NotImplementedError, ValueError) as error:
                raise ModelError(f"{self.path}: {tensor.name} can't be dequantized: {error}") from None
            array = np.array(values, dtype=np.float32).reshape(
                tensor.shape[::-1].tolist()
            )  # never the file's own pages
            if name.endswith("q_proj.weight"):
                array = _unpermute(array, config.num_heads)
            elif name.endswith("k_proj.weight"):
                array = _unpermute(array, config.num_kv_heads)
            yield name, array

    def _needed(self, key: str) -> Any:
        value = self.metadata(f"llama.{key}")
        if not isinstance(value, int | float):
            raise ModelError(f"{self.path} has no number under llama.{key}; without it there is no configuration")
        return value

    def _name(self, name: str) -> str:
        stem, _, kind = name.rpartition(".")
        parts = stem.split(".")
        if kind == "weight" and stem in _TOP:
            return f"{_TOP[stem]}.weight"
        if kind == "weight" and len(parts) == 3 and parts[0] == "blk" and parts[2] in _IN_LAYER:
            return f"model.layers.{parts[1]}.{_IN_LAYER[parts[2]]}.weight"
        raise ModelError(f"{self.path}: tensor {name} is not part of a Llama model")


def _short(value: float) -> float:
    """The shortest decimal that the float32 of GGUF metadata stands for: 1e-05, not 9.999999747378752e-06."""
    return float(str(np.float32(value)))


def _unpermute(rows: npt.NDArray[np.float32], heads: int) -> npt.NDArray[np.float32]:
    """Undo GGUF's order of q and k rows: it interleaves the halves of each head that rotary embeddings pair up."""
    # [heads · half · 2, hidden] → [heads · 2 · half, hidden]
    pairs = rows.reshape(heads, -1, 2, rows.shape[1])
    return np.ascontiguousarray(pairs.swapaxes(1, 2)).reshape(rows.shape)
