"""What only the ring has: sizes around its own, pieces, space that is given back late, memory that can't be resized."""

import os
import resource
from concurrent.futures import ThreadPoolExecutor

import hypothesis.strategies as st
import pytest
from hypothesis import given, settings

from serbench_engine.errors import TransportError
from serbench_engine.transport.base import Receiver, Sender
from serbench_engine.transport.shm import make_channel
from serbench_engine.transport.shm_ring import ALIGNMENT, PREFIX, Layout, padded, place

RING = 4096
WAIT_S = 30.0


def both_ends(num_receivers: int, ring_bytes: int) -> tuple[Sender, list[Receiver]]:
    channel = make_channel(num_receivers, ring_bytes=ring_bytes)
    ends = channel.sender(), [channel.receiver(index) for index in range(num_receivers)]
    channel.close()
    return ends


def collect(receiver: Receiver, count: int) -> list[tuple[bytes, bytes]]:
    got = []
    for _ in range(count):
        with receiver.receive(WAIT_S) as payload:
            assert isinstance(payload.body, memoryview)
            got.append((bytes(payload.header), bytes(payload.body)))
    receiver.close()
    return got


def test_memory_beyond_the_limit_of_files_is_refused_in_one_line() -> None:
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    open_files = os.listdir("/proc/self/fd")
    resource.setrlimit(resource.RLIMIT_FSIZE, (1024, hard))
    try:
        with pytest.raises(TransportError, match=r"no \d+ bytes of shared memory: File too large \(see `ulimit -f`\)"):
            make_channel(1)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    assert os.listdir("/proc/self/fd") == open_files


def carry(num_receivers: int, ring_bytes: int, sizes: list[int]) -> None:
    """Send bodies of these sizes, all at once, and compare what every receiver gets."""
    sender, receivers = both_ends(num_receivers, ring_bytes)
    sent = [(number.to_bytes(4), os.urandom(size)) for number, size in enumerate(sizes)]
    with ThreadPoolExecutor() as pool:
        got = [pool.submit(collect, receiver, len(sizes)) for receiver in receivers]
        for header, body in sent:
            sender.send(header, body, WAIT_S)
        for one in got:
            assert one.result() == sent
    sender.close()


@pytest.mark.parametrize("num_receivers", [1, 3])
def test_sizes_around_the_ring_and_its_half(num_receivers: int) -> None:
    half = Layout(RING).most_whole() - 4
    sizes = [0, 1, half - 1, half, half + 1, RING - PREFIX.size - 4, RING - 1, RING, RING + 1, 10 * RING, 3]
    carry(num_receivers, RING, sizes * 3)


@settings(max_examples=60)
@given(
    ring_bytes=st.integers(8, 40).map(lambda n: n * ALIGNMENT),
    sizes=st.lists(st.integers(0, 400), min_size=1, max_size=60),
    num_receivers=st.sampled_from([1, 2]),
)
def test_any_sizes_through_any_ring(ring_bytes: int, sizes: list[int], num_receivers: int) -> None:
    carry(num_receivers, ring_bytes, sizes)


@given(ring_bytes=st.integers(8, 1000).map(lambda n: n * ALIGNMENT), data=st.data())
def test_a_whole_record_never_wraps_and_always_fits(ring_bytes: int, data: st.DataObject) -> None:
    size = data.draw(st.integers(0, Layout(ring_bytes).most_whole()))
    position = data.draw(st.integers(0, 10 * ring_bytes // ALIGNMENT)) * ALIGNMENT
    at, total = place(position, size, ring_bytes)
    assert at + size <= ring_bytes
    assert total <= ring_bytes
    assert (position + total) % ALIGNMENT == 0
    assert (position + total - padded(size)) % ring_bytes == at


def test_a_ring_that_cannot_be_is_refused_with_its_size() -> None:
    for ring_bytes in (0, 8, 100, 1 << 40):
        with pytest.raises(ValueError, match=f"ring of {ring_bytes} bytes"):
            make_channel(1, ring_bytes=ring_bytes)


def test_the_memory_can_not_be_resized_under_a_reader() -> None:
    channel = make_channel(1, ring_bytes=RING)
    _, fds = channel.receiver_endpoint(0)
    for size in (0, 4 * RING):
        with pytest.raises(PermissionError):
            os.ftruncate(fds[0], size)
    channel.close()


def test_space_freed_in_small_lots_reaches_a_waiting_sender() -> None:
    """The reader announces less than a quarter of the ring only when it sleeps: it must then, or both would wait."""
    sender, (receiver,) = both_ends(1, RING)
    for _ in range(3):
        sender.send(b"", bytes(RING // 8), WAIT_S)
    with ThreadPoolExecutor() as pool:
        sizes = [RING // 8] * 3 + [10 * RING] + [RING // 8] * 3
        got = pool.submit(collect, receiver, len(sizes))
        for size in sizes[3:]:
            sender.send(b"", bytes(size), WAIT_S)
        assert [len(body) for _, body in got.result()] == sizes
    sender.close()
