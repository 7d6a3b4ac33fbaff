"""Sets the environment that decides how numerical libraries use threads. It knows no library and imports none."""

import os
from typing import Final

THREAD_ENVIRONMENT: Final = (
    # Idle OpenMP threads sleep instead of spinning: two processes that share a few cores otherwise take each other's
    # time, which made a model's decode step up to thirty times slower.
    ("OMP_WAIT_POLICY", "passive"),
    # Tokenizers fork threads of their own for a few prompts, and warn when a process is spawned afterwards.
    ("TOKENIZERS_PARALLELISM", "false"),
)
"""Variables and their defaults."""

SHORT_SPIN: Final = ("GOMP_SPINCOUNT", "4000")
"""GNU's OpenMP: threads sleep only after some 50 us. Waking them takes longer, several times in each layer of a model:
without this a decode step of SmolLM2 takes a quarter longer. Waiting twice as long gains nothing more, and makes a step
that shares its cores with another program a quarter slower.
"""


def set_thread_environment() -> None:
    """Set each variable of THREAD_ENVIRONMENT that the user has not set, and SHORT_SPIN where threads wait passively.

    It must run before torch is first imported, because OpenMP reads its variables once, and in every process; spawned
    workers inherit them. Calling it again changes nothing.
    """
    for name, value in THREAD_ENVIRONMENT:
        os.environ.setdefault(name, value)
    if os.environ["OMP_WAIT_POLICY"].lower() == "passive":  # it would override any other
        os.environ.setdefault(*SHORT_SPIN)
