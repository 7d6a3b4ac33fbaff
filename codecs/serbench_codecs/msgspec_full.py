"""The codec ``msgspec``: the whole state of every scheduled request, every step, as structs in MessagePack.

It does not know which requests a worker knows already: full_state_mirror.py finds that out.
"""

from typing import Any, Generic, Literal, TypeAlias, TypeVar

import msgspec

from serbench_codecs.codec import Traits
from serbench_codecs.decoding import BAD_BYTES, malformed
from serbench_codecs.full_state import KeptLists, KeptPacked, KeptStates, state_maker
from serbench_codecs.full_state_mirror import FullStateMirror, ListIds, PackedIds
from serbench_codecs.plan import StepPlan
from serbench_codecs.table import RequestTable, TableLimits

Ids: TypeAlias = Literal["packed", "list"]
IdList = TypeVar("IdList")


class Sampling(msgspec.Struct, array_like=True, gc=False, frozen=True):
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


class StructRequest(msgspec.Struct, Generic[IdList], array_like=True, gc=False):
    """A :class:`serbench_codecs.full_state.RequestState`; not frozen, because the scheduler keeps and updates it."""

    row: int
    serial: int
    request_id: str
    num_prompt_tokens: int
    num_computed_tokens: int
    num_scheduled: int
    token_ids: IdList
    block_ids: IdList
    sampling: Sampling
    stop_ids: list[int]


class StructStep(msgspec.Struct, Generic[IdList], array_like=True, gc=False, frozen=True):
    """A :class:`serbench_codecs.full_state_mirror.StepState`."""

    step: int
    epoch: int
    freed: list[int]
    requests: list[StructRequest[IdList]]


class MsgspecEncoder:
    """Keeps a struct per running request; serializes all scheduled ones."""

    def __init__(self, kept: KeptStates[StructRequest[Any]]) -> None:
        self._kept = kept
        self._encoder = msgspec.msgpack.Encoder()

    def adapt(self, plan: StepPlan, table: RequestTable) -> StructStep[Any]:
        """The kept structs, brought up to date. Packed ids point into the table: encode before it changes."""
        return StructStep(plan.step, plan.epoch, plan.freed.tolist(), list(self._kept.update(plan, table)))

    def encode(self, objects: StructStep[Any]) -> bytes:
        """All of them, whole."""
        return self._encoder.encode(objects)


class MsgspecDecoder:
    """Deserializes the states into typed structs, and tells what is new in them."""

    def __init__(self, name: str, step_type: Any, mirror: FullStateMirror) -> None:
        self._name = name
        self._decoder: msgspec.msgpack.Decoder[StructStep[Any]] = msgspec.msgpack.Decoder(step_type)
        self._mirror = mirror

    def decode(self, payload: memoryview) -> StructStep[Any]:
        """The states as structs. Packed ids are views of the payload until ``adapt`` has taken what is new.

        Raises:
            MalformedPayloadError: bytes that no encoder of this codec made.
        """
        try:
            return self._decoder.decode(payload)
        except BAD_BYTES as error:
            raise malformed(self._name, error) from error

    def adapt(self, objects: StructStep[Any]) -> StepPlan:
        """What is new in the states.

        Raises:
            MalformedPayloadError: they can't have come from a scheduler with the same limits.
        """
        try:
            return self._mirror.plan(objects)
        except BAD_BYTES as error:
            raise malformed(self._name, error) from error


class MsgspecCodec(msgspec.Struct, frozen=True):
    """Whole states as structs; ``ids`` says how lists of ids are represented."""

    ids: Ids = "packed"

    @property
    def name(self) -> str:
        """``msgspec``, and the ids where they are not packed."""
        return "msgspec" if self.ids == "packed" else f"msgspec:ids={self.ids}"

    @property
    def traits(self) -> Traits:
        """Whole states do not depend on earlier payloads."""
        return Traits(
            sends="full", sampled_ids_travel=True, remembers=False, trusted_only=False, result_format="msgspec"
        )

    def ends(self, limits: TableLimits) -> tuple[MsgspecEncoder, MsgspecDecoder]:
        """A new encoder and a new decoder."""
        new_request = state_maker(StructRequest, Sampling)
        if self.ids == "list":
            lists: KeptLists[StructRequest[Any]] = KeptLists(new_request)
            mirror = FullStateMirror(limits, ListIds())
            return MsgspecEncoder(lists), MsgspecDecoder(self.name, StructStep[list[int]], mirror)
        packed: KeptPacked[StructRequest[Any]] = KeptPacked(new_request, lambda ids: ids)
        mirror = FullStateMirror(limits, PackedIds())
        return MsgspecEncoder(packed), MsgspecDecoder(self.name, StructStep[memoryview], mirror)
