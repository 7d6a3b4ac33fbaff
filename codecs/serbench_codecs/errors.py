"""Everything that can be wrong with a plan, a payload or a codec's name. It knows no codec.

CodecsError
├── UnknownCodecError       no such codec, or an option it does not have
└── CodecError              a payload that can't be turned into a plan or a result
    ├── MalformedPayloadError   truncated, oversized, garbage, another format version or codec
    ├── OutOfOrderError         lost, repeated or reordered: not the step that is due
    ├── WrongEpochError         of an epoch that is over, or of one that never began
    └── PlanError               decoded, but breaks the contract of StepPlan
"""


class CodecsError(Exception):
    """Base of every error this package raises on purpose."""


class UnknownCodecError(CodecsError):
    """A codec name or option that does not exist; the message offers the nearest ones."""


class CodecError(CodecsError):
    """A payload that can't become a plan or a result. The receiver must not act on it."""


class MalformedPayloadError(CodecError):
    """Bytes that are no payload: truncated, oversized, garbage, another version or codec."""


class OutOfOrderError(CodecError):
    """A payload of another step than the one that is due: lost, repeated or reordered."""


class WrongEpochError(CodecError):
    """A payload of an epoch that is over or has not begun."""


class PlanError(CodecError):
    """A plan that breaks the contract of :class:`serbench_codecs.plan.StepPlan`."""
