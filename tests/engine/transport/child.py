"""A process at the other end of a channel: ``python child.py DUTY ENDS…``, with an END as ``endpoint JSON=fd,fd,…``.

Duties: ``sum COUNT PAUSE RECEIVER`` prints a checksum of COUNT payloads and sleeps PAUSE seconds after the first;
``echo RECEIVER SENDER`` sends back what it gets, until a header is empty, after a pause of so many µs as a header of
four bytes says; ``hold RECEIVER`` takes one and waits; ``send SENDER`` sends one and waits.
"""

import sys
import time
import zlib

import msgspec

from serbench_engine.transport.base import Endpoint, Receiver, Sender
from serbench_engine.transport.registry import connect_receiver, connect_sender

WAIT_S = 60.0


def receiver(end: str) -> Receiver:
    return connect_receiver(*_split(end))


def sender(end: str) -> Sender:
    return connect_sender(*_split(end))


def _split(end: str) -> tuple[Endpoint, list[int]]:
    endpoint, _, fds = end.rpartition("=")
    return msgspec.json.decode(endpoint, type=Endpoint), [int(fd) for fd in fds.split(",")]


def checksum(count: int, pause_s: float, source: Receiver) -> int:
    """Of headers and bodies in the order of their arrival."""
    total = 0
    for number in range(count):
        with source.receive(WAIT_S) as payload:
            total = zlib.crc32(payload.body, zlib.crc32(payload.header, total))  # type: ignore[arg-type]
        if number == 0:
            time.sleep(pause_s)
    return total


def echo(source: Receiver, target: Sender) -> None:
    while True:
        with source.receive(WAIT_S) as payload:
            if not payload.header:
                return
            if len(payload.header) == 4:
                time.sleep(int.from_bytes(payload.header) / 1e6)
            target.send(bytes(payload.header), payload.body, WAIT_S)


def main(duty: str, *rest: str) -> None:
    if duty == "sum":
        say(str(checksum(int(rest[0]), float(rest[1]), receiver(rest[2]))))
    elif duty == "echo":
        echo(receiver(rest[0]), sender(rest[1]))
    elif duty == "hold":
        with receiver(rest[0]).receive(WAIT_S):
            say("held")
            time.sleep(WAIT_S)
    elif duty == "send":
        held = sender(rest[0])  # ZeroMQ drops what is still on its way when its socket is thrown away
        held.send(b"header", b"body", WAIT_S)
        say("sent")
        time.sleep(WAIT_S)


def say(words: str) -> None:
    sys.stdout.write(words + "\n")
    sys.stdout.flush()


if __name__ == "__main__":
    main(*sys.argv[1:])
