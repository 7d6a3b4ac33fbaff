"""What must hold of any codec: equal tables in every conversation, and no harm from payloads that go wrong.

It knows no codec, nor how a failure is worded (failures.py).
"""

import random
from typing import Any, Final

import hypothesis
import numpy as np

from serbench_codecs.codec import Codec, Encoder
from serbench_codecs.conformance.conversations import Arrival, Conversation, StepScript, conversations
from serbench_codecs.conformance.failures import broken_rule, difference, faults_again, where_and_again
from serbench_codecs.conformance.large_conversations import LARGE
from serbench_codecs.conformance.payload_faults import FaultyDelivery
from serbench_codecs.conformance.reference_scheduler import ReferenceScheduler, sampled
from serbench_codecs.conformance.reference_worker import ReferenceWorker, Sent, fingerprint
from serbench_codecs.plan import Int32Array, Int64Array, StepPlan
from serbench_codecs.table import RequestTable, TableLimits

NUM_WORKERS: Final = 3

EVENTFUL: Final = Conversation(
    limits=TableLimits(max_num_seqs=4, max_model_len=40, block_size=3, num_blocks=40, vocab_size=300),
    token_budget=14,
    steps=(
        StepScript(arrivals=(Arrival(5), Arrival(17, 9, stop_ids=(2,)))),
        StepScript(arrivals=(Arrival(3, 9),)),
        StepScript(),
        StepScript(aborts=(0,), arrivals=(Arrival(2, 12),)),
        StepScript(preemptions=1),
        StepScript(idle=(1,)),
        *(StepScript() for _ in range(6)),
    ),
)
"""A conversation whose payloads have something of everything; they are recorded, and delivered wrongly."""

FAULTY_STEPS: Final = (0, 1, 4, 6, 11)
"""Steps of EVENTFUL whose bodies are damaged: admissions, a chunk, a return after preemption, blocks, a row freed."""


def check_codec(codec: Codec, *, max_examples: int = 100, seed: int = 0, shrinks: bool = True) -> None:
    """Everything that must hold of a codec: conversations, small and large, then payloads that go wrong.

    ``shrinks``: whether to look for the shortest conversation that fails, which takes seconds.

    Raises:
        AssertionError: what does not hold; with the conversation, or the body, that shows it.
    """
    check_conversations(codec, max_examples=max_examples, seed=seed, shrinks=shrinks)
    for make in LARGE.values():
        run_conversation(codec, make())
    check_faults(codec, seed=seed)


def check_conversations(codec: Codec, *, max_examples: int = 100, seed: int = 0, shrinks: bool = True) -> None:
    """Whatever is said, after every step the workers' tables and batches equal the scheduler's.

    Raises:
        AssertionError: they don't, or a payload was refused.
    """

    phases = [hypothesis.Phase.generate, *([hypothesis.Phase.shrink] if shrinks else [])]

    @hypothesis.seed(seed)
    @hypothesis.settings(
        max_examples=max_examples,
        phases=phases,
        report_multiple_bugs=False,
        deadline=None,
        database=None,
        suppress_health_check=list(hypothesis.HealthCheck),
    )
    @hypothesis.given(conversation=conversations())
    def converse(conversation: Conversation) -> None:
        run_conversation(codec, conversation)

    converse()


def check_faults(codec: Codec, *, seed: int = 0) -> None:
    """Payloads that are lost, repeated, cut, mislabelled or damaged raise a CodecError, or do no harm.

    Raises:
        AssertionError: with the payload that did something else.
    """
    recorded = run_conversation(codec, EVENTFUL)
    delivery = FaultyDelivery(codec, EVENTFUL.limits, recorded)
    try:
        _deliver_wrongly(codec, delivery, len(recorded), random.Random(seed))
    except AssertionError as error:
        rule, *payload = str(error).splitlines()
        lines = [broken_rule(codec, AssertionError(rule)), *payload, faults_again(seed)]
        raise AssertionError("\n".join(lines)) from error


def _deliver_wrongly(codec: Codec, delivery: FaultyDelivery, num_steps: int, rng: random.Random) -> None:
    for step in range(1, num_steps - 1, 2):
        delivery.check_headers(step)
    if codec.traits.sends == "reference" or codec.traits.trusted_only:
        return
    for step in FAULTY_STEPS:
        delivery.check_bodies(step, rng)


def run_conversation(codec: Codec, conversation: Conversation) -> list[Sent]:
    """Play one conversation between a scheduler and three workers; the payloads that were sent.

    Raises:
        AssertionError: a table or a batch differs, a payload was refused, or an end raised or did what it must not.
    """
    sent: list[Sent] = []
    session = None
    try:
        session = _Session(codec, conversation, sent)
        for script in conversation.steps:
            session.step(script)
    except Exception as error:  # a codec may raise anything
        below = where_and_again(conversation, len(sent), session.plan if session else None)
        raise AssertionError(f"{broken_rule(codec, error)}\n{below}") from error
    return sent


class _Session:
    """A scheduler and its workers, and what is checked at every step; ``sent`` takes in the payloads, ``plan`` is the
    latest.

    Where payloads don't depend on earlier ones, the last worker misses every third.
    """

    def __init__(self, codec: Codec, conversation: Conversation, sent: list[Sent]) -> None:
        self.sent = sent
        self.plan: StepPlan | None = None
        self._codec = codec
        self._scheduler = ReferenceScheduler(conversation)
        self._workers: list[ReferenceWorker] = []
        self._last_plans: dict[ReferenceWorker, tuple[StepPlan, bytes]] = {}
        self._encoder = self._begin()

    def step(self, script: StepScript) -> None:
        """Schedule, send, apply everywhere, compare, go on."""
        scheduler, table = self._scheduler, self._scheduler.table
        epoch = scheduler.epoch
        plan = scheduler.schedule(script)
        if plan is None:
            return
        self.plan = plan
        if plan.epoch != epoch:
            self._encoder = self._begin()
        plan.validate()
        before = fingerprint(plan), _table_bytes(table)
        body = self._encoder.encode(self._encoder.adapt(plan, table))
        assert (fingerprint(plan), _table_bytes(table)) == before, "the encoder changed the plan or the table"
        sent = Sent.of(self._codec, plan, body)
        self.sent.append(sent)
        rows, token_ids = sampled(table, plan)
        for worker in self._receivers():
            self._deliver(sent, plan, worker, rows, token_ids)
        table.advance(plan)
        scheduler.update(plan, rows, token_ids, script)
        assert Sent.of(self._codec, plan, body) == sent, "the encoded body changed with the table"

    def _begin(self) -> Encoder:
        """New ends and workers, of a new epoch."""
        limits = self._scheduler.limits
        ends: list[Any] = [self._codec.ends(limits) for _ in range(NUM_WORKERS)]
        assert all(isinstance(one, tuple) and len(one) == 2 for one in ends), f"ends(limits) returned {ends[0]!r}"
        self._workers = [ReferenceWorker(self._codec, decoder, limits) for _, decoder in ends]
        self._last_plans.clear()
        encoder: Encoder = ends[0][0]
        return encoder

    def _receivers(self) -> list[ReferenceWorker]:
        loses = not self._codec.traits.remembers and len(self.sent) % 3 == 1
        return self._workers[:-1] if loses else self._workers

    def _deliver(
        self, sent: Sent, plan: StepPlan, worker: ReferenceWorker, rows: Int32Array, token_ids: Int32Array
    ) -> None:
        """Let a worker have a payload, compare it with the scheduler, let it run the step."""
        got = worker.receive(sent, plan.epoch, plan.step)
        got.validate()
        _check_types(got)
        worker.table.check(got)
        assert (got.step, got.epoch) == (plan.step, plan.epoch), f"decoded as step {got.step} of epoch {got.epoch}"
        _compare(plan, got, self._scheduler.table, worker.table)
        if worker in self._last_plans:
            last, mark = self._last_plans[worker]
            assert fingerprint(last) == mark, "decoding a payload changed the plan that was decoded before"
        self._last_plans[worker] = (got, fingerprint(got))
        its_rows, its_ids = worker.run(got)
        _assert_equal("rows that sample", its_rows, rows)
        _assert_equal("ids sampled", its_ids, token_ids)


def _compare(plan: StepPlan, got: StepPlan, table: RequestTable, worker_table: RequestTable) -> None:
    """The batch, the scheduled rows and the freed ones must be equal."""
    _assert_equal("batch_rows", got.batch_rows, plan.batch_rows)
    _assert_equal("batch_counts", got.batch_counts, plan.batch_counts)
    rows = plan.batch_rows
    upto = table.num_tokens[rows]
    if worker_table.digest(rows, upto) != table.digest(rows, upto):
        bad = [row for row in rows if not _equal_row(worker_table, table, row)]
        raise AssertionError(_difference(worker_table, table, bad[0]))
    _assert_equal("serials of freed rows", worker_table.serial[plan.freed], table.serial[plan.freed])


def _assert_equal(name: str, its: Int32Array | Int64Array, ours: Int32Array | Int64Array) -> None:
    assert np.array_equal(its, ours), difference(name, its, ours)


def _equal_row(one: RequestTable, other: RequestTable, row: int) -> bool:
    rows = np.array([row])
    return one.digest(rows, other.num_tokens[rows]) == other.digest(rows, other.num_tokens[rows])


def _difference(worker_table: RequestTable, table: RequestTable, row: int) -> str:
    """The first column in which a row differs."""
    tokens, blocks = table.num_tokens[row], max(table.num_blocks[row], worker_table.num_blocks[row])
    for name, its, ours in (
        ("serial", worker_table.serial[row], table.serial[row]),
        ("num_prompt_tokens", worker_table.num_prompt_tokens[row], table.num_prompt_tokens[row]),
        ("num_computed_tokens", worker_table.num_computed_tokens[row], table.num_computed_tokens[row]),
        ("token_ids", worker_table.token_ids[row, :tokens], table.token_ids[row, :tokens]),
        ("num_blocks", worker_table.num_blocks[row], table.num_blocks[row]),
        ("block_table", worker_table.block_table[row, :blocks], table.block_table[row, :blocks]),
        ("sampling", worker_table.sampling[row], table.sampling[row]),
        ("stop_ids", worker_table.stop_ids[row], table.stop_ids[row]),
    ):
        if not np.array_equal(its, ours):
            return f"row {row}: {difference(name, its, ours)}"
    return f"row {row}: request id is {worker_table.request_ids[row]!r}, not {table.request_ids[row]!r}"


def _check_types(plan: StepPlan) -> None:
    for name, array in (
        ("freed", plan.freed),
        ("batch_rows", plan.batch_rows),
        ("batch_counts", plan.batch_counts),
        ("admitted.rows", plan.admitted.rows),
        ("admitted.num_computed_tokens", plan.admitted.num_computed_tokens),
        ("admitted.token_ids", plan.admitted.token_ids.values),
        ("blocks.rows", plan.blocks.rows),
        ("blocks.values", plan.blocks.values),
        ("tokens.starts", plan.tokens.starts),
        ("tokens.values", plan.tokens.values),
    ):
        assert array.dtype == np.int32, f"{name} is {array.dtype}, not int32"


def _table_bytes(table: RequestTable) -> bytes:
    columns = (table.serial, table.token_ids, table.num_tokens, table.num_computed_tokens, table.block_table)
    return b"".join([column.tobytes() for column in (*columns, table.num_blocks, table.sampling)])
