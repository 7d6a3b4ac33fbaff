"""Carries payloads through ZeroMQ, one PUSH/PULL pair for each receiver, within this host only. It knows no process.

Nobody else may write to a receiver, since some codecs execute code when they decode. Two ways were weighed:

- A socket file in a folder of mode 0700, removed after the handshake. Other users are kept out, but a SIGKILL before
  the handshake leaves the folder behind, and until then any process of this user may connect.
- An abstract address, which has no file and so leaves nothing, but which anyone on the host may try to connect to.

Here it is the abstract address, with the *sender* listening and the receiver connecting. A receiver listens nowhere, so
nothing can connect to it; its address is a random name whose listening socket is made with the channel, before anybody
is told the name, and is passed on as a descriptor; and it connects once, never again (a later owner of the same name
finds nobody). Whoever connects to the sender can't write to anyone; peers of other users are turned away, so that they
can't take payloads either. TCP is not an option of this transport.

ZeroMQ drops nothing at its high-water mark here: a PUSH socket makes its sender wait. It loses what is still on its way
when the sender closes; so a session is closed after its workers have reported.
"""

import contextlib
import math
import os
import secrets
import socket
from typing import Any, Final

import msgspec
import zmq

from serbench_codecs.codec import MAX_BODY_BYTES, Body
from serbench_engine.errors import TransportError, TransportTimeout
from serbench_engine.transport.base import Channel, Endpoint, Payload, Receiver, Sender
from serbench_engine.transport.channel import DescriptorChannel, close_all, require_buffer
from serbench_engine.transport.lease import Lease
from serbench_engine.transport.lifeline import is_cut, make_lifeline
from serbench_engine.transport.wait import WAIT_AUTO, Deadline, Waiting, make_wait

HIGH_WATER_MARK: Final = 16
"""Payloads that wait on either side of a pair before the sender waits."""

_LANDING_MS: Final = 100
"""For what has left a dead sender and is not yet in its receiver's hands."""

_FOREVER: Final = 0
"""How long one end waits for the other to be made. ZeroMQ gives up after 30 s, and who connects once is lost then."""


class ZmqSender:
    """One PUSH socket for each receiver. ``fds``: a listening socket and a lifeline for each, in order."""

    def __init__(self, addresses: list[str], fds: list[int]) -> None:
        self._context = zmq.Context()
        self._lifelines = fds[1::2]
        self._sockets = [self._listen(*one) for one in zip(addresses, fds[::2], strict=True)]
        self._usable = True

    def send(self, header: bytes, body: Body, timeout_s: float) -> None:
        if not self._usable:
            raise TransportError("this sender is closed, or an earlier send failed")
        body = require_buffer(body, "transport zmq")
        self._usable = False
        for index, push in enumerate(self._sockets):
            try:
                push.send(header, zmq.SNDMORE | zmq.NOBLOCK)
            except zmq.Again:
                self._send_late(index, header, Deadline(timeout_s))
            push.send(body)  # two parts, both copied: faster than one joined, and than zero-copy up to megabytes
        self._usable = True

    def close(self) -> None:
        self._usable = False
        for push in self._sockets:
            push.close(linger=0)
        self._context.term()
        close_all(self._lifelines)

    def _listen(self, address: str, fd: int) -> "zmq.Socket[bytes]":
        push = self._context.socket(zmq.PUSH)
        push.setsockopt(zmq.SNDHWM, HIGH_WATER_MARK)
        push.setsockopt(zmq.LINGER, 0)
        push.setsockopt(zmq.IPC_FILTER_UID, os.geteuid())
        push.setsockopt(zmq.HANDSHAKE_IVL, _FOREVER)
        push.setsockopt(zmq.USE_FD, fd)
        push.bind(address)
        return push

    def _send_late(self, index: int, header: bytes, deadline: Deadline) -> None:
        """Send the header when receiver ``index`` has connected and is not too far behind."""
        poller = zmq.Poller()
        poller.register(self._sockets[index], zmq.POLLOUT)
        poller.register(self._lifelines[index], zmq.POLLIN)
        while poller.poll(_ms(deadline.left_s())):
            if is_cut(self._lifelines[index]):
                raise TransportError(f"receiver {index} is gone", index)
            with contextlib.suppress(zmq.Again):
                self._sockets[index].send(header, zmq.SNDMORE | zmq.NOBLOCK)
                return
        raise TransportTimeout(f"receiver {index} made no room for {deadline.timeout_s:g} s", index)


class ZmqReceiver:
    """A PULL socket that has connected to its sender. Takes over ``lifeline``."""

    def __init__(self, address: str, waiting: Waiting, lifeline: int) -> None:
        self._context = zmq.Context()
        self._pull = self._context.socket(zmq.PULL)
        self._pull.setsockopt(zmq.RCVHWM, HIGH_WATER_MARK)
        self._pull.setsockopt(zmq.LINGER, 0)
        self._pull.setsockopt(zmq.RECONNECT_IVL, -1)
        self._pull.setsockopt(zmq.HANDSHAKE_IVL, _FOREVER)
        self._pull.setsockopt(zmq.MAXMSGSIZE, MAX_BODY_BYTES)
        self._pull.connect(address)
        self._fds = [lifeline]
        self._poller = zmq.Poller()
        self._poller.register(self._pull, zmq.POLLIN)
        self._poller.register(lifeline, zmq.POLLIN)
        self._wait = make_wait(self, waiting)
        self._lease = Lease(_give_nothing_back)

    def receive(self, timeout_s: float) -> Lease:
        self._lease.check_free()
        if not self._fds:
            raise TransportError("this receiver is closed")
        try:
            parts = self._pull.recv_multipart(zmq.NOBLOCK)
        except zmq.Again:
            self._await(timeout_s)
            parts = self._pull.recv_multipart(zmq.NOBLOCK)
        if len(parts) != 2:
            raise TransportError(f"{len(parts)} parts, where a header and a body were due")
        return self._lease.hold(Payload(parts[0], memoryview(parts[1])))

    def close(self) -> None:
        if self._fds:
            self._pull.close(linger=0)
            self._context.term()
            close_all(self._fds)

    def _await(self, timeout_s: float) -> None:
        """Wait until there is a payload."""
        if not self._wait.wait(timeout_s):
            raise TransportTimeout(f"nothing from the sender for {timeout_s:g} s")
        if not self.glance() and not self._pull.poll(_LANDING_MS):
            raise TransportError("the sender is gone")

    def glance(self) -> bool:
        """As a Source: whether there is a payload."""
        return bool(self._pull.poll(0))

    def block(self, timeout_s: float) -> bool:
        """As a Source."""
        return bool(self._poller.poll(_ms(timeout_s)))


def _ms(timeout_s: float) -> int:
    return math.ceil(timeout_s * 1000)


def _give_nothing_back() -> None:
    """A received payload is memory of its own."""


def make_channel(num_receivers: int, waiting: Waiting = WAIT_AUTO) -> Channel:
    """An address for each receiver, with a socket that listens there already."""
    addresses: list[str] = []
    sender: list[int] = []
    receivers: list[tuple[dict[str, Any], list[int]]] = []
    for _ in range(num_receivers):
        name = f"serbench-{secrets.token_hex(16)}"
        listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM | socket.SOCK_NONBLOCK)
        listener.bind("\0" + name)
        listener.listen(1)
        ours, theirs = make_lifeline()
        addresses.append(f"ipc://@{name}")
        sender += [listener.detach(), ours]
        receivers.append(({"address": addresses[-1], "waiting": msgspec.to_builtins(waiting)}, [theirs]))
    return DescriptorChannel("zmq", ({"addresses": addresses}, sender), receivers, connect_sender, connect_receiver)


def connect_sender(endpoint: Endpoint, fds: list[int]) -> Sender:
    """The sending end, from what ``sender_endpoint`` gave; takes over the descriptors."""
    return ZmqSender(endpoint.options["addresses"], fds)


def connect_receiver(endpoint: Endpoint, fds: list[int]) -> Receiver:
    """A receiving end, from what ``receiver_endpoint`` gave; takes over the descriptor."""
    waiting = msgspec.convert(endpoint.options["waiting"], Waiting)
    return ZmqReceiver(endpoint.options["address"], waiting, fds[0])
