"""Carries payloads through one ring in shared memory that every receiver reads in place. It knows no process.

The ring is a memfd handed over as a descriptor: it has no name, so nothing is left behind and nobody else can open it.
The readers hear how far it is written as shm_count.py has it: on x86-64 from a word in shared memory, elsewhere through
the kernel. They add the bytes that may be overwritten to an eventfd of their own, in lots, so that this costs little. A
third descriptor shows the death of the other side.
"""

import contextlib
import fcntl
import mmap
import os
from typing import Any, Final

import msgspec

from serbench_codecs.codec import Body, Buffer
from serbench_engine.errors import TransportError, TransportTimeout
from serbench_engine.transport.base import Channel, Endpoint, Payload, Receiver, Sender
from serbench_engine.transport.channel import DescriptorChannel, close_all, duplicate, require_buffer
from serbench_engine.transport.lease import Lease
from serbench_engine.transport.lifeline import is_cut, make_lifeline
from serbench_engine.transport.shm_count import (
    MOST_READERS,
    PAGE_BYTES,
    WORDS_ARE_SOUND,
    CounterHearer,
    CounterTeller,
    Hearer,
    Teller,
    WordHearer,
    WordTeller,
)
from serbench_engine.transport.shm_ring import PREFIX, Layout, padded, place
from serbench_engine.transport.wait import WAIT_AUTO, Deadline, PollSource, Waiting, make_wait

RING_BYTES: Final = 1 << 22
"""Payloads of up to 2 MiB are read in place: the whole state of a few hundred requests."""

_PREFIX_BYTES: Final = PREFIX.size


class ShmSender:
    """The ring's writer. ``fds``: the memory, then three for each reader: bell or counter, freed, lifeline."""

    def __init__(self, ring_bytes: int, words: bool, fds: list[int]) -> None:
        self._layout = Layout(ring_bytes)
        self._ring_bytes = ring_bytes
        self._most_whole = self._layout.most_whole()
        self._ring = _map_ring(fds[0], ring_bytes, mmap.PROT_READ | mmap.PROT_WRITE)
        self._fds = fds
        self._published: Teller = WordTeller(fds[0], fds[1::3]) if words else CounterTeller(fds[1::3])
        self._freed = fds[2::3]
        self._lifelines = fds[3::3]
        self._head = 0  # where the next record begins
        self._tails = [0] * len(self._freed)  # up to where each reader has said to be done
        self._free = ring_bytes  # bytes after head that may be written, as far as is known
        self._usable = True

    def send(self, header: bytes, body: Body, timeout_s: float) -> None:
        if not self._usable:
            raise TransportError("this sender is closed, or an earlier send failed")
        body = require_buffer(body, "transport shm")
        self._usable = False
        header_bytes = len(header)
        size = header_bytes + len(body)
        if size > self._most_whole:
            self._send_pieces(header, body, Deadline(timeout_s))
        else:
            at, total = place(self._head, size, self._ring_bytes)
            if self._free < total:
                self._make_room(total, Deadline(timeout_s))
            ring = self._ring
            PREFIX.pack_into(ring, self._head % self._ring_bytes, header_bytes, size - header_bytes)
            ring[at : at + header_bytes] = header
            ring[at + header_bytes : at + size] = body
            self._publish(total)
        self._usable = True

    def close(self) -> None:
        self._usable = False
        self._published.close()
        self._ring.close()
        close_all(self._fds)

    def _publish(self, count: int) -> None:
        self._head += count
        self._free -= count
        self._published.tell(count)

    def _send_pieces(self, header: bytes, body: Buffer, deadline: Deadline) -> None:
        self._put(PREFIX.pack(len(header), len(body)), deadline)
        self._put(header, deadline)
        self._put(body, deadline)
        size = len(header) + len(body)
        self._put(bytes(padded(size) - size), deadline)

    def _put(self, data: Buffer, deadline: Deadline) -> None:
        view = memoryview(data)
        done = 0
        while done < len(view):
            if self._free == 0:
                self._make_room(1, deadline)
            at = self._head % self._ring_bytes
            count = min(len(view) - done, self._free, self._ring_bytes - at, self._layout.piece())
            self._ring[at : at + count] = view[done : done + count]
            self._publish(count)
            done += count

    def _make_room(self, needed: int, deadline: Deadline) -> None:
        """Wait until every reader has freed enough for ``needed`` bytes after head."""
        while lagging := self._lagging(needed):
            source = PollSource([self._freed[i] for i in lagging], [self._lifelines[i] for i in lagging])
            if not source.block(deadline.left_s()):
                raise TransportTimeout(f"receiver {lagging[0]} made no room for {deadline.timeout_s:g} s", lagging[0])
            for index in self._lagging(needed):
                if is_cut(self._lifelines[index]):
                    raise TransportError(f"receiver {index} is gone", index)

    def _lagging(self, needed: int) -> list[int]:
        """Hear what the readers have freed; those that hold on to more than leaves room for ``needed`` bytes."""
        for index, fd in enumerate(self._freed):
            try:
                self._tails[index] += os.eventfd_read(fd)
            except BlockingIOError:  # nothing new
                continue
        self._free = self._ring_bytes - (self._head - min(self._tails))
        return [i for i, tail in enumerate(self._tails) if self._ring_bytes - (self._head - tail) < needed]


class ShmReceiver:
    """One of the ring's readers. ``fds``: the memory, bell or counter, freed, lifeline.

    Space is announced in larger lots, and whenever the reader is about to sleep: a call less for most payloads.
    """

    def __init__(self, options: "ReaderOptions", fds: list[int]) -> None:
        memory, published, _, lifeline = fds
        ring_bytes = options.ring_bytes
        self._layout = Layout(ring_bytes)
        self._ring_bytes = ring_bytes
        self._most_whole = self._layout.most_whole()
        self._lot = self._layout.piece()
        self._ring = _map_ring(memory, ring_bytes, mmap.PROT_READ)
        self._view = memoryview(self._ring)
        self._fds = fds
        self._hearer: Hearer = (
            WordHearer(memory, options.index, published, lifeline, self._announce)
            if options.words
            else CounterHearer(published, lifeline, self._announce)
        )
        self._wait = make_wait(self._hearer, options.waiting)
        self._tail = 0  # of the record that is due or handed out
        self._available = 0  # bytes after tail that are published
        self._owed = 0  # bytes before tail that the writer does not know to be free
        self._taken = 0  # bytes of the record handed out
        self._partial: bytearray | None = None  # a record that comes in pieces: header and body
        self._partial_header_bytes = 0
        self._filled = 0
        self._lease = Lease(self._give_back)

    def receive(self, timeout_s: float) -> Lease:
        self._lease.check_free()
        if not self._fds:
            raise TransportError("this receiver is closed")
        if self._partial is not None:
            return self._receive_pieces(timeout_s)
        if self._available < _PREFIX_BYTES:
            self._available += self._hearer.take()
            if self._available < _PREFIX_BYTES:
                self._await(_PREFIX_BYTES, Deadline(timeout_s))
        header_bytes, body_bytes = PREFIX.unpack_from(self._ring, self._tail % self._ring_bytes)
        size = header_bytes + body_bytes
        if size > self._most_whole:
            self._free(_PREFIX_BYTES)
            self._partial = bytearray(size)
            self._partial_header_bytes = header_bytes
            self._filled = 0
            return self._receive_pieces(timeout_s)
        at, self._taken = place(self._tail, size, self._ring_bytes)
        body_at = at + header_bytes
        return self._lease.hold(Payload(self._ring[at:body_at], self._view[body_at : at + size]))

    def close(self) -> None:
        if not self._fds:
            return
        self._hearer.close()
        close_all(self._fds)
        self._view.release()
        with contextlib.suppress(BufferError):  # an array over a payload is still alive: the memory goes when it does
            self._ring.close()

    def _give_back(self) -> None:
        self._free(self._taken)
        self._taken = 0
        if self._owed >= self._lot:
            self._announce()

    def _free(self, count: int) -> None:
        self._tail += count
        self._available -= count
        self._owed += count

    def _announce(self) -> None:
        if self._owed and self._fds:
            os.eventfd_write(self._fds[2], self._owed)
            self._owed = 0

    def _receive_pieces(self, timeout_s: float) -> Lease:
        """Copy a large record out of the ring as it comes; a timeout leaves what is there for the next call."""
        assert self._partial is not None
        deadline = Deadline(timeout_s)
        partial = memoryview(self._partial)
        while self._filled < len(partial):
            if self._available == 0:
                self._await(1, deadline)
            at = self._tail % self._ring_bytes
            count = min(len(partial) - self._filled, self._available, self._ring_bytes - at)
            partial[self._filled : self._filled + count] = self._view[at : at + count]
            self._filled += count
            self._free(count)
            if self._owed >= self._lot:
                self._announce()
        padding = padded(len(partial)) - len(partial)
        if self._available < padding:
            self._await(padding, deadline)
        self._taken = padding
        self._partial = None
        return self._lease.hold(
            Payload(bytes(partial[: self._partial_header_bytes]), partial[self._partial_header_bytes :])
        )

    def _await(self, needed: int, deadline: Deadline) -> None:
        """Wait until ``needed`` bytes are available."""
        self._available += self._hearer.take()
        while self._available < needed:
            if not self._wait.wait(deadline.left_s()):
                raise TransportTimeout(f"nothing from the sender for {deadline.timeout_s:g} s")
            if news := self._hearer.take():
                self._available += news
            elif is_cut(self._fds[3]) and not self._hearer.glance():
                raise TransportError("the sender is gone")  # and all that it did before was looked at after its end


class ReaderOptions(msgspec.Struct, frozen=True):
    """What receiving end ``index`` is told. ``words``: the writer's count is in shared memory, not in the kernel."""

    ring_bytes: int
    words: bool
    index: int
    waiting: Waiting


def make_channel(
    num_receivers: int, waiting: Waiting = WAIT_AUTO, ring_bytes: int = RING_BYTES, words: bool = WORDS_ARE_SOUND
) -> Channel:
    """A ring of ``ring_bytes`` for all receivers; ``words`` as in ReaderOptions.

    Raises:
        ValueError: sizes that can't be. TransportError: the system gives no such memory.
    """
    Layout(ring_bytes)
    if num_receivers > MOST_READERS:
        raise ValueError(f"{num_receivers} receivers; a ring has at most {MOST_READERS}")
    memory = _make_memory(PAGE_BYTES + ring_bytes)
    sender = [memory]
    receivers = []
    for index in range(num_receivers):
        counters = [os.eventfd(0, os.EFD_NONBLOCK | os.EFD_CLOEXEC) for _ in range(2)]
        ours, theirs = make_lifeline()
        sender += [*counters, ours]
        options: dict[str, Any] = msgspec.to_builtins(ReaderOptions(ring_bytes, words, index, waiting))
        receivers.append((options, [*duplicate([memory, *counters]), theirs]))
    writer = ({"ring_bytes": ring_bytes, "words": words}, sender)
    return DescriptorChannel("shm", writer, receivers, connect_sender, connect_receiver)


def _make_memory(size: int) -> int:
    """A memfd that nobody can resize: reading or writing beyond the end of a smaller one would end the process."""
    memory = os.memfd_create("serbench", os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING)
    try:
        os.ftruncate(memory, size)
    except OSError as error:  # the limit of files' sizes holds for memory too
        os.close(memory)
        raise TransportError(
            f"the system gives no {size} bytes of shared memory: {error.strerror} (see `ulimit -f`); transport pipe "
            "needs none"
        ) from None
    fcntl.fcntl(memory, fcntl.F_ADD_SEALS, fcntl.F_SEAL_SHRINK | fcntl.F_SEAL_GROW | fcntl.F_SEAL_SEAL)
    return memory


def _map_ring(memory: int, ring_bytes: int, access: int) -> mmap.mmap:
    """What follows the page of words."""
    flags = mmap.MAP_SHARED | mmap.MAP_POPULATE
    return mmap.mmap(memory, ring_bytes, flags=flags, prot=access, offset=PAGE_BYTES)


def connect_sender(endpoint: Endpoint, fds: list[int]) -> Sender:
    """The sending end, from what ``sender_endpoint`` gave; takes over the descriptors."""
    return ShmSender(endpoint.options["ring_bytes"], endpoint.options["words"], fds)


def connect_receiver(endpoint: Endpoint, fds: list[int]) -> Receiver:
    """A receiving end, from what ``receiver_endpoint`` gave; takes over the descriptors."""
    return ShmReceiver(msgspec.convert(endpoint.options, ReaderOptions), fds)
