"""Scripts of what happens to a scheduler, and a hypothesis strategy that makes plausible ones.

It does not know what a scheduler makes of a script (reference_scheduler.py) nor what a codec must do with that
(codec_checks.py).
"""

import msgspec
from hypothesis import strategies as st

from serbench_codecs.table import TableLimits


class Arrival(msgspec.Struct, frozen=True):
    """A request that arrives. It ends after ``output_len`` ids, or at the length limit, or on a stop id.

    ``cached_blocks``: blocks of the prompt whose KV is found in a prefix cache, as far as the prompt has as many.
    """

    prompt_len: int
    output_len: int = 4
    cached_blocks: int = 0
    stop_ids: tuple[int, ...] = ()


class StepScript(msgspec.Struct, frozen=True):
    """What happens around one step; nothing, by default: the scheduler goes on with what it has.

    ``aborts`` come before the step is scheduled, ``late_aborts`` after its plan is sent and before its result is there;
    each number picks one of the requests alive. ``preemptions``: how many of the latest running requests are preempted
    without need. ``idle``: picks running requests that don't run in this step. ``rotation``: by how much the batch's
    order is turned. ``new_epoch``: before this step the session is begun anew, as after a failure.
    """

    arrivals: tuple[Arrival, ...] = ()
    aborts: tuple[int, ...] = ()
    late_aborts: tuple[int, ...] = ()
    preemptions: int = 0
    idle: tuple[int, ...] = ()
    rotation: int = 0
    new_epoch: bool = False


class Conversation(msgspec.Struct, frozen=True):
    """A scheduler's limits and what happens to it. ``repr`` gives source text that makes the same one.

    ``token_budget``: tokens a step. ``reuses_arrays``: an unchanged batch is handed out as the same arrays.
    ``overlap``: how many ids, or blocks, before the news each positional write begins (writing twice is harmless).
    """

    limits: TableLimits
    token_budget: int
    steps: tuple[StepScript, ...]
    reuses_arrays: bool = True
    overlap: int = 0


# Composite, not ``builds``: hypothesis would write down how each struct was built, which takes minutes.


@st.composite
def conversations(draw: st.DrawFn) -> Conversation:
    """Plausible conversations: small tables, so that everything is scarce."""
    least = draw(st.sampled_from([1, 12, 12, 12]))  # left alone, hypothesis makes short lists
    return Conversation(
        limits=draw(_limits()),
        token_budget=draw(st.one_of(st.integers(1, 12), st.integers(12, 60))),
        steps=tuple(draw(st.lists(_steps(), min_size=least, max_size=40))),
        reuses_arrays=draw(st.booleans()),
        overlap=draw(st.sampled_from([0, 0, 0, 1, 3])),
    )


@st.composite
def _limits(draw: st.DrawFn) -> TableLimits:
    block_size, max_model_len = draw(st.integers(1, 5)), draw(st.integers(6, 40))
    longest = -(-max_model_len // block_size)  # a request that is alone must fit
    return TableLimits(
        max_num_seqs=draw(st.integers(1, 6)),
        max_model_len=max_model_len,
        block_size=block_size,
        num_blocks=draw(st.integers(longest, 4 * longest)),
        vocab_size=draw(st.sampled_from([3, 300, 200_000])),
    )


@st.composite
def _steps(draw: st.DrawFn) -> StepScript:
    kind = draw(st.sampled_from(["quiet", "arrivals", "anything"]))
    if kind == "quiet":
        return StepScript()
    arrivals = tuple(draw(st.lists(_arrivals(), min_size=kind == "arrivals", max_size=3)))
    if kind == "arrivals":
        return StepScript(arrivals)
    picks, rarely = st.lists(st.integers(0, 9), max_size=2), st.sampled_from([0, 0, 0, 1, 2])
    return StepScript(
        arrivals,
        aborts=tuple(draw(picks)),
        late_aborts=tuple(draw(picks)),
        preemptions=draw(rarely),
        idle=tuple(draw(picks)),
        rotation=draw(rarely),
        new_epoch=draw(st.sampled_from([False] * 14 + [True])),
    )


@st.composite
def _arrivals(draw: st.DrawFn) -> Arrival:
    return Arrival(
        prompt_len=draw(st.integers(1, 30)),
        output_len=draw(st.integers(1, 20)),
        cached_blocks=draw(st.sampled_from([0, 0, 1, 4])),
        stop_ids=tuple(draw(st.lists(st.integers(0, 2), max_size=2))),
    )
