"""Every codec of the registry with every value of its options, and how tests drive one end to end.

It does not know any of them by name: what the registry lists is tested.
"""

from collections.abc import Iterator
from typing import Final, NamedTuple

from serbench_codecs.codec import HEADER_BYTES, Codec
from serbench_codecs.conformance.conversations import Arrival, Conversation, StepScript
from serbench_codecs.conformance.reference_scheduler import ReferenceScheduler, sampled
from serbench_codecs.conformance.reference_worker import ReferenceWorker, Sent
from serbench_codecs.plan import StepPlan
from serbench_codecs.registry import CODECS, get_codec
from serbench_codecs.table import TableLimits


def _specs() -> Iterator[str]:
    for name, family in CODECS.items():
        yield name
        for key, values in family.options.items():
            yield from (f"{name}:{key}={value}" for value in values[1:])


SPECS: Final = list(_specs())
WIRE_SPECS: Final = [spec for spec in SPECS if get_codec(spec).traits.sends != "reference"]


class Step(NamedTuple):
    """One step as the scheduler planned it, as it was sent, and as a worker decoded it."""

    plan: StepPlan
    sent: Sent
    got: StepPlan

    @property
    def payload_bytes(self) -> int:
        """Header and body."""
        return HEADER_BYTES + (0 if isinstance(self.sent.body, StepPlan) else len(self.sent.body))


def played(codec: Codec, conversation: Conversation) -> list[Step]:
    """Play a conversation of one epoch with one worker."""
    scheduler = ReferenceScheduler(conversation)
    encoder, decoder = codec.ends(conversation.limits)
    worker = ReferenceWorker(codec, decoder, conversation.limits)
    steps = []
    for script in conversation.steps:
        plan = scheduler.schedule(script)
        if plan is None:
            continue
        sent = Sent.of(codec, plan, encoder.encode(encoder.adapt(plan, scheduler.table)))
        got = worker.receive(sent, 0, plan.step)
        steps.append(Step(plan, sent, got))
        rows, token_ids = sampled(scheduler.table, plan)
        worker.run(got)
        scheduler.table.advance(plan)
        scheduler.update(plan, rows, token_ids, script)
    return steps


def steady_decode(batch: int, context: int, steps: int = 20) -> Conversation:
    """``batch`` requests are admitted at once and decode; a sixteenth of them gets a block in every step.

    Ids are chosen so that MessagePack's integers keep their widths: token ids below 128, block ids above 255.
    """
    max_model_len = context + 64
    arrivals = tuple(Arrival(context + i % 16, output_len=64) for i in range(batch))
    return Conversation(
        limits=TableLimits(batch, max_model_len, 16, max(65_000, batch * max_model_len // 16), 100),
        token_budget=batch * max_model_len,
        steps=(StepScript(arrivals=arrivals), *(StepScript() for _ in range(steps))),
    )
