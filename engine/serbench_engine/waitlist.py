"""The requests that wait for a row: first come, first served; whoever lost a row goes first.

It does not know whether the next one fits (the scheduler's business).
"""

from collections import deque
from collections.abc import Iterator

from serbench_engine.tracked import TrackedRequest


class WaitList:
    """``requests``: in order, to be looked at only. ``budget``: the tokens that one step computes at most."""

    def __init__(self, budget: int) -> None:
        self.requests: deque[TrackedRequest] = deque()
        self._budget = budget
        self._start_over()

    def add(self, request: TrackedRequest) -> None:
        self.requests.append(request)

    def add_first(self, request: TrackedRequest) -> None:
        self.requests.appendleft(request)
        self._start_over()

    def take_first(self) -> TrackedRequest:
        request = self.requests.popleft()
        if self._num_told:
            self._num_told -= 1
            self._budget_left += len(request.token_ids)
        return request

    def remove(self, request: TrackedRequest) -> None:
        self.requests.remove(request)
        self._start_over()

    def come_near(self) -> Iterator[TrackedRequest]:
        """The requests that one step's budget can admit at most; of those told before only what has changed."""
        while self._budget_left > 0 and self._num_told < len(self.requests):
            request = self.requests[self._num_told]
            self._num_told += 1
            self._budget_left -= len(request.token_ids)
            yield request

    def _start_over(self) -> None:
        self._num_told = 0  # from the first on
        self._budget_left = self._budget  # after them
