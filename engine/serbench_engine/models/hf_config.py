"""Turns a ``config.json`` of the transformers library into a ModelConfig; missing keys mean what they mean there.

It does not know where the file comes from, and imports neither transformers nor torch.
"""

from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Any, Final, Literal

import msgspec

from serbench_engine.errors import ModelError
from serbench_engine.models.config import ModelConfig, RopeConfig

Raw = Mapping[str, Any]

_DTYPES: Final = ("float32", "bfloat16", "float16")
_SCALINGS: Final = ("default", "linear", "dynamic", "llama3", "yarn", "longrope")
_WITH_ORIGINAL_LENGTH: Final = ("llama3", "yarn", "longrope")
_ROPE_NAMES: Final = ("rope_theta", "rope_type", "type", "partial_rotary_factor")

_MOST: Final = (1 << 31) - 1
_MOST_OF_OTHERS: Final = 1e6
"""Of a number that is no count: far from any model's, and its products still are float32."""

_LARGEST: Final = 1e30
_SMALLEST: Final = 1e-6
_ROPE_LEAST: Final[Mapping[str, float]] = MappingProxyType(
    {
        "rope_theta": 1 + _SMALLEST,
        "factor": _SMALLEST,
        "long_factor": _SMALLEST,
        "short_factor": _SMALLEST,
        "beta_fast": _SMALLEST,
        "beta_slow": _SMALLEST,
        "original_max_position_embeddings": 2,
    }
)
"""Below these an angle, or a logarithm on the way to it, is no number. The others may be 0, or negative."""


class _Family(msgspec.Struct, frozen=True):
    """What the transformers library's configuration class of one architecture defaults to."""

    vocab_size: int
    intermediate_size: int
    max_position_embeddings: int
    num_kv_heads: int | None
    eos_token_id: int | None
    bos_token_id: int | None
    head_dim: int | None = None
    qkv_bias: bool | Literal["attention_bias"] = "attention_bias"
    output_bias: bool | Literal["attention_bias"] = "attention_bias"
    qk_norm: bool = False
    windows: Literal["none", "every", "layers"] = "none"


_LLAMA_LIKE: Final = {
    "LlamaForCausalLM": _Family(32000, 11008, 2048, None, 2, 1),
    "MistralForCausalLM": _Family(32000, 14336, 131072, 8, 2, 1, qkv_bias=False, output_bias=False, windows="every"),
    "Qwen2ForCausalLM": _Family(
        151936, 22016, 32768, 32, None, None, qkv_bias=True, output_bias=False, windows="layers"
    ),
    "Qwen3ForCausalLM": _Family(151936, 22016, 32768, 32, None, None, head_dim=128, qk_norm=True, windows="layers"),
}

SUPPORTED_ARCHITECTURES: Final = ("OPTForCausalLM", *_LLAMA_LIKE)


def config_from_hf(raw: Raw) -> ModelConfig:
    """Read the layouts of transformers 4 and 5 (``rope_theta`` and ``rope_scaling``, or ``rope_parameters``; …).

    Raises:
        ModelError: an architecture that is not supported (the supported ones are named), quantized weights, or a value
            that can't be, with its key.
    """
    if not isinstance(raw, Mapping):
        raise ModelError(f"the configuration is a {type(raw).__name__}; it must be a JSON object")
    architecture = _architecture(raw)
    if quantization := raw.get("quantization_config"):
        known = isinstance(quantization, Mapping)
        method = quantization.get("quant_method", "an unknown method") if known else quantization
        raise ModelError(f"the weights are quantized ({method}); float32, bfloat16 or float16 ones are needed")
    config = _opt(raw) if architecture == "OPTForCausalLM" else _llama(raw, architecture, _LLAMA_LIKE[architecture])
    _check(config)
    return config


def _architecture(raw: Raw) -> str:
    names = _value(raw, "architectures", [], _is_texts, "a list of names")
    for name in names:
        if name in SUPPORTED_ARCHITECTURES:
            return str(name)
    supported = ", ".join(SUPPORTED_ARCHITECTURES)
    if not names:
        raise ModelError(f"the configuration names no architecture; supported are {supported}")
    raise ModelError(f"architecture {', '.join(names)} is not supported; supported are {supported}")


def _opt(raw: Raw) -> ModelConfig:
    if not _flag(raw, "layer_norm_elementwise_affine", True):
        raise ModelError("layer_norm_elementwise_affine is false; OPT is supported with learnt layer norms only")
    hidden = _count(raw, "hidden_size", 768)
    heads = _count(raw, "num_attention_heads", 12)
    layers = _count(raw, "num_hidden_layers", 12)
    norm_before = _flag(raw, "do_layer_norm_before", True)
    return ModelConfig(
        architecture="OPTForCausalLM",
        family="opt",
        vocab_size=_count(raw, "vocab_size", 50272),
        hidden_size=hidden,
        intermediate_size=_count(raw, "ffn_dim", 3072),
        num_layers=layers,
        num_heads=heads,
        num_kv_heads=heads,
        head_dim=hidden // heads,
        max_model_len=_count(raw, "max_position_embeddings", 2048),
        tie_word_embeddings=_flag(raw, "tie_word_embeddings", True),
        activation=_text(raw, "activation_function", "relu"),
        eos_token_ids=_eos_ids(raw.get("eos_token_id", 2)),
        bos_token_id=_bos_id(raw, 2),
        init_std=_number(raw, "init_std", 0.02),
        dtype=_dtype(raw),
        sliding_windows=(0,) * layers,
        word_embed_proj_dim=_count(raw, "word_embed_proj_dim", hidden),
        norm_before=norm_before,
        final_norm=norm_before and not _flag(raw, "_remove_final_layer_norm", False),
        enable_bias=_flag(raw, "enable_bias", True),
    )


def _llama(raw: Raw, architecture: str, family: _Family) -> ModelConfig:
    hidden = _count(raw, "hidden_size", 4096)
    heads = _count(raw, "num_attention_heads", 32)
    layers = _count(raw, "num_hidden_layers", 32)
    length = _count(raw, "max_position_embeddings", family.max_position_embeddings)
    kv_default = heads if family.num_kv_heads is None else family.num_kv_heads
    attention_bias = _flag(raw, "attention_bias", False)
    is_llama = architecture == "LlamaForCausalLM"
    return ModelConfig(
        architecture=architecture,
        family="llama",
        vocab_size=_count(raw, "vocab_size", family.vocab_size),
        hidden_size=hidden,
        intermediate_size=_count(raw, "intermediate_size", family.intermediate_size),
        num_layers=layers,
        num_heads=heads,
        num_kv_heads=_count(raw, "num_key_value_heads", heads if "num_key_value_heads" in raw else kv_default),
        head_dim=_count(raw, "head_dim", family.head_dim or hidden // heads),
        max_model_len=length,
        tie_word_embeddings=_flag(raw, "tie_word_embeddings", False),
        activation=_text(raw, "hidden_act", "silu"),
        eos_token_ids=_eos_ids(raw.get("eos_token_id", family.eos_token_id)),
        bos_token_id=_bos_id(raw, family.bos_token_id),
        init_std=_number(raw, "initializer_range", 0.02),
        dtype=_dtype(raw),
        norm_eps=_number(raw, "rms_norm_eps", 1e-6),
        sliding_windows=_windows(raw, family, layers),
        rope=_rope(raw, length),
        qkv_bias=attention_bias if family.qkv_bias == "attention_bias" else family.qkv_bias,
        output_bias=attention_bias if family.output_bias == "attention_bias" else family.output_bias,
        mlp_bias=is_llama and _flag(raw, "mlp_bias", False),
        qk_norm=family.qk_norm,
    )


def _windows(raw: Raw, family: _Family, layers: int) -> tuple[int, ...]:
    """One window a layer, 0 for none: Mistral's holds for every layer, Qwen's for those of ``layer_types``."""
    window = 0 if raw.get("sliding_window", 4096) is None else _count(raw, "sliding_window", 4096, least=0)
    if family.windows == "every":
        return (window,) * layers
    if family.windows == "none" or not _flag(raw, "use_sliding_window", False):
        return (0,) * layers
    kinds = raw.get("layer_types")
    if kinds is None:
        first = _count(raw, "max_window_layers", 28, least=0)
        return tuple(window if layer >= first else 0 for layer in range(layers))
    if not _is_texts(kinds):
        raise ModelError(f"layer_types is {kinds!r}; it must be a list of names")
    if len(kinds) != layers:
        raise ModelError(f"layer_types has {len(kinds)} entries; num_hidden_layers is {layers}")
    unknown = sorted(set(kinds) - {"sliding_attention", "full_attention"})
    if unknown:
        raise ModelError(f"layer_types has {unknown[0]!r}; supported are 'full_attention' and 'sliding_attention'")
    return tuple(window if kind == "sliding_attention" else 0 for kind in kinds)


def _rope(raw: Raw, length: int) -> RopeConfig:
    # Precedence as in transformers: rope_scaling wins over rope_parameters, whose theta wins over rope_theta.
    key = "rope_scaling" if raw.get("rope_scaling") else "rope_parameters"
    given = dict(_value(raw, key, {}, lambda value: isinstance(value, Mapping), "an object"))
    if any(isinstance(value, Mapping) for value in given.values()):
        raise ModelError("rope_parameters differ by layer type; one set for all layers is supported")
    scaling = given.get("rope_type", given.get("type", "default"))
    if scaling not in _SCALINGS:
        raise ModelError(f"rope scaling {scaling!r} is not supported; supported are {', '.join(_SCALINGS)}")
    partial = given.get("partial_rotary_factor", raw.get("partial_rotary_factor"))
    if partial not in (None, 1, 1.0):
        raise ModelError(f"partial_rotary_factor is {partial}; only rotary embeddings of whole heads are supported")
    if scaling in _WITH_ORIGINAL_LENGTH:
        name = "original_max_position_embeddings"
        given[name] = _first(raw.get(name), given.get(name), length)
    parameters = {k: _rope_parameter(k, v) for k, v in sorted(given.items()) if k not in _ROPE_NAMES and v is not None}
    if scaling == "llama3":
        _check_llama3(parameters)
    theta = _rope_parameter("rope_theta", _first(given.get("rope_theta"), raw.get("rope_theta"), 10000.0))
    if isinstance(theta, list):
        raise ModelError(f"rope_theta is {theta}; it must be a number")
    return RopeConfig(theta, scaling, parameters)


def _first(*values: object) -> object:
    """The first that is given."""
    return next(value for value in values if value is not None)


def _rope_parameter(key: str, value: Any) -> float | list[float]:
    least = _ROPE_LEAST.get(key, -_LARGEST)
    numbers = value if isinstance(value, list) else [value]
    if not all(isinstance(one, int | float) and least <= one <= _LARGEST for one in numbers):
        wanted = f"between {least:g} and {_LARGEST:g}"
        raise ModelError(f"rope parameter {key} is {value!r}; it must be a number {wanted}, or a list of such")
    return [float(one) for one in numbers] if isinstance(value, list) else float(numbers[0])


def _check_llama3(parameters: Mapping[str, Any]) -> None:
    """Between these frequencies llama3 blends; those that are missing or lists are told where the model is built."""
    low, high = parameters.get("low_freq_factor"), parameters.get("high_freq_factor")
    if isinstance(low, float) and isinstance(high, float) and not low + _SMALLEST <= high:
        raise ModelError(f"rope parameter low_freq_factor is {low:g}; it must be below high_freq_factor, {high:g}")


def with_eos_ids(config: ModelConfig, value: object) -> ModelConfig:
    """``config`` with the ids of another file's ``eos_token_id`` as well.

    Raises:
        ModelError: they are no ids of its vocabulary.
    """
    ids = tuple(dict.fromkeys((*config.eos_token_ids, *_eos_ids(value))))
    config = msgspec.structs.replace(config, eos_token_ids=ids)
    _check(config)
    return config


def _eos_ids(value: object) -> tuple[int, ...]:
    """``eos_token_id`` as a tuple: the key may hold an id, a list of them, or null."""
    if value is None:
        return ()
    ids = value if isinstance(value, list) else [value]
    if not all(type(one) is int for one in ids):
        raise ModelError(f"eos_token_id is {value!r}; it must be an id or a list of ids")
    return tuple(ids)


def _bos_id(raw: Raw, default: int | None) -> int | None:
    value = raw.get("bos_token_id", default)
    if value is not None and (type(value) is not int or abs(value) > _MOST):
        raise ModelError(f"bos_token_id is {value!r}; it must be an id or null")
    return value


def _dtype(raw: Raw) -> str:
    name = str(raw.get("dtype") or raw.get("torch_dtype") or "float32").removeprefix("torch.")
    if name not in _DTYPES:
        raise ModelError(f"dtype is {name!r}; supported are {', '.join(_DTYPES)}")
    return name


def _value(raw: Raw, key: str, default: Any, right: Callable[[Any], bool], wanted: str) -> Any:
    """``raw[key]``, its default where it is absent or null; refused if not ``right``."""
    value = raw.get(key)
    value = default if value is None else value
    if not right(value):
        raise ModelError(f"{key} is {value!r}; it must be {wanted}")
    return value


def _count(raw: Raw, key: str, default: int, least: int = 1) -> int:
    def right(value: Any) -> bool:
        return isinstance(value, int) and not isinstance(value, bool) and least <= value <= _MOST

    return int(_value(raw, key, default, right, f"an integer of at least {least} and at most {_MOST}"))


def _number(raw: Raw, key: str, default: float) -> float:
    def right(value: Any) -> bool:
        return isinstance(value, int | float) and not isinstance(value, bool) and 0 <= value <= _MOST_OF_OTHERS

    return float(_value(raw, key, default, right, f"a number of at least 0 and at most {_MOST_OF_OTHERS:g}"))


def _flag(raw: Raw, key: str, default: bool) -> bool:
    return bool(_value(raw, key, default, lambda value: isinstance(value, bool), "true or false"))


def _text(raw: Raw, key: str, default: str) -> str:
    return str(_value(raw, key, default, lambda value: isinstance(value, str), "a string"))


def _is_texts(value: object) -> bool:
    return isinstance(value, list) and all(isinstance(one, str) for one in value)


def _check(config: ModelConfig) -> None:
    """Relations between fields without which no model can be built."""
    if config.family == "opt" and config.hidden_size % config.num_heads:
        raise ModelError(f"hidden_size {config.hidden_size} is no multiple of {config.num_heads} attention heads")
    if config.num_heads % config.num_kv_heads:
        raise ModelError(f"{config.num_heads} attention heads are no multiple of {config.num_kv_heads} key-value heads")
    if config.head_dim % 2 and config.family == "llama":
        raise ModelError(f"head_dim is {config.head_dim}; rotary embeddings need an even one")
    bad = [one for one in config.eos_token_ids if not 0 <= one < config.vocab_size]
    if bad:
        raise ModelError(f"eos_token_id {bad[0]} is outside the vocabulary of {config.vocab_size}")
