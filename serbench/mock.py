"""An engine that computes nothing, on a clock of its own: statistics and order of measuring can be tested exactly.

It does not know what is tested with it. ``cost_us`` is asked once a pass how long its steps take.
"""

import hashlib
from collections.abc import Callable, Sequence

import msgspec
import numpy as np

from serbench.experiment import Experiment
from serbench_codecs.plan import Int32Array
from serbench_engine.phases import PHASES, SessionReport
from serbench_engine.request import FinishedRequest, RequestTimes, SamplingParams

FORWARD_SHARE = 0.5
ADAPT_SHARE = 0.1
PLAN_BYTES, RESULT_BYTES = 100, 10


class MockClock:
    """A clock that only moves when it is told to; ns."""

    def __init__(self) -> None:
        self.now_ns = 1

    def __call__(self) -> int:
        return self.now_ns

    def sleep_s(self, seconds: float) -> None:
        """Let the time pass."""
        self.now_ns += round(seconds * 1e9)


class MockStep(msgspec.Struct, frozen=True, eq=False):
    """What a step hands back."""

    finished: list[FinishedRequest]


class MockSession:
    """Every step produces one token for every request; all it takes time for is the clock."""

    def __init__(self, clock: MockClock, step_us: float, preemptions: int = 0) -> None:
        self._clock = clock
        self._step_us = step_us
        self._steps = 0
        self._preemptions = preemptions
        self._waiting: list[tuple[str, Int32Array, int, int]] = []
        self._first_ns = 0

    @property
    def has_unfinished(self) -> bool:
        return bool(self._waiting)

    def add_request(
        self,
        request_id: str,
        prompt_token_ids: Sequence[int] | Int32Array,
        params: SamplingParams,
        arrival_ns: int | None = None,
    ) -> None:
        prompt = np.asarray(prompt_token_ids, dtype=np.int32)
        arrived = self._clock.now_ns if arrival_ns is None else arrival_ns
        self._waiting.append((request_id, prompt, params.max_tokens or 1, arrived))

    def step(self) -> MockStep:
        """One token for every request."""
        self._steps += 1
        self._clock.now_ns += round(self._step_us * 1000)
        self._first_ns = self._first_ns or self._clock.now_ns
        ended = [one for one in self._waiting if one[2] <= self._steps]
        self._waiting = [one for one in self._waiting if one[2] > self._steps]
        return MockStep([self._finished(*one) for one in ended])

    def close(self) -> SessionReport:
        """Half of each step is forward, a tenth is adapt, the rest is other."""
        shares = {"forward": FORWARD_SHARE, "adapt": ADAPT_SHARE, "other": 1 - FORWARD_SHARE - ADAPT_SHARE}
        steps = np.full(self._steps, self._step_us)
        counts = np.ones(self._steps, dtype=np.int64)
        return SessionReport(
            phases_us={name: steps * shares.get(name, 0.0) for name in PHASES},
            step_us=steps,
            host_us=steps * (1 - FORWARD_SHARE),
            plan_bytes=PLAN_BYTES * counts,
            result_bytes=RESULT_BYTES * counts,
            batch_sizes=counts,
            num_tokens=counts,
            device_us=np.zeros(self._steps),
            ahead_us=np.zeros(self._steps),
            batches_digest=f"{self._steps:032x}",
            preemptions=self._preemptions,
            recoveries=0,
            first_refusal="",
            cached_tokens=0,
            cpu_scheduler_s=1.0,
            cpu_workers_s=[0.5],
            peak_rss_bytes=[1 << 20],
            worker_digests=[""],
        )

    def _finished(self, request_id: str, prompt: Int32Array, tokens: int, arrived: int) -> FinishedRequest:
        """Ids that depend on the prompt alone, as they must: not on the codec, not on the time."""
        seed = int.from_bytes(hashlib.blake2b(prompt.tobytes(), digest_size=8).digest(), "little")
        return FinishedRequest(
            request_id=request_id,
            prompt_token_ids=prompt,
            output_token_ids=np.random.default_rng(seed).integers(1000, size=tokens, dtype=np.int32),
            finish_reason="length",
            stop_reason=None,
            times=RequestTimes(arrived, self._first_ns, self._clock.now_ns),
            num_preemptions=0,
            num_cached_tokens=0,
        )


class MockEngine:
    """Living mock workers. ``sessions``: the codecs of the sessions opened, in order."""

    def __init__(self, clock: MockClock, cost_us: Callable[[Experiment], float]) -> None:
        self._clock = clock
        self._cost_us = cost_us
        self.sessions: list[str] = []
        self.closed = False

    def session(self, experiment: Experiment) -> MockSession:
        """A session whose every step takes what ``cost_us`` says now."""
        self.sessions.append(experiment.codec)
        return MockSession(self._clock, self._cost_us(experiment))

    def close(self) -> None:
        self.closed = True
