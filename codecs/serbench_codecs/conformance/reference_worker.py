"""A worker reduced to its table and a decoder, for tests: it receives, applies, samples and goes on.

It knows no codec, and runs no model: what it samples follows from its table.
"""

import hashlib
from typing import Any

import msgspec
import numpy.typing as npt

from serbench_codecs.codec import PLAN, Body, Codec, Decoder, check_header, codec_id, pack_header, parse_header
from serbench_codecs.conformance.reference_scheduler import sampled
from serbench_codecs.plan import Int32Array, StepPlan, StepResult
from serbench_codecs.table import RequestTable, TableLimits


class Sent(msgspec.Struct, frozen=True):
    """A payload on its way: a header, and a body of bytes or (``none``) the plan itself."""

    header: bytes
    body: bytes | StepPlan

    @staticmethod
    def of(codec: Codec, plan: StepPlan, body: Body) -> "Sent":
        """``body`` under its header; bytes are copied, as a transport would."""
        header = pack_header(PLAN, codec_id(codec.name), plan.epoch, plan.step, body)
        assert not isinstance(body, StepResult)
        return Sent(header, body if isinstance(body, StepPlan) else bytes(body))


class ReferenceWorker:
    """One worker of a session and epoch. ``table`` is its table."""

    def __init__(self, codec: Codec, decoder: Decoder, limits: TableLimits) -> None:
        self.table = RequestTable(limits)
        self._codec_id = codec_id(codec.name)
        self._writes_samples = not codec.traits.sampled_ids_travel
        self._decoder = decoder

    def receive(self, sent: Sent, epoch: int, step: int) -> StepPlan:
        """Check, decode and apply the payload that is due.

        Raises:
            CodecError: it is not the one due, or can't be decoded or applied.
            AssertionError: the plan changes with the payload's buffer, once decoded.
        """
        body_bytes = 0 if isinstance(sent.body, StepPlan) else len(sent.body)
        check_header(parse_header(sent.header, body_bytes), PLAN, self._codec_id, epoch, step)
        plan = self.decode(sent.body)
        self.table.apply(plan)
        return plan

    def decode(self, body: bytes | StepPlan) -> StepPlan:
        """The plan of a body, whose buffer is overwritten afterwards. Raises as ``receive`` does."""
        if isinstance(body, StepPlan):
            return self._decoder.adapt(self._decoder.decode(body))  # type: ignore[arg-type]
        buffer = bytearray(body)
        plan = self._decoder.adapt(self._decoder.decode(memoryview(buffer)))
        before = fingerprint(plan)
        buffer[:] = b"\xff" * len(buffer)
        assert fingerprint(plan) == before, "the decoded plan has views of the payload: it changed with the buffer"
        return plan

    def run(self, plan: StepPlan) -> tuple[Int32Array, Int32Array]:
        """Run the applied plan: the rows sampled, and their ids, written to the table if they don't travel."""
        rows, token_ids = sampled(self.table, plan)
        self.table.advance(plan)
        if self._writes_samples:
            self.table.append_sampled(rows, token_ids)
        return rows, token_ids


def fingerprint(plan: StepPlan) -> bytes:
    """16 bytes over everything in a plan, types of its arrays included."""
    digest = hashlib.blake2b(digest_size=16)
    admitted = plan.admitted
    digest.update(repr((plan.step, plan.epoch, admitted.request_ids)).encode())
    ragged = (admitted.token_ids, admitted.block_ids, admitted.stop_ids)
    arrays: list[npt.NDArray[Any]] = [
        plan.freed,
        *(admitted.rows, admitted.serials, admitted.num_prompt_tokens, admitted.num_computed_tokens, admitted.sampling),
        *(array for one in ragged for array in (one.offsets, one.values)),
        *(array for one in (plan.blocks, plan.tokens) for array in (one.rows, one.starts, one.counts, one.values)),
        plan.batch_rows,
        plan.batch_counts,
    ]
    for array in arrays:
        digest.update(repr((array.dtype.str, array.shape)).encode())
        digest.update(array.tobytes())
    return digest.digest()
