"""What every transport must do, with all ends in this process: order, sizes, timeouts, lifetimes, the end of a peer."""

import array
import contextlib
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest

from serbench_engine.errors import ConfigError, TransportError, TransportTimeout
from serbench_engine.transport.base import Receiver, Sender
from serbench_engine.transport.registry import TRANSPORTS, Transport, connect_receiver, get_transport

Ends = tuple[Sender, list[Receiver]]

MEBIBYTE = 1 << 20
SIZES = [0, 1, 7, 8, 9, 4096, 65535, 65536, MEBIBYTE - 1, MEBIBYTE, MEBIBYTE + 1, 10 * MEBIBYTE]
WAIT_S = 30.0


def body_of(number: int, size: int) -> bytes:
    """``size`` bytes that no other ``number`` has."""
    return np.random.default_rng(number).integers(0, 256, size, dtype=np.uint8).tobytes()


def take(receiver: Receiver, timeout_s: float = WAIT_S) -> tuple[bytes, bytes]:
    with receiver.receive(timeout_s) as payload:
        assert isinstance(payload.body, memoryview)
        return bytes(payload.header), bytes(payload.body)


def send_many(sender: Sender, timeout_s: float) -> None:
    """More than any buffer holds."""
    for _ in range(200):
        sender.send(b"header", b"\xff" * MEBIBYTE, timeout_s)


def drain(receiver: Receiver) -> None:
    """Receive until the sender is gone."""
    with contextlib.suppress(TransportError):
        while True:
            take(receiver)


@pytest.mark.parametrize("kind", [bytes, bytearray, memoryview])
def test_payloads_of_any_size_arrive_whole(ends: Ends, kind: Callable[[bytes], bytes]) -> None:
    sender, receivers = ends
    with ThreadPoolExecutor() as pool:
        for size in (*SIZES, *reversed(SIZES)):
            body = body_of(size, size)
            got = [pool.submit(take, receiver) for receiver in receivers]
            sender.send(b"header" if size else b"", kind(body), WAIT_S)
            for one in got:
                assert one.result() == (b"header" if size else b"", body)


def test_10_000_payloads_keep_their_order_past_a_slow_receiver(ends: Ends) -> None:
    sender, receivers = ends
    count = 10_000
    caught_up = threading.Event()

    def collect(receiver: Receiver, slow: bool) -> list[tuple[int, int]]:
        got = []
        for number in range(count):
            if slow and number == 100:
                caught_up.wait(0.2)  # the sender runs into this receiver's full buffer meanwhile
            with receiver.receive(WAIT_S) as payload:
                assert isinstance(payload.body, memoryview)
                got.append((int.from_bytes(payload.header), len(payload.body)))
        return got

    with ThreadPoolExecutor() as pool:
        got = [pool.submit(collect, receiver, index == 0) for index, receiver in enumerate(receivers)]
        for number in range(count):
            sender.send(number.to_bytes(4), bytes(number % 997), WAIT_S)
        for one in got:
            assert one.result() == [(number, number % 997) for number in range(count)]


def test_a_receiver_that_takes_nothing_is_named_after_the_timeout(ends: Ends) -> None:
    sender, receivers = ends
    stuck = len(receivers) - 1

    with ThreadPoolExecutor() as pool:
        others = [pool.submit(drain, receiver) for receiver in receivers[:stuck]]
        with pytest.raises(TransportTimeout, match=rf"receiver {stuck} .*1 s") as caught:
            send_many(sender, 1.0)
        assert caught.value.receiver == stuck
        with pytest.raises(TransportError, match="earlier send failed"):
            sender.send(b"header", b"body", 1.0)
        sender.close()
        for one in others:
            one.result()


def test_a_receive_without_a_sender_times_out_and_loses_nothing(ends: Ends) -> None:
    sender, receivers = ends
    for timeout_s in (0.0, 0.02):
        for receiver in receivers:
            with pytest.raises(TransportTimeout, match=f"{timeout_s:g} s"):
                receiver.receive(timeout_s)
    sender.send(b"header", b"body", WAIT_S)
    for receiver in receivers:
        assert take(receiver) == (b"header", b"body")


def test_timeouts_in_the_middle_of_a_payload_lose_nothing(ends: Ends) -> None:
    sender, receivers = ends
    body = body_of(2, 10 * MEBIBYTE)

    def take_in_slices(receiver: Receiver) -> tuple[bytes, bytes]:
        while True:
            try:
                return take(receiver, 0.0)
            except TransportTimeout:
                continue

    with ThreadPoolExecutor() as pool:
        got = [pool.submit(take_in_slices, receiver) for receiver in receivers]
        sender.send(b"header", body, WAIT_S)
        for one in got:
            assert one.result() == (b"header", body)


def test_the_arguments_may_be_reused_after_a_send(ends: Ends) -> None:
    sender, receivers = ends
    body = bytearray(b"first")
    sender.send(b"1", body, WAIT_S)
    body[:] = b"later"
    sender.send(b"2", memoryview(body), WAIT_S)
    body[:] = b"never"
    for receiver in receivers:
        assert take(receiver) == (b"1", b"first")
        assert take(receiver) == (b"2", b"later")


def test_views_hold_within_the_block_while_more_is_sent(ends: Ends) -> None:
    """The sender fills every buffer meanwhile: what is being read must not be among what is overwritten."""
    sender, receivers = ends
    body = body_of(3, MEBIBYTE // 2)
    sender.send(b"held", body, WAIT_S)
    with receivers[0].receive(WAIT_S) as payload:
        with pytest.raises(TransportTimeout):
            send_many(sender, 0.1)
        assert isinstance(payload.body, memoryview)
        assert payload.body == body
        assert bytes(payload.header) == b"held"


def test_what_was_decoded_earlier_stays_as_it_was(ends: Ends) -> None:
    """Buffers are used again many times over; copies, and arrays made of copies, keep their values."""
    sender, receivers = ends
    kept: list[list[np.ndarray]] = [[] for _ in receivers]
    for number in range(100):
        sender.send(b"header", np.full(30_000, number, dtype=np.int32).tobytes(), WAIT_S)
        for index, receiver in enumerate(receivers):
            with receiver.receive(WAIT_S) as payload:
                assert isinstance(payload.body, memoryview)
                kept[index].append(np.frombuffer(payload.body, dtype=np.int32).copy())
    for arrays in kept:
        for number, one in enumerate(arrays):
            assert (one == number).all()


def test_an_array_that_outlives_its_block_disturbs_neither_receive_nor_close(ends: Ends) -> None:
    sender, receivers = ends
    for _ in range(2):
        sender.send(b"header", bytes(800), WAIT_S)
    for receiver in receivers:
        with receiver.receive(WAIT_S) as payload:
            assert isinstance(payload.body, memoryview)
            kept = np.frombuffer(payload.body, dtype=np.int64)
        assert take(receiver) == (b"header", bytes(800))
        receiver.close()
        assert len(kept) == 100


def test_an_error_within_the_block_gives_the_memory_back(ends: Ends) -> None:
    sender, receivers = ends
    for number in range(3):
        sender.send(b"header", bytes(MEBIBYTE // 2), WAIT_S)
        for receiver in receivers:
            with pytest.raises(ZeroDivisionError), receiver.receive(WAIT_S):
                number // 0
    sender.send(b"last", b"", WAIT_S)
    for receiver in receivers:
        assert take(receiver) == (b"last", b"")


def test_a_second_receive_within_the_block_is_refused(ends: Ends) -> None:
    sender, receivers = ends
    sender.send(b"header", b"body", WAIT_S)
    with receivers[0].receive(WAIT_S), pytest.raises(TransportError, match="has ended"):
        receivers[0].receive(0.0)


def test_a_closed_sender_is_noticed_after_everything_was_received(ends: Ends, transport: Transport) -> None:
    sender, receivers = ends
    sender.send(b"header", b"body", WAIT_S)
    for receiver in receivers:
        assert take(receiver) == (b"header", b"body")
    sender.close()
    for receiver in receivers:
        for _ in range(2):
            with pytest.raises(TransportError, match="sender is") as caught:
                receiver.receive(WAIT_S)
            assert not isinstance(caught.value, TransportTimeout)


def test_a_closed_receiver_is_named(ends: Ends) -> None:
    sender, receivers = ends
    gone = len(receivers) - 1
    receivers[gone].close()

    with ThreadPoolExecutor() as pool:
        others = [pool.submit(drain, receiver) for receiver in receivers[:gone]]
        with pytest.raises(TransportError, match=f"receiver {gone} is") as caught:
            send_many(sender, WAIT_S)
        assert not isinstance(caught.value, TransportTimeout)
        assert caught.value.receiver == gone
        sender.close()
        for one in others:
            one.result()


def test_closing_twice_is_harmless_and_a_closed_end_says_so(ends: Ends) -> None:
    sender, receivers = ends
    closable: list[Sender | Receiver] = [sender, *receivers]
    for end in closable * 2:
        end.close()
    with pytest.raises(TransportError, match="closed"):
        sender.send(b"header", b"body", 0.0)
    for receiver in receivers:
        with pytest.raises(TransportError, match="closed"):
            receiver.receive(0.0)


def test_only_flat_buffers_leave_the_process(process_transport: Transport) -> None:
    channel = process_transport.make_channel(1)
    sender, receiver = channel.sender(), channel.receiver(0)
    channel.close()
    with pytest.raises(TransportError, match="codec that hands plans over by reference"):
        sender.send(b"header", {"a": "plan"}, 0.0)  # type: ignore[arg-type]
    with pytest.raises(TransportError, match="flat bytes"):
        sender.send(b"header", memoryview(array.array("i", [1, 2, 3])), 0.0)
    sender.send(b"header", b"body", WAIT_S)  # a refused body leaves the channel as it was
    assert take(receiver) == (b"header", b"body")
    sender.close()
    receiver.close()


def test_inproc_hands_over_the_thing_itself() -> None:
    channel = get_transport("inproc").make_channel(2)
    sender, receivers = channel.sender(), [channel.receiver(0), channel.receiver(1)]
    plan = object()
    sender.send(b"header", plan, 0.0)  # type: ignore[arg-type]
    for receiver in receivers:
        with receiver.receive(0.0) as payload:
            assert payload.body is plan
    with pytest.raises(TransportError, match="does not leave its process"):
        channel.sender_endpoint()


def test_an_unknown_transport_lists_the_known_ones() -> None:
    with pytest.raises(ConfigError, match=f"no transport 'tcp'; there are {', '.join(TRANSPORTS)}"):
        get_transport("tcp")


def test_an_end_is_used_once(process_transport: Transport) -> None:
    channel = process_transport.make_channel(1)
    endpoint, fds = channel.receiver_endpoint(0)
    assert endpoint.fds == len(fds)
    with pytest.raises(TransportError, match="in use"):
        channel.receiver(0)
    channel.close()
    channel.close()
    with pytest.raises(ConfigError):
        connect_receiver(type(endpoint)("tcp", "receiver", {}, 0), [])
