"""Which executors there are, and what they refuse before anything is started."""

import pytest

from serbench_engine.errors import ConfigError
from serbench_engine.executor.inproc import InprocExecutor
from serbench_engine.executor.registry import EXECUTOR_TRANSPORTS, check_executor, make_executor
from serbench_engine.models.config import ModelConfig, ResolvedModel, WeightsSource
from serbench_engine.transport.registry import TRANSPORTS
from tests.engine.executor.workers import sim_spec


def test_every_transport_has_exactly_one_executor() -> None:
    assert sorted(name for names in EXECUTOR_TRANSPORTS.values() for name in names) == sorted(TRANSPORTS)


@pytest.mark.parametrize(
    ("kind", "transport", "message"),
    [
        ("inproc", "shm", "executor inproc does not work with transport shm; it works with inproc"),
        ("mp", "inproc", "executor mp does not work with transport inproc; it works with pipe, shm, zmq"),
        ("ray", "shm", "no executor 'ray'; there are inproc, mp"),
        ("mp", "tcp", "no transport 'tcp'; there are inproc, pipe, shm, zmq"),
    ],
)
def test_a_combination_that_can_not_be_says_what_can(kind: str, transport: str, message: str) -> None:
    with pytest.raises(ConfigError) as caught:
        check_executor(kind, transport)
    assert str(caught.value) == message


def test_the_combinations_that_can_be_pass() -> None:
    for kind, transports in EXECUTOR_TRANSPORTS.items():
        for transport in transports:
            check_executor(kind, transport)


def test_an_executor_by_its_name() -> None:
    executor = make_executor("inproc", sim_spec(), num_workers=2)
    assert isinstance(executor, InprocExecutor)
    assert executor.num_workers == 2


@pytest.mark.parametrize("kind", ["inproc", "mp"])
def test_what_can_not_be_started_is_refused_at_once(kind: str) -> None:
    real = ModelConfig("OPTForCausalLM", "opt", 100, 8, 16, 1, 2, 2, 4, 64, True, "relu", ())
    spec = sim_spec()
    with pytest.raises(ConfigError, match="0 workers"):
        make_executor(kind, spec, num_workers=0)
    for step_timeout_s in (0.0, 1e300, float("nan")):  # the system's waits take no more than 31 bits of ms
        with pytest.raises(ConfigError, match=r"step timeout of .* s; it must be above 0 and at most 1000000 s"):
            make_executor(kind, spec, step_timeout_s=step_timeout_s)
    many = type(spec)(ResolvedModel("opt", real, WeightsSource("dummy"), "x"), "float32", "cpu", 16, 8, 64)
    with pytest.raises(ConfigError, match="2 workers: opt runs on 1"):
        make_executor(kind, many, num_workers=2)
