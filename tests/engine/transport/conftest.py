"""Fixtures of the contract tests: every transport of the table, with one and with three receivers."""

from collections.abc import Iterator

import pytest

from serbench_engine.transport.base import Channel, Receiver, Sender
from serbench_engine.transport.registry import TRANSPORTS, Transport


@pytest.fixture(params=sorted(TRANSPORTS))
def transport(request: pytest.FixtureRequest) -> Transport:
    return TRANSPORTS[request.param]


@pytest.fixture(params=[name for name, one in sorted(TRANSPORTS.items()) if one.leaves_process])
def process_transport(request: pytest.FixtureRequest) -> Transport:
    return TRANSPORTS[request.param]


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
