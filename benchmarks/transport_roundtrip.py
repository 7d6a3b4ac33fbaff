"""Times a payload to another process and back, for every transport and way to wait, and counts the CPU time it took.

It knows no codec and no engine. The ways take turns, so that a machine that gets slower does so for all of them. Their
other processes live only as long as their turn, since one that spins would take a core from the next.

    python -m benchmarks.transport_roundtrip --rounds 3000 --turns 3
"""

import os
import subprocess
import sys
import time
from collections.abc import Callable
from typing import Final, NamedTuple

import click
import msgspec
import numpy as np

from serbench_engine.transport import pipe, shm, zeromq
from serbench_engine.transport.base import Channel, Endpoint, Receiver, Sender
from serbench_engine.transport.registry import connect_receiver, connect_sender
from serbench_engine.transport.wait import Waiting

HEADER: Final = bytes(24)
WAIT_S: Final = 30.0
WARM_UP: Final = 500
PAUSED: Final = 10

WAYS: Final = {"block": Waiting("block"), "spin": Waiting("spin"), "auto": Waiting("auto", core_is_spare=True)}
CHANNELS: Final[dict[str, Callable[[Waiting], Channel]]] = {
    "shm": lambda waiting: shm.make_channel(1, waiting),
    "shm, kernel": lambda waiting: shm.make_channel(1, waiting, words=False),
    "pipe": lambda waiting: pipe.make_channel(1, waiting),
    "zmq": lambda waiting: zeromq.make_channel(1, waiting),
}


class Case(NamedTuple):
    """``size`` bytes there and back; the other side takes ``pause_us`` in between, asleep as if a device worked.

    Such a round is done a PAUSED-th as often.
    """

    label: str
    size: int
    pause_us: int


CASES: Final = (
    Case("100 B", 100, 0),
    Case("64 KiB", 65536, 0),
    Case("100 B, 0.1 ms", 100, 100),
    Case("100 B, 2 ms", 100, 2000),
)


class Times(NamedTuple):
    """One entry a round, and the CPU time of both sides together a round."""

    round_us: list[float]
    cpu_us: float


@click.command()
@click.option("--rounds", type=click.IntRange(1), default=3000, show_default=True, help="Of each case, in all turns.")
@click.option("--turns", type=click.IntRange(1), default=3, show_default=True, help="Of each transport and wait.")
def main(rounds: int, turns: int) -> None:
    """Time a payload to another process and back, for every transport and way to wait: a line for each."""
    if rounds // turns < PAUSED:
        raise click.UsageError(
            f"--rounds {rounds} in --turns {turns} leaves no round with a pause; it takes {PAUSED * turns}"
        )
    measured: dict[tuple[str, str, Case], list[Times]] = {}
    for _ in range(turns):
        for transport, make in CHANNELS.items():
            for way, waiting in WAYS.items():
                for case, times in measure(make, waiting, rounds // turns).items():
                    measured.setdefault((transport, way, case), []).append(times)
    print(f"{'transport':12} {'wait':6} {'case':14} {'p50 µs':>8} {'p99 µs':>8} {'CPU µs':>8}")
    for (transport, way, case), turned in measured.items():
        p50, p99 = np.percentile([one for times in turned for one in times.round_us], [50, 99]) - case.pause_us
        cpu = np.median([times.cpu_us for times in turned])
        print(f"{transport:12} {way:6} {case.label:14} {p50:8.1f} {p99:8.1f} {cpu:8.1f}")


def measure(make: Callable[[Waiting], Channel], waiting: Waiting, rounds: int) -> dict[Case, Times]:
    """Every case once, with another process that ends afterwards."""
    out, back = make(waiting), make(waiting)
    ends = [out.receiver_endpoint(0), back.sender_endpoint()]
    child = subprocess.Popen(
        [sys.executable, __file__, "--echo", *(describe(*end) for end in ends)],
        pass_fds=[fd for _, fds in ends for fd in fds],
        env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
    )
    sender, receiver = out.sender(), back.receiver(0)
    out.close()
    back.close()
    try:
        return {case: round_trips(sender, receiver, case, rounds, child.pid) for case in CASES}
    finally:
        child.kill()
        child.wait()
        sender.close()
        receiver.close()


def round_trips(sender: Sender, receiver: Receiver, case: Case, rounds: int, pid: int) -> Times:
    """Without the warm-up. The header tells the other side its pause."""
    header, body = case.pause_us.to_bytes(8), bytes(case.size)
    warm_up = WARM_UP // PAUSED if case.pause_us else WARM_UP
    rounds = rounds // PAUSED if case.pause_us else rounds
    round_us: list[float] = []
    before = 0.0
    for number in range(warm_up + rounds):
        if number == warm_up:
            before = cpu_s(pid)
        begun = time.perf_counter_ns()
        sender.send(header, body, WAIT_S)
        with receiver.receive(WAIT_S):
            round_us.append((time.perf_counter_ns() - begun) / 1e3)
    return Times(round_us[warm_up:], (cpu_s(pid) - before) / rounds * 1e6)


def cpu_s(pid: int) -> float:
    """User and system seconds of this process and of ``pid``."""
    return time.process_time() + time.clock_gettime((~pid << 3) | 2)  # the clock of a process, as Linux numbers it


def echo(source: Receiver, target: Sender) -> None:
    """The other process: send back what comes, with no copy of its own."""
    while True:
        with source.receive(WAIT_S) as payload:
            if pause_us := int.from_bytes(payload.header):
                until = time.monotonic() + pause_us / 1e6
                time.sleep(max(0.0, pause_us - 100) / 1e6)
                while time.monotonic() < until:
                    pass
            target.send(HEADER, payload.body, WAIT_S)


def describe(endpoint: Endpoint, fds: list[int]) -> str:
    """An end as an argument; its descriptors keep their numbers."""
    return f"{msgspec.json.encode(endpoint).decode()}={','.join(map(str, fds))}"


def understand(text: str) -> tuple[Endpoint, list[int]]:
    """The other way round."""
    endpoint, _, fds = text.rpartition("=")
    return msgspec.json.decode(endpoint, type=Endpoint), [int(fd) for fd in fds.split(",")]


if __name__ == "__main__":
    if sys.argv[1:2] == ["--echo"]:
        echo(connect_receiver(*understand(sys.argv[2])), connect_sender(*understand(sys.argv[3])))
    else:
        main(prog_name="python -m benchmarks.transport_roundtrip")
