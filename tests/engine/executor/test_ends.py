"""How the scheduler's process can end, on purpose or not: its workers must be gone, and with them all they used."""

import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from serbench_engine.executor.registry import EXECUTOR_TRANSPORTS
from tests.engine.executor.workers import descriptors, wait_until, wait_until_gone

PROGRAM = """
import signal, sys
signal.signal(signal.SIGINT, signal.default_int_handler)  # a shell's background jobs ignore it
from serbench_engine.executor.mp import MpExecutor
from tests.engine.executor.workers import sim_spec, sim_engine, worker_pids
transport, state = sys.argv[1:]
executor = MpExecutor(sim_spec(step_us=60e6 if state == "step" else 0), num_workers=2)
engine = sim_engine(executor, transport) if state != "idle" else None
sys.stdout.write(" ".join(map(str, worker_pids())) + "\\n")
sys.stdout.flush()
if engine is not None:
    engine.step()
if state == "error":
    raise SystemExit("an error of the user's own")
if state == "exit":
    raise SystemExit(0)
sys.stdin.read()
"""

ROOT = Path(__file__).resolve().parents[3]
SESSIONS = [(transport, "session") for transport in EXECUTOR_TRANSPORTS["mp"]]

Program = subprocess.Popen[str]
Run = Callable[[str, str], tuple[Program, list[int]]]


@pytest.fixture
def run() -> Iterator[Run]:
    """Runs the program from a command line (so with no file and no main guard), in a process group of its own."""
    programs: list[Program] = []

    def begin(transport: str, state: str) -> tuple[Program, list[int]]:
        environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
        program = subprocess.Popen(
            [sys.executable, "-c", PROGRAM, transport, state],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            env=environment,
            start_new_session=True,
        )
        programs.append(program)
        assert program.stdout is not None
        pids = [int(pid) for pid in program.stdout.readline().split()]
        assert len(pids) == 2
        return program, pids

    yield begin
    for program in programs:
        program.kill()
        program.communicate()


def named_things(pids: list[int]) -> set[str]:
    """What processes hold that has a name: open or mapped files where such things lie, and abstract sockets."""
    held: set[str] = set()
    for pid in pids:
        held.update(descriptors(pid))
        held |= set(Path(f"/proc/{pid}/maps").read_text().split())
    ours = (str(ROOT), sys.prefix, sys.base_prefix)  # which may lie in /tmp as well
    files = {one for one in held if one.startswith(("/tmp/", "/dev/shm/")) and not one.startswith(ours)}
    files = {one for one in files if os.path.lexists(one)}
    return files | {name for inode, name in abstract_sockets().items() if f"socket:[{inode}]" in held}


def abstract_sockets() -> dict[str, str]:
    """Inode → name of every abstract socket on this machine."""
    lines = [line.split() for line in Path("/proc/net/unix").read_text().splitlines()[1:]]
    return {fields[6]: fields[7] for fields in lines if len(fields) == 8 and fields[7].startswith("@")}


@pytest.mark.parametrize(("transport", "state"), [*SESSIONS, ("shm", "idle"), ("shm", "step")])
def test_sigkill_leaves_no_process_and_no_name(transport: str, state: str, run: Run) -> None:
    program, pids = run(transport, state)
    names = named_things([program.pid, *pids])
    assert all(name.startswith("@serbench-") for name in names)  # files would stay
    program.kill()
    program.wait()
    wait_until_gone(pids)
    wait_until(lambda: not names & set(abstract_sockets().values()), f"{names} are gone")


@pytest.mark.parametrize("state", ["idle", "session", "step"])
def test_ctrl_c_leaves_no_process_and_shows_the_programs_traceback_only(state: str, run: Run) -> None:
    program, pids = run("shm", state)
    os.killpg(program.pid, signal.SIGINT)  # as a terminal does: to the workers too
    _, errors = program.communicate(timeout=30)
    assert program.returncode == -signal.SIGINT
    assert errors.count("KeyboardInterrupt") == 1
    assert errors.count("Traceback") == 1
    wait_until_gone(pids)


def test_what_ends_a_whole_process_group_is_left_to_the_program(run: Run) -> None:
    _, pids = run("shm", "session")
    for pid in pids:
        fields = dict(line.split(":", 1) for line in Path(f"/proc/{pid}/status").read_text().splitlines())
        ignored = int(fields["SigIgn"], 16)
        assert all(ignored & 1 << (number - 1) for number in (signal.SIGINT, signal.SIGTERM))


@pytest.mark.parametrize(("state", "code"), [("exit", 0), ("error", 1)])
def test_a_program_that_forgets_to_close_leaves_no_process(state: str, code: int, run: Run) -> None:
    program, pids = run("pipe", state)
    _, errors = program.communicate(timeout=30)
    assert program.returncode == code
    assert errors.strip() == ("" if code == 0 else "an error of the user's own")
    wait_until_gone(pids)
