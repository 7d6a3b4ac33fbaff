"""Fixed conversations in which something is large: many rows, many steps, many positions and blocks.

Random conversations (conversations.py) are small, so that everything is scarce and every failure short. Here numbers
pass what a byte or two can hold. It does not know what a codec must do with them (codec_checks.py).
"""

import random
from typing import Final

from serbench_codecs.conformance.conversations import Arrival, Conversation, StepScript
from serbench_codecs.table import TableLimits

VOCAB_SIZE: Final = 200_000


def wide() -> Conversation:
    """More than 256 rows: admitted, run, grown and freed in one step, in a batch whose order turns."""
    arrivals = tuple(Arrival(4 + 4 * (number % 3), 3 + number % 5) for number in range(300))
    return Conversation(
        limits=TableLimits(max_num_seqs=300, max_model_len=24, block_size=4, num_blocks=1_800, vocab_size=VOCAB_SIZE),
        token_budget=4_000,
        steps=(
            StepScript(arrivals),
            StepScript(),
            StepScript(rotation=290),
            StepScript(preemptions=280),
            *(StepScript() for _ in range(5)),
            StepScript(arrivals),
            StepScript(aborts=tuple(range(0, 300, 3))),
            StepScript(late_aborts=tuple(range(0, 200, 7))),
        ),
    )


def long() -> Conversation:
    """More than 300 steps of one epoch, in which more than 256 requests come and go."""
    rng = random.Random(0)
    return Conversation(
        limits=TableLimits(max_num_seqs=8, max_model_len=40, block_size=4, num_blocks=60, vocab_size=VOCAB_SIZE),
        token_budget=60,
        steps=tuple(_busy_step(rng) for _ in range(320)),
    )


def deep() -> Conversation:
    """More than 65,536 positions, blocks of one request and block ids, and as many tokens in one step."""
    length = 66_000
    return Conversation(
        limits=TableLimits(
            max_num_seqs=2, max_model_len=length + 4, block_size=1, num_blocks=2 * length + 8, vocab_size=VOCAB_SIZE
        ),
        token_budget=length,
        steps=(
            StepScript((Arrival(length - 300, 40),)),
            StepScript((Arrival(length, 9),)),
            StepScript(),
            StepScript(),
            StepScript(preemptions=1),
            *(StepScript() for _ in range(4)),
        ),
    )


LARGE: Final = {conversation.__name__: conversation for conversation in (wide, long, deep)}
"""What makes each, by name."""


def _busy_step(rng: random.Random) -> StepScript:
    arrivals = tuple(Arrival(rng.randint(1, 20), rng.randint(2, 10)) for _ in range(rng.choice((0, 1, 1, 2))))
    rare = rng.random() < 0.05
    return StepScript(
        arrivals,
        aborts=(rng.randint(0, 19),) if rare else (),
        preemptions=int(rng.random() < 0.05),
        idle=(rng.randint(0, 19),) if rng.random() < 0.1 else (),
        rotation=int(rng.random() < 0.1),
    )
