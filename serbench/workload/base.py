"""What a workload is: for each group of repeats, the requests to send. It does not know who serves them.

Repeats of one group are compared with each other, so they get the same requests, whichever experiment they belong to;
another group gets other requests, so that nothing remembered from an earlier repeat can help. Groups below 0 warm up.
"""

from collections.abc import Sequence
from typing import Protocol

import msgspec

from serbench_codecs.plan import Int32Array
from serbench_engine.request import SamplingParams


class WorkRequest(msgspec.Struct, frozen=True, eq=False):
    """One request to send. ``prompt_token_ids`` int32[n]; ``prompt`` is its text where there was one.

    ``due_tokens``: how many tokens it must produce, None where it may end by itself. ``arrives_ns``: when it arrives,
    from the beginning of the pass.
    """

    request_id: str
    prompt_token_ids: Int32Array
    params: SamplingParams
    prompt: str | None = None
    due_tokens: int | None = None
    arrives_ns: int = 0


class Workload(Protocol):
    """Requests by group; made anew from the same specification and seed it gives the same ones."""

    def requests(self, group: int) -> list[WorkRequest]:
        """The requests of ``group``, in the order in which they arrive."""
        ...

    def notes(self) -> list[str]:
        """What the user must know of the requests given so far, such as what was left out, by reason."""
        ...


class Text(Protocol):
    """A model's way with text."""

    def encode(self, text: str) -> list[int]:
        """The ids of a prompt, with whatever the model expects at its start."""
        ...

    def answer_length(self, text: str) -> int:
        """How many tokens an answer has."""
        ...

    def decode(self, token_ids: Sequence[int]) -> str:
        """The text of ids, special ones left out."""
        ...

    def chat(self, text: str) -> list[int]:
        """The ids of ``text`` as a user's turn in the model's chat template. Raises EngineError if there is none."""
        ...


def forced(tokens: int) -> SamplingParams:
    """Greedy sampling of exactly ``tokens`` tokens, whatever the model would rather say."""
    return SamplingParams(temperature=0.0, max_tokens=tokens, ignore_eos=True)


def group_seed(seed: int, group: int) -> list[int]:
    """The entropy of a group's random numbers; warm-up groups (below 0) have their own."""
    return [seed, int(group < 0), abs(group)]
