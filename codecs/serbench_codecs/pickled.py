"""The codecs ``pickle`` and ``cloudpickle``: the whole state of every scheduled request, every step, as dataclasses.

It does not know which requests a worker knows already: full_state_mirror.py finds that out.
"""

import pickle
from collections.abc import Callable
from dataclasses import dataclass, fields
from operator import attrgetter
from typing import Any, Final, Literal, TypeAlias

import msgspec

from serbench_codecs.codec import Traits
from serbench_codecs.decoding import BAD_BYTES, malformed
from serbench_codecs.errors import MalformedPayloadError
from serbench_codecs.full_state import KeptLists, KeptPacked, KeptStates, state_maker
from serbench_codecs.full_state_mirror import FullStateMirror, ListIds, PackedIds
from serbench_codecs.plan import StepPlan
from serbench_codecs.table import RequestTable, TableLimits

PROTOCOL: Final = 5

Ids: TypeAlias = Literal["list", "packed"]
Dumps: TypeAlias = Callable[[Any], bytes]

# The dataclasses are not frozen: the scheduler keeps them and updates them every step. They say how they are pickled,
# because a call of the constructor takes a third of the time, and half of the bytes, of what pickle does by itself.


@dataclass(slots=True)
class Sampling:
    """Sampling parameters, in the order of SAMPLING_DTYPE."""

    seed: int
    temperature: float
    top_p: float
    min_p: float
    repetition_penalty: float
    presence_penalty: float
    frequency_penalty: float
    top_k: int
    min_tokens: int
    num_logprobs: int

    def __reduce__(self) -> tuple[Any, ...]:
        """Pickle as a call of the constructor."""
        return Sampling, _sampling_fields(self)


@dataclass(slots=True)
class PickledRequest:
    """A :class:`serbench_codecs.full_state.RequestState`; ids are ``list[int]`` or packed ``bytes``."""

    row: int
    serial: int
    request_id: str
    num_prompt_tokens: int
    num_computed_tokens: int
    num_scheduled: int
    token_ids: Any
    block_ids: Any
    sampling: Sampling
    stop_ids: list[int]

    def __reduce__(self) -> tuple[Any, ...]:
        """Pickle as a call of the constructor."""
        return PickledRequest, _request_fields(self)


@dataclass(slots=True)
class PickledStep:
    """A :class:`serbench_codecs.full_state_mirror.StepState`."""

    step: int
    epoch: int
    freed: list[int]
    requests: list[PickledRequest]


_sampling_fields: Final = attrgetter(*(field.name for field in fields(Sampling)))
_request_fields: Final = attrgetter(*(field.name for field in fields(PickledRequest)))


class PickleEncoder:
    """Keeps a dataclass per running request; pickles all scheduled ones."""

    def __init__(self, kept: KeptStates[PickledRequest], dumps: Dumps) -> None:
        self._kept = kept
        self._dumps = dumps

    def adapt(self, plan: StepPlan, table: RequestTable) -> PickledStep:
        """The kept objects, brought up to date."""
        return PickledStep(plan.step, plan.epoch, plan.freed.tolist(), list(self._kept.update(plan, table)))

    def encode(self, objects: PickledStep) -> bytes:
        """All of them, whole."""
        return self._dumps(objects)


class PickleDecoder:
    """Unpickles the states, and tells what is new in them."""

    def __init__(self, name: str, mirror: FullStateMirror) -> None:
        self._name = name
        self._mirror = mirror

    def decode(self, payload: memoryview) -> PickledStep:
        """The states as objects.

        Raises:
            MalformedPayloadError: unpickling failed, or made something else. (It may also have executed anything.)
        """
        try:
            state = pickle.loads(payload)
        except Exception as error:  # unpickling calls what the bytes say: it can raise anything
            raise malformed(self._name, error) from error
        if not isinstance(state, PickledStep):
            raise MalformedPayloadError(f"{self._name}: a {type(state).__name__} where a PickledStep was due")
        return state

    def adapt(self, objects: PickledStep) -> StepPlan:
        """What is new in the states.

        Raises:
            MalformedPayloadError: they can't have come from a scheduler with the same limits.
        """
        try:
            return self._mirror.plan(objects)
        except BAD_BYTES as error:
            raise malformed(self._name, error) from error


class PickleCodec(msgspec.Struct, frozen=True):
    """Whole states by ``dumps`` of the module ``library``; ``ids`` says how lists of ids are represented."""

    library: Literal["pickle", "cloudpickle"] = "pickle"
    ids: Ids = "list"

    @property
    def name(self) -> str:
        """The library, and the ids where they are not lists."""
        return self.library if self.ids == "list" else f"{self.library}:ids={self.ids}"

    @property
    def traits(self) -> Traits:
        """Whole states do not depend on earlier payloads. Unpickling can execute code."""
        return Traits(
            sends="full",
            sampled_ids_travel=True,
            remembers=False,
            trusted_only=True,
            result_format=self.library,
        )

    def ends(self, limits: TableLimits) -> tuple[PickleEncoder, PickleDecoder]:
        """A new encoder and a new decoder."""
        new_request = state_maker(PickledRequest, Sampling)
        kept: KeptStates[PickledRequest]
        if self.ids == "list":
            kept, mirror = KeptLists(new_request), FullStateMirror(limits, ListIds())
        else:
            kept, mirror = KeptPacked(new_request, bytes), FullStateMirror(limits, PackedIds())
        dumps = pickle_dumps if self.library == "pickle" else cloudpickle_dumps()
        return PickleEncoder(kept, dumps), PickleDecoder(self.name, mirror)


def pickle_dumps(objects: Any) -> bytes:
    """The standard library's pickle."""
    return pickle.dumps(objects, PROTOCOL)


def cloudpickle_dumps() -> Dumps:
    """cloudpickle's dumps, which only the sending side needs: its pickles are read by ``pickle.loads``."""
    import cloudpickle

    def dumps(objects: Any) -> bytes:
        pickled: bytes = cloudpickle.dumps(objects, PROTOCOL)
        return pickled

    return dumps
