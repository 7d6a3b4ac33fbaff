"""Tests what the doctor makes of machines that are not this one. They do not know how findings are shown."""

from pathlib import Path

import msgspec
import pytest

from serbench.doctor import Finding, hub_cache, kernels, machine, memory, models_at_hand, shared_memory, threads
from serbench.environment import Environment
from tests.serbench.mocks import ENVIRONMENT


def found(findings: list[Finding], what: str) -> Finding:
    return next(finding for finding in findings if finding.what == what)


def with_(**changes: object) -> Environment:
    return msgspec.structs.replace(ENVIRONMENT, **changes)


def test_one_core_needs_care() -> None:
    assert found(list(machine(with_(cores=1))), "cores").state == "care"
    assert found(list(machine(with_(cores=2))), "cores").state == "fine"


def test_a_busy_machine_needs_care() -> None:
    assert found(list(machine(with_(load_average=1.5))), "load").state == "care"
    assert found(list(machine(with_(load_average=0.5))), "load").state == "fine"


@pytest.mark.parametrize(
    ("variables", "policy", "number"),
    [
        ({}, "care", "fine"),
        ({"OMP_WAIT_POLICY": "active"}, "care", "fine"),
        ({"OMP_WAIT_POLICY": "PASSIVE", "OMP_NUM_THREADS": "2"}, "fine", "fine"),
        ({"OMP_WAIT_POLICY": "passive", "OMP_NUM_THREADS": "3"}, "fine", "care"),
    ],
)
def test_threads(variables: dict[str, str], policy: str, number: str) -> None:
    findings = list(threads(with_(threads=variables)))
    assert found(findings, "OMP_WAIT_POLICY").state == policy
    assert found(findings, "OMP_NUM_THREADS").state == number


def test_a_machine_that_compiles_no_kernels_needs_care() -> None:
    assert kernels("").state == "fine"
    finding = kernels("no C++ compiler: none of c++, g++, clang++ is there")
    assert finding.state == "care"
    assert "no C++ compiler" in finding.found


def test_little_memory_needs_care() -> None:
    assert memory(1 << 30).state == "care"
    assert memory(64 << 30).state == "fine"


def test_a_machine_without_dev_shm_is_fine(tmp_path: Path) -> None:
    [finding] = shared_memory(tmp_path / "none")
    assert finding.state == "fine"


def test_the_hub_s_cache_is_where_its_variables_say(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HF_HUB_CACHE", str(tmp_path))
    (tmp_path / "models--facebook--opt-125m").mkdir()
    assert "facebook/opt-125m" in models_at_hand().found
    monkeypatch.delenv("HF_HUB_CACHE")
    monkeypatch.setenv("HF_HOME", str(tmp_path / "home"))
    assert hub_cache() == tmp_path / "home" / "hub"
    monkeypatch.delenv("HF_HOME")
    monkeypatch.delenv("XDG_CACHE_HOME", raising=False)
    assert hub_cache() == Path.home() / ".cache" / "huggingface" / "hub"
