"""The codec ``none``: a plan is handed over by reference, inside one process. The ceiling for every other codec.

It knows nothing of bytes: there are none.
"""

import msgspec

from serbench_codecs.codec import Traits
from serbench_codecs.errors import MalformedPayloadError
from serbench_codecs.plan import StepPlan
from serbench_codecs.table import RequestTable, TableLimits


class ReferenceEncoder:
    """Passes the plan on."""

    def adapt(self, plan: StepPlan, table: RequestTable) -> StepPlan:
        """The plan itself."""
        return plan

    def encode(self, objects: StepPlan) -> StepPlan:
        """The plan itself: the body never leaves its process."""
        return objects


class ReferenceDecoder:
    """Takes the plan."""

    def decode(self, payload: object) -> StepPlan:
        """The plan itself.

        Raises:
            MalformedPayloadError: anything else, such as bytes.
        """
        if not isinstance(payload, StepPlan):
            raise MalformedPayloadError(f"none: {type(payload).__name__} where a StepPlan of this process was due")
        return payload

    def adapt(self, objects: StepPlan) -> StepPlan:
        """The plan itself."""
        return objects


class ReferenceCodec(msgspec.Struct, frozen=True):
    """No serialization at all; same process only."""

    name: str = "none"
    traits: Traits = Traits(
        sends="reference", sampled_ids_travel=True, remembers=True, trusted_only=False, result_format="none"
    )

    def ends(self, limits: TableLimits) -> tuple[ReferenceEncoder, ReferenceDecoder]:
        """A new encoder and a new decoder; neither keeps anything."""
        return ReferenceEncoder(), ReferenceDecoder()
