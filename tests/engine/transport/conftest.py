"""Fixtures of the contract tests: every transport of the table, in every way to wait, with one and three receivers."""

from collections.abc import Callable, Iterator
from functools import partial

import msgspec
import pytest

from serbench_engine.transport import shm
from serbench_engine.transport.base import Channel, Receiver, Sender
from serbench_engine.transport.registry import TRANSPORTS, Transport
from serbench_engine.transport.wait import Waiting

WAYS = {"block": Waiting("block"), "spin": Waiting("spin"), "auto": Waiting("auto", core_is_spare=True)}


def variant(name: str, way: str) -> Transport:
    """A transport whose receivers wait so; ``shm-kernel`` is shm where it may not look at shared memory."""
    if name == "shm-kernel":
        make_channel: Callable[..., Channel] = partial(shm.make_channel, words=False)
    else:
        make_channel = TRANSPORTS[name].make_channel
    table_name = name.removesuffix("-kernel")
    return msgspec.structs.replace(TRANSPORTS[table_name], make_channel=partial(make_channel, waiting=WAYS[way]))


BETWEEN_PROCESSES = [
    ("pipe", "auto"),
    ("shm", "block"),
    ("shm", "auto"),
    ("shm", "spin"),
    ("shm-kernel", "spin"),
    ("zmq", "block"),
]
WITHIN_A_PROCESS = [  # threads that spin keep the interpreter from the one that they wait for
    ("inproc", "block"),
    ("pipe", "auto"),
    ("shm", "block"),
    ("shm", "auto"),
    ("shm-kernel", "auto"),
    ("zmq", "block"),
]


@pytest.fixture(params=WITHIN_A_PROCESS, ids="-".join)
def transport(request: pytest.FixtureRequest) -> Transport:
    return variant(*request.param)


@pytest.fixture(params=BETWEEN_PROCESSES, ids="-".join)
def process_transport(request: pytest.FixtureRequest) -> Transport:
    return variant(*request.param)


@pytest.fixture(params=[1, 3], ids=["one-receiver", "three-receivers"])
def num_receivers(request: pytest.FixtureRequest) -> int:
    count: int = request.param
    return count


@pytest.fixture
def ends(transport: Transport, num_receivers: int) -> Iterator[tuple[Sender, list[Receiver]]]:
    """Both sides of a channel, in this process."""
    channel: Channel = transport.make_channel(num_receivers)
    sender = channel.sender()
    receivers = [channel.receiver(index) for index in range(num_receivers)]
    channel.close()
    yield sender, receivers
    sender.close()
    for receiver in receivers:
        receiver.close()
