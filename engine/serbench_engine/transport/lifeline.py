"""Pairs of descriptors that show the death of the other side, for transports whose own descriptors do not.

It carries no bytes. The kernel closes a dead process's end, and the other one hangs up.
"""

import socket

from serbench_engine.transport.wait import PollSource


def make_lifeline() -> tuple[int, int]:
    """One descriptor for either side."""
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_STREAM)
    return ours.detach(), theirs.detach()


def is_cut(fd: int) -> bool:
    """Whether the other side has closed its end."""
    return PollSource([], [fd]).block(0)
