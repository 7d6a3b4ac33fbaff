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


def conversations() -> st.SearchStrategy[Conversation]:
    """Plausible conversations: small tables, so that everything is scarce."""
    min_steps = st.sampled_from([1, 12, 12, 12])  # left alone, hypothesis makes short lists; it must be able to shrink
    steps = min_steps.flatmap(lambda least: st.lists(_steps(), min_size=least, max_size=40))
    return st.builds(
        Conversation,
        limits=_limits(),
        token_budget=st.one_of(st.integers(1, 12), st.integers(12, 60)),
        steps=steps.map(tuple),
        reuses_arrays=st.booleans(),
        overlap=st.sampled_from([0, 0, 0, 1, 3]),
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


def _steps() -> st.SearchStrategy[StepScript]:
    picks = st.lists(st.integers(0, 9), max_size=2).map(tuple)
    rarely = st.sampled_from([0, 0, 0, 1, 2])
    eventful = st.builds(
        StepScript,
        arrivals=st.lists(_arrivals(), max_size=3).map(tuple),
        aborts=st.one_of(st.just(()), picks),
        late_aborts=st.one_of(st.just(()), picks),
        preemptions=rarely,
        idle=st.one_of(st.just(()), picks),
        rotation=rarely,
        new_epoch=st.sampled_from([False] * 14 + [True]),
    )
    arriving = st.builds(StepScript, arrivals=st.lists(_arrivals(), min_size=1, max_size=3).map(tuple))
    return st.one_of(st.just(StepScript()), arriving, eventful)


def _arrivals() -> st.SearchStrategy[Arrival]:
    return st.builds(
        Arrival,
        prompt_len=st.integers(1, 30),
        output_len=st.integers(1, 20),
        cached_blocks=st.sampled_from([0, 0, 1, 4]),
        stop_ids=st.lists(st.integers(0, 2), max_size=2).map(tuple),
    )
