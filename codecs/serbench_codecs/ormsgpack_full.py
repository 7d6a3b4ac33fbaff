"""The codec ``ormsgpack``: the whole state by another library, to place ours. Needs the extra ``ormsgpack``.

It does not know which requests a worker knows already: full_state_mirror.py finds that out. The library has no schemas:
states travel as plain tuples, its quickest form, and their types are looked at when they have come.
"""

from collections.abc import Callable
from operator import attrgetter
from typing import Any, Final, Literal, TypeAlias

import msgspec

from serbench_codecs.codec import Traits
from serbench_codecs.decoding import BAD_BYTES, malformed
from serbench_codecs.errors import UnknownCodecError
from serbench_codecs.full_state import KeptLists, KeptPacked, KeptStates, state_maker
from serbench_codecs.full_state_mirror import FullStateMirror, ListIds, PackedIds
from serbench_codecs.msgspec_full import StructRequest, StructStep
from serbench_codecs.plan import StepPlan
from serbench_codecs.table import RequestTable, TableLimits

Ids: TypeAlias = Literal["packed", "list"]
Tuples: TypeAlias = tuple[int, int, list[int], list[Any], str]
"""Step, epoch, freed rows, one tuple for each scheduled request in the order of StructRequest's fields, END."""

END: Final = "end"
PACKED_END: Final = b"\xa3end"
"""The last bytes of every body: the library takes no notice of what comes after the first object."""

_request_fields = attrgetter(*StructRequest.__struct_fields__)


class OrmsgpackEncoder:
    """Keeps an object per running request; packs all scheduled ones as tuples."""

    def __init__(self, kept: KeptStates[StructRequest[Any]], pack: Callable[[Any], bytes]) -> None:
        self._kept = kept
        self._pack = pack

    def adapt(self, plan: StepPlan, table: RequestTable) -> Tuples:
        """The kept objects, brought up to date, as tuples."""
        requests = list(map(_request_fields, self._kept.update(plan, table)))
        return plan.step, plan.epoch, plan.freed.tolist(), requests, END

    def encode(self, objects: Tuples) -> bytes:
        """All of them, whole."""
        return self._pack(objects)


class OrmsgpackDecoder:
    """Unpacks lists, and tells what is new in the states that they are."""

    def __init__(self, name: str, unpack: Callable[[memoryview], Any], step_type: Any, mirror: FullStateMirror) -> None:
        self._name = name
        self._unpack = unpack
        self._step_type = step_type
        self._mirror = mirror

    def decode(self, payload: memoryview) -> Any:
        """Nested lists.

        Raises:
            MalformedPayloadError: bytes that no encoder of this codec made.
        """
        try:
            if bytes(payload[-len(PACKED_END) :]) != PACKED_END:
                raise ValueError(f"it ends with {bytes(payload[-len(PACKED_END) :])!r}, not {PACKED_END!r}")
            return self._unpack(payload)
        except BAD_BYTES as error:
            raise malformed(self._name, error) from error

    def adapt(self, objects: Any) -> StepPlan:
        """What is new in the states.

        Raises:
            MalformedPayloadError: other types than states have, or from a scheduler with other limits.
        """
        try:
            return self._mirror.plan(msgspec.convert(objects, self._step_type))
        except BAD_BYTES as error:
            raise malformed(self._name, error) from error


class OrmsgpackCodec(msgspec.Struct, frozen=True):
    """Whole states as tuples; ``ids`` says how lists of ids are represented."""

    ids: Ids = "packed"

    @property
    def name(self) -> str:
        """``ormsgpack``, and the ids where they are not packed."""
        return "ormsgpack" if self.ids == "packed" else f"ormsgpack:ids={self.ids}"

    @property
    def traits(self) -> Traits:
        """As ``msgspec``'s."""
        return Traits(
            sends="full", sampled_ids_travel=True, remembers=False, trusted_only=False, result_format="msgspec"
        )

    def ends(self, limits: TableLimits) -> tuple[OrmsgpackEncoder, OrmsgpackDecoder]:
        """A new encoder and a new decoder.

        Raises:
            UnknownCodecError: the library is not installed.
        """
        new_request = state_maker(StructRequest, _as_tuple)
        pack, unpack = _library()
        if self.ids == "list":
            lists: KeptLists[StructRequest[Any]] = KeptLists(new_request)
            decoder = OrmsgpackDecoder(self.name, unpack, StructStep[list[int]], FullStateMirror(limits, ListIds()))
            return OrmsgpackEncoder(lists, pack), decoder
        packed: KeptPacked[StructRequest[Any]] = KeptPacked(new_request, lambda ids: ids)
        decoder = OrmsgpackDecoder(self.name, unpack, StructStep[bytes], FullStateMirror(limits, PackedIds()))
        return OrmsgpackEncoder(packed, pack), decoder


def make_ormsgpack(ids: Ids = "packed") -> OrmsgpackCodec:
    """The codec.

    Raises:
        UnknownCodecError: the library is not installed; says how to.
    """
    _library()
    return OrmsgpackCodec(ids)


def _library() -> tuple[Callable[[Any], bytes], Callable[[memoryview], Any]]:
    try:
        import ormsgpack  # here: an optional extra
    except ImportError:
        raise UnknownCodecError("codec 'ormsgpack' needs its library: pip install 'serbench[ormsgpack]'") from None
    return ormsgpack.packb, ormsgpack.unpackb


def _as_tuple(*fields: int | float) -> tuple[int | float, ...]:
    """Sampling parameters as they are packed."""
    return fields
