"""The kit that any codec or result format must pass, ours or a plug-in's. It knows none of them.

In a test of a plug-in (hypothesis must be installed; this package does not bring it):

    from serbench_codecs.conformance import check_codec

    def test_my_codec() -> None:
        check_codec(MyCodec())

A failure is an AssertionError: one line, and below it what plays the same conversation again, or the payload that did
harm.
"""

from serbench_codecs.conformance.codec_checks import (
    EVENTFUL,
    check_codec,
    check_conversations,
    check_faults,
    run_conversation,
)
from serbench_codecs.conformance.conversations import Arrival, Conversation, StepScript, conversations
from serbench_codecs.conformance.large_conversations import LARGE
from serbench_codecs.conformance.result_checks import check_result_format
from serbench_codecs.table import TableLimits

__all__ = [
    "EVENTFUL",
    "LARGE",
    "Arrival",
    "Conversation",
    "StepScript",
    "TableLimits",
    "check_codec",
    "check_conversations",
    "check_faults",
    "check_result_format",
    "conversations",
    "run_conversation",
]
