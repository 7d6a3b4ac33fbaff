"""How receivers wait: no wake-up is lost, idle ones use no CPU time, deaths and stops are noticed, auto learns."""

import os
import random
import signal
import threading
import time
from collections.abc import Callable

import pytest

from serbench_engine.errors import TransportError, TransportTimeout
from serbench_engine.transport import shm
from serbench_engine.transport.base import Channel, Receiver, Sender
from serbench_engine.transport.contention import FIRST_PAUSE_S, MOST_SHARE, WINDOW_S, Contention, thread_run_delay_ns
from serbench_engine.transport.wait import SPIN_S, SPIN_THROUGH_S, AutoWait, PollSource, Waiting
from tests.engine.transport.conftest import WAYS
from tests.engine.transport.test_processes import Start, Started, line, start

__all__ = ["start"]  # a fixture

WAIT_S = 30.0
US = 1e-6

Pair = tuple[Sender, Receiver, Started]


@pytest.fixture(params=[(way, words) for way in WAYS for words in (True, False)], ids=lambda p: f"{p[0]}-{p[1]}")
def shared(request: pytest.FixtureRequest) -> Callable[[], Channel]:
    """Makes rings, in each way to wait, with and without words in shared memory."""
    way, words = request.param
    return lambda: shm.make_channel(1, WAYS[way], words=words)


def echoing(make_channel: Callable[[], Channel], begin: Start) -> Pair:
    """Both ends here of channels to a process that echoes."""
    out, back = make_channel(), make_channel()
    child = begin("echo", out.receiver_endpoint(0), back.sender_endpoint())
    sender, receiver = out.sender(), back.receiver(0)
    out.close()
    back.close()
    round_trip(sender, receiver, b"first")
    return sender, receiver, child


def round_trip(sender: Sender, receiver: Receiver, header: bytes, timeout_s: float = WAIT_S) -> None:
    sender.send(header, b"body", timeout_s)
    with receiver.receive(timeout_s) as payload:
        assert payload.header == header


def test_no_wake_up_is_lost_around_the_moment_of_falling_asleep(shared: Callable[[], Channel], start: Start) -> None:
    sender, receiver, child = echoing(shared, start)
    rng = random.Random(7)
    for _ in range(400):
        until = time.monotonic() + rng.random() * 100 * US
        while time.monotonic() < until:  # about as long as the other side takes to fall asleep
            pass
        pause_us = rng.choice([0, 0, 0, 50, 400])
        round_trip(sender, receiver, pause_us.to_bytes(4))
    child.kill()
    sender.close()
    receiver.close()


def test_what_is_told_while_a_reader_falls_asleep_wakes_it() -> None:
    channel = shm.make_channel(1, Waiting("block"), words=True)
    sender = channel.sender()
    receiver = channel.receiver(0)
    channel.close()
    assert isinstance(receiver, shm.ShmReceiver)
    hearer = receiver._hearer
    hearer._before_sleep = lambda: sender.send(b"header", b"body", WAIT_S)  # type: ignore[attr-defined]
    assert hearer.block(WAIT_S)
    with receiver.receive(0.0) as payload:
        assert payload.header == b"header"
    sender.close()
    receiver.close()


def test_only_a_sleeping_reader_is_rung() -> None:
    channel = shm.make_channel(1, Waiting("block"), words=True)
    _, fds = channel.receiver_endpoint(0)
    receiver = shm.ShmReceiver(shm.ReaderOptions(shm.RING_BYTES, True, 0, Waiting("block")), [os.dup(fd) for fd in fds])
    sender = channel.sender()
    bell = PollSource([fds[1]], [])
    sender.send(b"header", b"body", WAIT_S)
    assert not bell.glance()
    with receiver.receive(WAIT_S):
        pass
    asleep = threading.Event()
    receiver._hearer._before_sleep = asleep.set  # type: ignore[attr-defined]
    got: list[bytes] = []
    thread = threading.Thread(target=lambda: got.append(bytes(receiver.receive(WAIT_S).__enter__().header)))
    thread.start()
    asleep.wait(WAIT_S)
    sender.send(b"second", b"body", WAIT_S)
    thread.join(WAIT_S)
    assert got == [b"second"]
    channel.close()
    sender.close()
    receiver.close()


@pytest.mark.parametrize("way", ["auto", "block"])
@pytest.mark.parametrize("words", [True, False])
def test_whoever_waits_long_uses_hardly_any_cpu_time(way: str, words: bool, start: Start) -> None:
    sender, receiver, child = echoing(lambda: shm.make_channel(1, WAYS[way], words=words), start)
    for _ in range(50):  # so short that auto spins
        round_trip(sender, receiver, b"header")
    clock = (~child.pid << 3) | 2  # how Linux numbers the clock of a process
    theirs, ours = time.clock_gettime(clock), time.thread_time()
    with pytest.raises(TransportTimeout):
        receiver.receive(0.4)
    spun = time.thread_time() - ours, time.clock_gettime(clock) - theirs
    assert max(spun) < 0.5 * 0.4, "whoever spins uses the whole of it"
    sender.close()
    receiver.close()


def test_a_sender_that_dies_is_noticed_whatever_the_receiver_does(shared: Callable[[], Channel], start: Start) -> None:
    sender, receiver, child = echoing(shared, start)
    killer = threading.Timer(0.05, child.kill)
    killer.start()
    with pytest.raises(TransportError, match="sender is gone") as caught:
        receiver.receive(WAIT_S)
    assert not isinstance(caught.value, TransportTimeout)
    killer.join()
    sender.close()
    receiver.close()


def test_a_sender_that_stands_still_is_a_timeout(shared: Callable[[], Channel], start: Start) -> None:
    sender, receiver, child = echoing(shared, start)
    os.kill(child.pid, signal.SIGSTOP)
    os.waitid(os.P_PID, child.pid, os.WSTOPPED | os.WNOWAIT)
    sender.send(b"header", b"body", WAIT_S)
    with pytest.raises(TransportTimeout, match=r"0\.05 s"):
        receiver.receive(0.05)
    os.kill(child.pid, signal.SIGCONT)
    with receiver.receive(WAIT_S) as payload:
        assert payload.header == b"header"
    sender.close()
    receiver.close()


def test_a_larger_payload_than_the_ring_passes_while_both_spin(start: Start) -> None:
    child = start("sum", "3", "0", (channel := shm.make_channel(1, WAYS["spin"], ring_bytes=4096)).receiver_endpoint(0))
    sender = channel.sender()
    channel.close()
    for _ in range(3):
        sender.send(b"header", bytes(100_000), WAIT_S)
    assert line(child)
    sender.close()


class Arrivals:
    """A source with a clock of its own: what is waited for comes ``after_s`` each wait has begun."""

    def __init__(self) -> None:
        self.now = 100.0
        self.due = 0.0
        self.spun_s = 0.0
        self.slept_s = 0.0

    def clock(self) -> float:
        return self.now

    def glance(self) -> bool:
        self.now += US
        self.spun_s += US
        return self.now >= self.due

    def block(self, timeout_s: float) -> bool:
        until = min(self.now + timeout_s, max(self.now, self.due))
        self.slept_s += until - self.now
        self.now = until
        return self.now >= self.due


def waited(wait: AutoWait, source: Arrivals, after_s: float, timeout_s: float = 1.0) -> tuple[float, float]:
    """Seconds spun and slept in one wait."""
    source.due, source.spun_s, source.slept_s = source.now + after_s, 0.0, 0.0
    while not wait.wait(timeout_s):
        pass
    return source.spun_s, source.slept_s


def taught(*waits_s: float, core_is_spare: bool = True) -> tuple[AutoWait, Arrivals]:
    """An AutoWait that has seen so long waits."""
    source = Arrivals()
    wait = AutoWait(source, core_is_spare, source.clock, Contention(lambda: 0))
    for after_s in waits_s:
        waited(wait, source, after_s)
    return wait, source


def test_auto_sleeps_until_it_knows_better() -> None:
    wait, source = taught()
    for _ in range(4):
        assert waited(wait, source, 20 * US)[0] == 0


def test_auto_spins_where_waits_are_short() -> None:
    wait, source = taught(*[20 * US] * 5)
    assert waited(wait, source, 25 * US)[1] == 0


def test_one_long_wait_among_short_ones_costs_one_sleep() -> None:
    wait, source = taught(*[20 * US] * 4, 0.5)
    assert waited(wait, source, 25 * US)[0] == 0
    assert waited(wait, source, 25 * US)[1] == 0


@pytest.mark.parametrize("after_s", [0.0005, 0.002, 0.0039])
def test_auto_spins_through_waits_of_a_few_milliseconds_where_a_core_is_spare(after_s: float) -> None:
    wait, source = taught(*[after_s] * 5)
    assert waited(wait, source, 1.2 * min(after_s, 0.003))[1] == 0


@pytest.mark.parametrize(
    ("after_s", "core_is_spare"),
    [(0.002, False), (0.005, True), (0.05, True)],
    ids=["no core is spare", "long", "longer"],
)
def test_auto_sleeps_all_along_where_spinning_is_dear(after_s: float, core_is_spare: bool) -> None:
    wait, source = taught(*[after_s] * 5, core_is_spare=core_is_spare)
    assert waited(wait, source, 0.001)[0] == 0


def test_auto_sleeps_where_the_other_end_had_time_to_fall_asleep() -> None:
    wait, source = taught(*[20 * US] * 5)
    source.now += 0.9 * SPIN_THROUGH_S
    assert waited(wait, source, 20 * US)[1] == 0
    source.now += 1.1 * SPIN_THROUGH_S
    assert waited(wait, source, 20 * US)[0] == 0


@pytest.mark.parametrize(("core_is_spare", "most_s"), [(False, SPIN_S), (True, SPIN_THROUGH_S)])
def test_auto_never_spins_longer_than_it_says(core_is_spare: bool, most_s: float) -> None:
    wait, source = taught(*[0.9 * most_s] * 5, core_is_spare=core_is_spare)
    assert waited(wait, source, 10.0)[0] <= most_s + 50 * US


def test_after_spins_in_vain_auto_sleeps_through_more_and_more_waits() -> None:
    wait, source = taught(*[20 * US] * 5)
    gaps = []
    for _ in range(3):
        assert waited(wait, source, 0.3)[0] > 0  # in vain
        asleep = 0
        while not waited(wait, source, 20 * US)[0]:
            asleep += 1
        gaps.append(asleep)
    assert gaps == sorted(set(gaps))
    assert gaps[-1] >= 8


def test_a_wait_that_times_out_counts_as_one_with_the_next() -> None:
    source = Arrivals()
    wait = AutoWait(source, True, source.clock, Contention(lambda: 0))
    for _ in range(5):
        waited(wait, source, 0.006, timeout_s=0.0025)  # in three pieces, each of which would be worth a spin
    assert waited(wait, source, 0.001, timeout_s=0.0025)[0] == 0


class Machine:
    """A clock, and how long a thread was kept from running: the share ``busy`` of the time."""

    def __init__(self) -> None:
        self.now = 50.0
        self.delay_s = 0.0

    def run(self, seconds: float, busy: float) -> None:
        self.now += seconds
        self.delay_s += seconds * busy

    def run_delay_ns(self) -> int:
        return int(self.delay_s * 1e9)


def test_a_busy_machine_lets_nobody_spin_for_longer_and_longer() -> None:
    machine = Machine()
    contention = Contention(machine.run_delay_ns)
    pauses = []
    for _ in range(4):
        assert contention.is_calm(machine.now)
        machine.run(1.1 * WINDOW_S, MOST_SHARE + 0.1)
        begun = machine.now
        while not contention.is_calm(machine.now):
            machine.run(WINDOW_S, 0.0)
        pauses.append(machine.now - begun)
    assert pauses == sorted(pauses)
    assert pauses[0] >= FIRST_PAUSE_S
    assert pauses[-1] >= 8 * FIRST_PAUSE_S


def test_a_calm_machine_lets_spin_all_the_time() -> None:
    machine = Machine()
    contention = Contention(machine.run_delay_ns)
    for _ in range(100):
        assert contention.is_calm(machine.now)
        machine.run(WINDOW_S / 3, MOST_SHARE - 0.1)


def test_auto_hardly_spins_where_others_want_the_core() -> None:
    source = Arrivals()
    wait = AutoWait(source, True, source.clock, Contention(lambda: int(source.now * 0.9e9)))
    assert sum(waited(wait, source, 40 * US)[0] > 0 for _ in range(10_000)) < 1000


def test_the_kernel_tells_what_a_thread_has_waited_for_a_core() -> None:
    before = thread_run_delay_ns()
    assert before >= 0
    assert thread_run_delay_ns() >= before
