"""Workers of the simulated model for tests, sessions for them, and what the system knows of their processes."""

import gc
import os
import signal
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import psutil

from serbench_codecs.codec import Buffer
from serbench_codecs.table import TableLimits
from serbench_engine.config import EngineOptions
from serbench_engine.engine import Engine
from serbench_engine.executor.base import Executor, SessionSpec, WorkerSpec
from serbench_engine.models.config import ResolvedModel, SimConfig, WeightsSource
from serbench_engine.request import SamplingParams
from serbench_engine.transport.base import Payload

LIMITS = TableLimits(max_num_seqs=4, max_model_len=64, block_size=16, num_blocks=32, vocab_size=32768)
PATIENCE_S = 20.0


def sim_model(step_us: float = 0.0) -> ResolvedModel:
    return ResolvedModel("sim", SimConfig(step_us=step_us), WeightsSource("sim"), "sim")


def sim_spec(step_us: float = 0.0, num_blocks: int = 32) -> WorkerSpec:
    """A worker; with fewer ``num_blocks`` than a session's table has, its first step raises an IndexError."""
    return WorkerSpec(sim_model(step_us), "float32", "cpu", 16, num_blocks, 64)


def session(transport: str, codec: str = "delta") -> SessionSpec:
    return SessionSpec(codec, "packed", transport, LIMITS)


def sim_engine(executor: Executor, transport: str, codec: str = "delta", max_tokens: int = 20) -> Engine:
    """A session with four requests waiting."""
    options = EngineOptions(
        codec=codec,
        transport=transport,
        max_num_seqs=4,
        max_num_batched_tokens=64,
        max_model_len=64,
        num_blocks=32,
        validate=True,
        rolling_digest=True,
    )
    engine = Engine(executor, options, sim_model())
    for number in range(4):
        engine.add_request(str(number), [number + 1] * 5, SamplingParams(max_tokens=max_tokens, ignore_eos=True))
    return engine


def outputs(engine: Engine) -> dict[str, list[int]]:
    """Run to the end."""
    found = {}
    while engine.has_unfinished:
        for finished in engine.step().finished:
            found[finished.request_id] = finished.output_token_ids.tolist()
    return found


def size(payload: Payload) -> int:
    assert isinstance(payload.body, Buffer)
    return len(payload.body)


def worker_pids() -> list[int]:
    """The worker processes of this process, in the order of their start."""
    children = psutil.Process().children()
    workers = [child for child in children if "serbench_engine.executor.worker_process" in child.cmdline()]
    return [child.pid for child in sorted(workers, key=lambda child: (child.create_time(), child.pid))]


def stop(pid: int) -> None:
    """Have a child of this process stand still; it does when this returns."""
    os.kill(pid, signal.SIGSTOP)
    os.waitid(os.P_PID, pid, os.WSTOPPED | os.WNOWAIT)


def is_gone(pid: int) -> bool:
    """No such process, or only its remains."""
    try:
        state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except (FileNotFoundError, ProcessLookupError):
        return True
    return state == "Z"


def wait_until_gone(pids: list[int]) -> None:
    """Raises AssertionError if one lives on."""
    wait_until(lambda: all(is_gone(pid) for pid in pids), f"processes {pids} have ended")


def wait_until(holds: Callable[[], bool], what: str) -> None:
    """Raises AssertionError if ``what`` does not come true."""
    end = time.monotonic() + PATIENCE_S
    while not holds():
        assert time.monotonic() < end, f"{PATIENCE_S:g} s passed, not yet true: {what}"
        time.sleep(0.01)


def open_descriptors(pid: int | str = "self") -> list[str]:
    """What kinds of descriptors a process has, in sorted order; here, without those of garbage."""
    gc.collect()
    return sorted(one.partition("[")[0] for one in descriptors(pid))


def descriptors(pid: int | str) -> list[str]:
    """What a process has open, as the system names it."""
    held = []
    for one in os.scandir(f"/proc/{pid}/fd"):
        with suppress(FileNotFoundError):  # closed meanwhile
            held.append(os.readlink(one.path))
    return held
