"""The kit's conversations have something of everything; the large ones catch codecs wrong with large numbers only.

It does not know how they are played.
"""

import itertools
from collections import Counter
from collections.abc import Callable, Iterator

import hypothesis
import msgspec
import numpy as np
import pytest

from serbench_codecs.conformance import LARGE, Conversation, check_codec, conversations, run_conversation
from serbench_codecs.conformance.reference_scheduler import ReferenceScheduler, sampled
from serbench_codecs.plan import Ragged, StepPlan
from serbench_codecs.registry import get_codec
from tests.codecs.test_kit_catches import Broken, Change, fails, with_


def squeezes_rows(plan: StepPlan) -> StepPlan:
    return with_(plan, batch_rows=plan.batch_rows.astype(np.uint8).astype(np.int32))


def squeezes_blocks(plan: StepPlan) -> StepPlan:
    return with_(plan, blocks=msgspec.structs.replace(plan.blocks, values=plan.blocks.values & 0xFFFF))


def squeezes_ids(plan: StepPlan) -> StepPlan:
    ids = plan.admitted.token_ids
    squeezed = Ragged(ids.offsets, ids.values & 0xFFFF)
    return with_(plan, admitted=msgspec.structs.replace(plan.admitted, token_ids=squeezed))


def squeezes_positions(plan: StepPlan) -> StepPlan:
    return with_(plan, blocks=msgspec.structs.replace(plan.blocks, starts=plan.blocks.starts & 0xFFFF))


def fails_when_old() -> Change:
    """Raises after 40 plans."""
    had = itertools.count()

    def change(plan: StepPlan) -> StepPlan:
        return plan if next(had) < 40 else fails(plan)

    return change


def fails_when_wide(plan: StepPlan) -> StepPlan:
    return plan if len(plan.batch_rows) <= 16 else fails(plan)


def squeezes_steps(plan: StepPlan) -> StepPlan:
    return with_(plan, step=plan.step & 0xFF)


@pytest.mark.parametrize(
    ("name", "factory"),
    [
        ("long", fails_when_old),
        ("long", lambda: squeezes_steps),
        ("wide", lambda: fails_when_wide),
        ("wide", lambda: squeezes_rows),
        ("deep", lambda: squeezes_blocks),
        ("deep", lambda: squeezes_positions),
        ("wide", lambda: squeezes_ids),
    ],
)
def test_a_codec_that_is_wrong_with_large_numbers_only_is_caught(name: str, factory: Callable[[], Change]) -> None:
    broken = Broken(get_codec("cached"), after=factory)
    with pytest.raises(AssertionError, match=rf'\nrun_conversation\(codec, LARGE\["{name}"\]\(\)\)$'):
        run_conversation(broken, LARGE[name]())


def test_the_check_of_a_codec_plays_the_large_conversations() -> None:
    with pytest.raises(AssertionError, match="LARGE"):
        check_codec(Broken(get_codec("cached"), after=lambda: squeezes_rows), max_examples=2)


def plans_of(scheduler: ReferenceScheduler, conversation: Conversation) -> Iterator[StepPlan]:
    """Each plan, before it is run."""
    for script in conversation.steps:
        plan = scheduler.schedule(script)
        if plan is not None:
            yield plan
            rows, token_ids = sampled(scheduler.table, plan)
            scheduler.table.advance(plan)
            scheduler.update(plan, rows, token_ids, script)


def test_large_conversations_pass_what_a_byte_or_two_can_hold() -> None:
    wide = list(plans_of(ReferenceScheduler(LARGE["wide"]()), LARGE["wide"]()))
    assert max(len(plan.freed) for plan in wide) > 256
    assert max(len(plan.admitted) for plan in wide) > 256
    assert max(len(plan.batch_rows) for plan in wide) > 256
    assert max(len(plan.blocks) for plan in wide) > 256
    long = list(plans_of(ReferenceScheduler(LARGE["long"]()), LARGE["long"]()))
    assert long[-1].step > 300
    assert sum(len(plan.admitted) for plan in long) > 256
    deep = list(plans_of(ReferenceScheduler(LARGE["deep"]()), LARGE["deep"]()))
    for values in (
        [plan.blocks.starts for plan in deep],
        [plan.blocks.values for plan in deep],
        [plan.tokens.starts for plan in deep],
        [plan.tokens.values for plan in deep],
        [plan.batch_counts for plan in deep],
    ):
        assert np.concatenate(values).max() > 65_536


def test_conversations_have_something_of_everything() -> None:
    events: Counter[str] = Counter()

    @hypothesis.seed(0)
    @hypothesis.settings(max_examples=60, database=None, suppress_health_check=list(hypothesis.HealthCheck))
    @hypothesis.given(conversation=conversations())
    def play(conversation: Conversation) -> None:
        scheduler = ReferenceScheduler(conversation)
        for plan in plans_of(scheduler, conversation):
            plan.validate()
            scheduler.table.check(plan)
        events.update(scheduler.events)

    play()
    # test_conformance.py plays several hundred, over all codecs.
    for event in (
        "aborted waiting",
        "aborted in prefill",
        "aborted decoding",
        "aborted preempted",
        "chunk of a prefill",
        "preempted",
        "came back",
        "epochs",
        "finished: length",
        "finished: length limit",
        "finished: stop",
        "row reused in the step that freed it",
    ):
        assert events[event], f"{event} never happens; {events}"
