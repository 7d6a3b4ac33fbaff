"""Lists the transports. It does not know how any of them works.

A module each: how to make a channel for n receivers, and how another process makes an end of what it was sent.
"""

from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Final, Protocol

import msgspec

from serbench_engine.errors import ConfigError
from serbench_engine.transport import inproc, pipe, shm, zeromq
from serbench_engine.transport.base import Channel, Endpoint, Receiver, Sender
from serbench_engine.transport.wait import Waiting


class MakeChannel(Protocol):
    """A channel to ``num_receivers``, which wait as ``waiting`` says."""

    def __call__(self, num_receivers: int, waiting: Waiting = ...) -> Channel: ...


class Transport(msgspec.Struct, frozen=True):
    """``make_channel`` in the scheduler's process; ``connect_*`` elsewhere: the descriptors change hands.

    ``leaves_process``: whether its ends can go to other processes, and so carry bytes only.
    """

    make_channel: MakeChannel
    connect_sender: Callable[[Endpoint, list[int]], Sender]
    connect_receiver: Callable[[Endpoint, list[int]], Receiver]
    leaves_process: bool


TRANSPORTS: Final[Mapping[str, Transport]] = MappingProxyType(
    {
        "inproc": Transport(inproc.make_channel, inproc.connect_sender, inproc.connect_receiver, leaves_process=False),
        "pipe": Transport(pipe.make_channel, pipe.connect_sender, pipe.connect_receiver, leaves_process=True),
        "shm": Transport(shm.make_channel, shm.connect_sender, shm.connect_receiver, leaves_process=True),
        "zmq": Transport(zeromq.make_channel, zeromq.connect_sender, zeromq.connect_receiver, leaves_process=True),
    }
)


def get_transport(name: str) -> Transport:
    """The transport called ``name``.

    Raises:
        ConfigError: there is none; the message lists them.
    """
    if name not in TRANSPORTS:
        raise ConfigError(f"no transport {name!r}; there are {', '.join(TRANSPORTS)}")
    return TRANSPORTS[name]


def connect_sender(endpoint: Endpoint, fds: list[int]) -> Sender:
    """The sending end that came from another process as ``endpoint`` and ``fds``; takes over the descriptors."""
    return get_transport(endpoint.transport).connect_sender(endpoint, fds)


def connect_receiver(endpoint: Endpoint, fds: list[int]) -> Receiver:
    """The receiving end that came from another process; as ``connect_sender``."""
    return get_transport(endpoint.transport).connect_receiver(endpoint, fds)
