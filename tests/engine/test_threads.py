"""The thread environment and the package's lazy exports: what importing serbench_engine does and what it leaves."""

import os

import pytest

import serbench_engine
from serbench_engine.threads import THREAD_ENVIRONMENT, set_thread_environment


def test_importing_the_engine_sets_the_thread_environment() -> None:
    assert {name for name, _ in THREAD_ENVIRONMENT} <= os.environ.keys()


def test_defaults_are_set_and_the_users_choice_is_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("OMP_WAIT_POLICY", raising=False)
    monkeypatch.setenv("TOKENIZERS_PARALLELISM", "true")
    set_thread_environment()
    assert os.environ["OMP_WAIT_POLICY"] == "passive"
    assert os.environ["TOKENIZERS_PARALLELISM"] == "true"


@pytest.mark.parametrize(("policy", "spins"), [(None, "4000"), ("PASSIVE", "4000"), ("active", None)])
def test_threads_spin_briefly_where_they_wait_passively(
    monkeypatch: pytest.MonkeyPatch, policy: str | None, spins: str | None
) -> None:
    monkeypatch.delenv("GOMP_SPINCOUNT", raising=False)
    monkeypatch.delenv("OMP_WAIT_POLICY", raising=False)
    if policy is not None:
        monkeypatch.setenv("OMP_WAIT_POLICY", policy)
    set_thread_environment()
    assert os.environ.get("GOMP_SPINCOUNT") == spins


def test_an_unknown_export_names_those_there_are() -> None:
    with pytest.raises(AttributeError, match=r"no attribute 'Engine'.*LLM, SamplingParams"):
        _ = serbench_engine.Engine
