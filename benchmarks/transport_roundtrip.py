"""Times a payload to another process and back, for every transport: what the plumbing costs before any codec.

It knows no codec and no engine. Usage: ``python benchmarks/transport_roundtrip.py [ROUNDS]``.
"""

import os
import subprocess
import sys
import time
from typing import Final

import msgspec
import numpy as np

from serbench_engine.transport.base import Endpoint, Receiver, Sender
from serbench_engine.transport.registry import TRANSPORTS, Transport, connect_receiver, connect_sender

SIZES: Final = {"100 B": 100, "64 KiB": 65536, "1 MiB": 1 << 20}
HEADER: Final = bytes(24)
WAIT_S: Final = 30.0
WARM_UP: Final = 200


def main(rounds: int) -> None:
    """One line a transport and size."""
    print(f"{'transport':10} {'size':>7} {'p50 µs':>8} {'p99 µs':>8}   ({rounds} rounds after {WARM_UP})")
    for name, transport in TRANSPORTS.items():
        if transport.leaves_process:
            for label, times_us in measure(transport, rounds).items():
                p50, p99 = np.percentile(times_us, [50, 99])
                print(f"{name:10} {label:>7} {p50:8.1f} {p99:8.1f}")


def measure(transport: Transport, rounds: int) -> dict[str, list[float]]:
    """Round trips in µs, by label of SIZES."""
    out, back = transport.make_channel(1), transport.make_channel(1)
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
        return {label: round_trips(sender, receiver, bytes(size), rounds) for label, size in SIZES.items()}
    finally:
        child.kill()
        child.wait()
        sender.close()
        receiver.close()


def round_trips(sender: Sender, receiver: Receiver, body: bytes, rounds: int) -> list[float]:
    """Times in µs, without the warm-up."""
    times_us = []
    for _ in range(WARM_UP + rounds):
        begun = time.perf_counter_ns()
        sender.send(HEADER, body, WAIT_S)
        with receiver.receive(WAIT_S):
            times_us.append((time.perf_counter_ns() - begun) / 1e3)
    return times_us[WARM_UP:]


def echo(source: Receiver, target: Sender) -> None:
    """The other process: send back what comes, with no copy of its own."""
    while True:
        with source.receive(WAIT_S) as payload:
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
        main(int(sys.argv[1]) if sys.argv[1:] else 2000)
