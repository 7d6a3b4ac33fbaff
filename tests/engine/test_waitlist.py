"""Who waits, in which order, and who of them comes near."""

import numpy as np

from serbench_engine.tracked import TrackedRequest
from serbench_engine.waitlist import WaitList
from tests.engine.serving import greedy


def waiting(name: str, num_tokens: int = 4) -> TrackedRequest:
    no_ids = np.empty(0, dtype=np.int32)
    ids = np.arange(num_tokens, dtype=np.int32)
    return TrackedRequest(name, ids, greedy(8), seed=1, stop_ids=no_ids, length_limit=64, arrival_ns=1, watch=None)


def near(waitlist: WaitList) -> str:
    return "".join(request.request_id for request in waitlist.come_near())


def test_who_comes_near_is_told_once_as_far_as_the_budget_reaches() -> None:
    waitlist = WaitList(10)
    assert near(waitlist) == ""
    waitlist.add(waiting("a"))
    assert near(waitlist) == "a"
    for name in "bcde":
        waitlist.add(waiting(name))
    assert near(waitlist) == "bc"  # c with the last 2 tokens
    assert near(waitlist) == ""
    assert waitlist.take_first().request_id == "a"
    assert near(waitlist) == "d"
    assert near(waitlist) == ""


def test_another_order_is_told_from_the_front() -> None:
    waitlist = WaitList(10)
    requests = [waiting(name) for name in "abcde"]
    for request in requests:
        waitlist.add(request)
    assert near(waitlist) == "abc"
    waitlist.remove(requests[1])
    assert near(waitlist) == "acd"
    waitlist.add_first(waiting("f", 9))
    assert near(waitlist) == "fa"
    assert [request.request_id for request in waitlist.requests] == ["f", "a", "c", "d", "e"]


def test_requests_taken_before_they_were_told_change_nothing() -> None:
    waitlist = WaitList(10)
    for name in "abcde":
        waitlist.add(waiting(name))
    waitlist.take_first()
    assert near(waitlist) == "bcd"
