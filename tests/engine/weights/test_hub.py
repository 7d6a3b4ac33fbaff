"""The hub: the local cache first, one bounded question, and what each answer means. No test reaches the network."""

import threading
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace

import huggingface_hub
import huggingface_hub.constants
import pytest
from huggingface_hub.errors import RepositoryNotFoundError

from serbench_engine.errors import ModelError
from serbench_engine.weights import hub
from serbench_engine.weights.hub import HubUnreachable, cached_snapshot, fetch_snapshot, wanted_files


def silent(line: str) -> None:
    """Hears nothing."""


def answer_with(monkeypatch: pytest.MonkeyPatch, answer: Callable[..., object]) -> None:
    monkeypatch.setattr(huggingface_hub.constants, "HF_HUB_OFFLINE", False)
    monkeypatch.setattr(huggingface_hub, "model_info", answer)


def raising(error: Exception) -> Callable[..., object]:
    def raise_it(*_: object, **__: object) -> object:
        raise error

    return raise_it


def files(*names: str) -> Callable[..., object]:
    return lambda *_, **__: SimpleNamespace(siblings=[SimpleNamespace(rfilename=name) for name in names])


def test_no_answer_means_unreachable_and_costs_no_more_than_the_timeout(monkeypatch: pytest.MonkeyPatch) -> None:
    forever = threading.Event()
    answer_with(monkeypatch, lambda *_, **__: forever.wait(60))
    monkeypatch.setattr(hub, "_PROBE_TIMEOUT_S", 0.05)
    with pytest.raises(HubUnreachable, match="no answer within"):
        fetch_snapshot("org/name", silent)
    forever.set()


def test_a_network_error_means_unreachable(monkeypatch: pytest.MonkeyPatch) -> None:
    answer_with(monkeypatch, raising(ConnectionError("Name or service not known\nmore")))
    with pytest.raises(HubUnreachable, match=r"^Name or service not known$"):
        fetch_snapshot("org/name", silent)


def test_offline_is_not_asked(monkeypatch: pytest.MonkeyPatch) -> None:
    answer_with(monkeypatch, raising(AssertionError("asked")))
    monkeypatch.setattr(huggingface_hub.constants, "HF_HUB_OFFLINE", True)
    with pytest.raises(HubUnreachable, match="HF_HUB_OFFLINE is set"):
        fetch_snapshot("org/name", silent)


def test_a_model_that_the_hub_does_not_have_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    response = SimpleNamespace(headers={}, request=None, status_code=404)
    answer_with(monkeypatch, raising(RepositoryNotFoundError("404", response=response)))  # type: ignore[arg-type]
    with pytest.raises(ModelError, match="the hub has no model org/name, or it is private"):
        fetch_snapshot("org/name", silent)


def test_what_is_wanted_is_asked_for_and_the_download_is_told(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    answer_with(monkeypatch, files("config.json", "model.safetensors", "pytorch_model.bin", "tf_model.h5"))
    asked: list[list[str]] = []

    def snapshot(repo: str, allow_patterns: list[str]) -> str:
        asked.append(allow_patterns)
        return str(tmp_path)

    monkeypatch.setattr(huggingface_hub, "snapshot_download", snapshot)
    told: list[str] = []
    assert fetch_snapshot("org/name", told.append) == tmp_path
    assert fetch_snapshot("org/name", told.append, with_weights=False) == tmp_path
    assert asked == [["config.json", "model.safetensors"], ["config.json"]]
    assert told == ["downloading org/name"] * 2


def test_a_download_that_breaks_off_is_one_line(monkeypatch: pytest.MonkeyPatch) -> None:
    answer_with(monkeypatch, files("config.json"))
    monkeypatch.setattr(huggingface_hub, "snapshot_download", raising(TimeoutError("slow\nvery")))
    with pytest.raises(ModelError, match=r"downloading org/name broke off \(slow\); what arrived is kept"):
        fetch_snapshot("org/name", silent)


@pytest.mark.parametrize(
    ("names", "expected"),
    [
        (
            ["README.md", "config.json", "model-1.safetensors", "consolidated.safetensors", "pytorch_model.bin"],
            ["config.json", "model-1.safetensors"],
        ),
        (["weights.safetensors", "tokenizer.model"], ["tokenizer.model", "weights.safetensors"]),
        (
            ["pytorch_model-1.bin", "pytorch_model.bin.index.json", "flax_model.msgpack", "merges.txt"],
            ["pytorch_model.bin.index.json", "merges.txt", "pytorch_model-1.bin"],
        ),
        (["onnx/config.json", "original/model.safetensors", "chat_template.jinja"], ["chat_template.jinja"]),
    ],
)
def test_weights_are_wanted_in_one_format_and_nothing_from_subfolders(names: list[str], expected: list[str]) -> None:
    assert wanted_files(names, with_weights=True) == expected


def test_the_local_cache_is_read_without_asking(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(huggingface_hub.constants, "HF_HUB_CACHE", str(tmp_path))
    assert cached_snapshot("org/name") is None
    assert cached_snapshot("no//name") is None
    repo = tmp_path / "models--org--name"
    snapshot = repo / "snapshots" / ("0" * 40)
    snapshot.mkdir(parents=True)
    (repo / "refs").mkdir()
    (repo / "refs" / "main").write_text("0" * 40)
    assert cached_snapshot("org/name") == snapshot
