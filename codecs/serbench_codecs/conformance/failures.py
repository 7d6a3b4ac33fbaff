"""What the kit says of a codec that fails: the rule that was broken in one line, below it where, and how to repeat it.

All that is below the first line can be pasted into Python, given ``codec``. It does not know the rules.
"""

from typing import Any, Final

import numpy as np

from serbench_codecs.codec import Codec
from serbench_codecs.conformance.conversations import Conversation
from serbench_codecs.conformance.large_conversations import LARGE
from serbench_codecs.plan import Int32Array, StepPlan

_KIT: Final = "from serbench_codecs.conformance import"


def broken_rule(codec: Codec, error: Exception) -> str:
    """The first line. An assertion without words, and what a codec raised, are shown as Python shows them."""
    rule = str(error) if isinstance(error, AssertionError) and str(error) else repr(error)
    return f"codec {codec.name} breaks the contract: {' '.join(rule.split())}"


def where_and_again(conversation: Conversation, sent: int, plan: StepPlan | None) -> str:
    """The lines below a rule that ``conversation`` broke, after so many payloads, at ``plan`` if there was one yet."""
    lines = [f"# after {sent} payloads"]
    if plan is not None:
        lines = [f"# step {plan.step} of epoch {plan.epoch}, after {sent} payloads", f"# rows {_few(plan.batch_rows)}"]
    for name, make in LARGE.items():
        if conversation == make():
            return "\n".join([*lines, f"{_KIT} LARGE, run_conversation", f'run_conversation(codec, LARGE["{name}"]())'])
    names = "Arrival, Conversation, StepScript, TableLimits, run_conversation"
    return "\n".join([*lines, f"{_KIT} {names}", f"run_conversation(codec, {conversation!r})"])


def faults_again(seed: int) -> str:
    """The lines below a rule that a faulty payload broke."""
    return f"{_KIT} check_faults\ncheck_faults(codec, seed={seed})"


def difference(name: str, its: Any, ours: Any) -> str:
    """Where two columns differ, in a few words: their lengths, or the first value that does."""
    its, ours = np.asarray(its), np.asarray(ours)
    if its.shape != ours.shape:
        return f"{name} has {its.size} values at the worker, {ours.size} at the scheduler"
    if not its.shape:
        return f"{name} is {its} at the worker, {ours} at the scheduler"
    at = np.flatnonzero(its != ours)[0]
    return f"{name}[{at}] is {its[at]} at the worker, {ours[at]} at the scheduler"


def _few(rows: Int32Array) -> str:
    first = " ".join(map(str, rows[:20]))
    return f"{first} and {len(rows) - 20} more" if len(rows) > 20 else first
