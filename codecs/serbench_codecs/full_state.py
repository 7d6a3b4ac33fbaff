"""A scheduler's end of the full-state codecs: one kept object per running request, brought up to date every step.

It does not know how the objects are serialized, nor what a worker makes of them (full_state_mirror.py).

A scheduler that sends whole states would really keep request objects: with id lists that grow (``KeptLists``), or,
where ids travel packed, objects whose ids are taken out of the table's rows when they are due (``KeptPacked``).
"""

from collections.abc import Callable, Sequence
from typing import Any, Generic, Protocol, TypeVar

import numpy as np

from serbench_codecs.id_lists import written
from serbench_codecs.plan import Admissions, SamplingArray, StepPlan
from serbench_codecs.table import RequestTable


class RequestState(Protocol):
    """All that a worker needs to know of a scheduled request; each codec has its own kind of object for it.

    ``token_ids`` (prompt and output) and ``block_ids`` are ``list[int]``, or int32 ids packed into bytes.
    """

    row: int
    serial: int
    request_id: str
    num_prompt_tokens: int
    num_computed_tokens: int
    num_scheduled: int
    token_ids: Any
    block_ids: Any
    sampling: Any
    stop_ids: list[int]


State = TypeVar("State", bound=RequestState)
Made = TypeVar("Made", bound=RequestState, covariant=True)


class NewState(Protocol[Made]):
    """Makes the object of admission ``i``, its ids left to the caller."""

    def __call__(self, admitted: Admissions, i: int) -> Made: ...


class KeptStates(Protocol[Made]):
    """The request objects of a scheduler."""

    def update(self, plan: StepPlan, table: RequestTable) -> Sequence[Made]:
        """Bring the kept objects up to date; the scheduled ones, in batch order."""
        ...


class KeptLists(Generic[State]):
    """Keeps request objects whose ids are Python lists."""

    def __init__(self, new_state: NewState[State]) -> None:
        self._new_state = new_state
        self._states: dict[int, State] = {}

    def update(self, plan: StepPlan, table: RequestTable) -> list[State]:
        """Admit, append and drop as the plan says; the scheduled requests, in batch order."""
        states = self._states
        for row in plan.freed.tolist():
            states.pop(row, None)
        for i, row in enumerate(plan.admitted.rows.tolist()):
            state = self._new_state(plan.admitted, i)
            state.token_ids = plan.admitted.token_ids[i].tolist()
            state.block_ids = plan.admitted.block_ids[i].tolist()
            states[row] = state
        for row, start, values in written(plan.blocks):
            states[row].block_ids[start : start + len(values)] = values
        for row, start, values in written(plan.tokens):
            states[row].token_ids[start : start + len(values)] = values
        return _scheduled(states, plan, table)


class KeptPacked(Generic[State]):
    """Keeps request objects whose ids are packed: each step they point into the scheduler's table.

    ``wrap`` makes what is serialized of a memoryview: ``bytes`` copies, the identity points.
    """

    def __init__(self, new_state: NewState[State], wrap: Callable[[memoryview], Any]) -> None:
        self._new_state = new_state
        self._wrap = wrap
        self._states: dict[int, State] = {}

    def update(self, plan: StepPlan, table: RequestTable) -> list[State]:
        """Admit and drop as the plan says; the scheduled requests with their ids, in batch order."""
        for row in plan.freed.tolist():
            self._states.pop(row, None)
        for i, row in enumerate(plan.admitted.rows.tolist()):
            self._states[row] = self._new_state(plan.admitted, i)
        scheduled = _scheduled(self._states, plan, table)
        rows, wrap = plan.batch_rows, self._wrap
        tokens, blocks = table.token_ids.data.cast("B"), table.block_table.data.cast("B")
        token_begins, token_ends = _spans(table.token_ids, rows, table.num_tokens)
        block_begins, block_ends = _spans(table.block_table, rows, table.num_blocks)
        spans = zip(scheduled, token_begins, token_ends, block_begins, block_ends, strict=True)
        for state, token_begin, token_end, block_begin, block_end in spans:
            state.token_ids = wrap(tokens[token_begin:token_end])
            state.block_ids = wrap(blocks[block_begin:block_end])
        return scheduled


def state_maker(request: Callable[..., State], sampling: Callable[..., Any]) -> NewState[State]:
    """Makes objects of type ``request`` for admissions; ``sampling`` takes the parameters in SAMPLING_DTYPE's order."""

    def new_state(admitted: Admissions, i: int) -> State:
        return request(
            row=int(admitted.rows[i]),
            serial=int(admitted.serials[i]),
            request_id=admitted.request_ids[i],
            num_prompt_tokens=int(admitted.num_prompt_tokens[i]),
            num_computed_tokens=int(admitted.num_computed_tokens[i]),
            num_scheduled=0,
            token_ids=None,
            block_ids=None,
            sampling=sampling(*sampling_fields(admitted.sampling, i)),
            stop_ids=admitted.stop_ids[i].tolist(),
        )

    return new_state


def sampling_fields(sampling: SamplingArray, i: int) -> tuple[int | float, ...]:
    """The sampling parameters of admission ``i`` as Python numbers, in the order of SAMPLING_DTYPE."""
    fields: tuple[int | float, ...] = sampling[i].item()
    return fields


def _scheduled(states: dict[int, State], plan: StepPlan, table: RequestTable) -> list[State]:
    scheduled = [states[row] for row in plan.batch_rows.tolist()]
    computed = table.num_computed_tokens[plan.batch_rows].tolist()
    for state, num_computed, count in zip(scheduled, computed, plan.batch_counts.tolist(), strict=True):
        state.num_computed_tokens = num_computed
        state.num_scheduled = count
    return scheduled


def _spans(column: np.ndarray[Any, Any], rows: Any, lengths: Any) -> tuple[list[int], list[int]]:
    """Where the first ``lengths[row]`` ids of each of ``rows`` lie in ``column``, in bytes from its beginning."""
    begins = rows.astype(np.int64) * column.strides[0]
    ends = begins + lengths[rows].astype(np.int64) * column.itemsize
    return begins.tolist(), ends.tolist()
