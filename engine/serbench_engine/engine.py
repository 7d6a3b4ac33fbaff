"""One session of the engine, step by step: schedule, encode, send, collect, update.

It does not know which codec, transport, executor or model it was given, nor who calls it (LLM, the harness).
"""

from collections.abc import Sequence
from hashlib import blake2b
from time import CLOCK_PROCESS_CPUTIME_ID, clock_gettime, monotonic_ns

import numpy as np
import numpy.typing as npt

from serbench_codecs.codec import PLAN, RESULT, body_bytes, codec_id, expect_header, pack_header
from serbench_codecs.errors import CodecError
from serbench_codecs.plan import Int32Array, StepPlan, StepResult
from serbench_codecs.registry import get_codec, get_result_format
from serbench_codecs.table import TableLimits
from serbench_engine.codec_ends import new_ends, raise_broken
from serbench_engine.config import EngineOptions
from serbench_engine.errors import EngineError, PayloadRefused, RequestError, WorkerError
from serbench_engine.executor.base import Executor, Link, SessionSpec
from serbench_engine.models.config import ResolvedModel, SimConfig
from serbench_engine.phases import SCHEDULER_FIELDS, SessionReport, SpanLog
from serbench_engine.request import SamplingParams
from serbench_engine.scheduler import Scheduled, Scheduler, Update
from serbench_engine.stopping import StopRules
from serbench_engine.text.tokenizer import Tokenizer
from serbench_engine.token_ids import whole_numbers
from serbench_engine.tracked import TrackedRequest
from serbench_engine.watching import watch_maker

MAX_RECOVERIES_IN_A_ROW = 3


class Engine:
    """One session: codec ends, channels, table and prefix index are new; the executor's workers outlive it.

    Use: ``add_request`` at any time, ``step`` while ``has_unfinished``, ``close`` at the end. Not thread-safe. A step
    that failed or was interrupted (Ctrl-C) is the last one: how much of it was done is not known.
    """

    def __init__(
        self,
        executor: Executor,
        options: EngineOptions,
        model: ResolvedModel,
        tokenizer: Tokenizer | None = None,
    ) -> None:
        self._options = options
        self._model = model
        self._watch_for = watch_maker(tokenizer)
        self._executor = executor
        self._limits = options.limits(model.config.vocab_size)
        self._codec = get_codec(options.codec)
        self._codec_id = codec_id(self._codec.name)
        results = get_result_format(options.results(self._codec))
        self._result_id = codec_id(results.name)
        self._encoder = new_ends(self._codec, self._limits)[0]
        self._result_decoder = results.ends(self._limits)[1]
        self._scheduler = Scheduler(
            self._limits,
            StopRules(options.max_num_seqs, model.config.eos_token_ids),
            max_num_batched_tokens=options.max_num_batched_tokens,
            prefix_caching=options.enable_prefix_caching,
        )
        self._requests: dict[str, TrackedRequest] = {}
        self._added = 0
        self._epoch = 0
        self._step = 0
        self._recoveries = 0
        self._first_refusal = ""
        self._recoveries_in_a_row = 0
        self._log = SpanLog(len(SCHEDULER_FIELDS))
        self._batches = BatchesDigest()
        self._last: tuple[StepPlan, tuple[int, ...]] | None = None  # the step done last and its row of the log
        self._no_step = ""  # why there can't be another one
        self._link: Link = executor.open(_session_spec(options, results.name, self._limits))
        self._cpu_begun_s = clock_gettime(CLOCK_PROCESS_CPUTIME_ID)  # last: setting up is not serving

    # --- requests ---------------------------------------------------------------------------------------------

    @property
    def has_unfinished(self) -> bool:
        return self._scheduler.has_unfinished

    def add_request(
        self,
        request_id: str,
        prompt_token_ids: Sequence[int] | npt.NDArray[np.integer],
        params: SamplingParams,
        arrival_ns: int | None = None,
    ) -> None:
        """Queue a request; ``arrival_ns`` on CLOCK_MONOTONIC, by default now.

        Raises:
            RequestError: it can't be served; nothing else is harmed.
        """
        prompt = self.check_request(request_id, prompt_token_ids, params)
        room = self._limits.max_model_len - len(prompt)
        wanted = room if params.max_tokens is None else min(params.max_tokens, room)
        eos = () if params.ignore_eos else self._model.config.eos_token_ids
        request = TrackedRequest(
            request_id,
            prompt,
            params,
            seed=self._seed_for(self._added) if params.seed is None else params.seed,
            stop_ids=np.array(sorted({*eos, *params.stop_token_ids}), dtype=np.int32),
            length_limit=len(prompt) + wanted,
            arrival_ns=monotonic_ns() if arrival_ns is None else arrival_ns,
            watch=self._watch_for(params),
        )
        self._added += 1
        self._requests[request_id] = request
        self._scheduler.add(request)

    def abort_request(self, request_id: str) -> bool:
        """End a request in whatever state; False if there is none with this id (it may have ended)."""
        request = self._requests.get(request_id)
        if request is None:
            return False
        self._scheduler.abort(request)
        return True

    def check_request(
        self, request_id: str, prompt_token_ids: Sequence[int] | npt.NDArray[np.integer], params: SamplingParams
    ) -> Int32Array:
        """The prompt's ids, if ``add_request`` would take the request.

        Raises:
            RequestError: it would not.
        """
        if not _is_writable(request_id):
            raise RequestError(f"request id {request_id!r}: it must be text that can be written as UTF-8")
        if not isinstance(params, SamplingParams):
            raise RequestError(f"request {request_id!r} has sampling parameters {params!r}; give SamplingParams")
        if params.logprobs is not None and isinstance(self._model.config, SimConfig):
            raise RequestError(
                f"request {request_id!r} asks for logprobs; {self._model.name} is simulated and has none"
            )
        self._check_vocabulary(params.stop_token_ids, f"request {request_id!r} has stop")
        limit = self._limits.max_model_len
        if request_id in self._requests:
            raise RequestError(f"request id {request_id!r} is in use")
        if not len(prompt_token_ids):
            raise RequestError(f"request {request_id!r} has an empty prompt; it needs at least one token")
        if len(prompt_token_ids) + 1 > limit:
            raise RequestError(
                f"request {request_id!r} has {len(prompt_token_ids)} prompt tokens; with one to generate "
                f"they must fit into {limit} tokens ({self._limiting()})"
            )
        return self._check_vocabulary(prompt_token_ids, f"request {request_id!r} has")

    def _check_vocabulary(self, ids: Sequence[int] | npt.NDArray[np.integer], whose: str) -> Int32Array:
        """``ids`` as int32, if they are ids of the model."""
        vocab = self._limits.vocab_size
        wide = whole_numbers(ids, whose)
        outside = wide[(wide < 0) | (wide >= vocab)]
        if len(outside):
            raise RequestError(f"{whose} token id {outside[0]}; the vocabulary is 0 … {vocab - 1}")
        return wide.astype(np.int32)

    def _limiting(self) -> str:
        """What the length limit is due to, in words."""
        limits = self._limits
        if limits.max_model_len < limits.num_blocks * limits.block_size:
            return "max_model_len"
        return f"max_model_len; the KV cache's {limits.num_blocks} blocks of {limits.block_size} hold no more"

    def _seed_for(self, index: int) -> int:
        """The seed of a request that has none: counter-based, so that a run is repeatable."""
        digest = blake2b(f"{self._options.seed}:{index}".encode(), digest_size=8).digest()
        return int.from_bytes(digest, "little")

    # --- one step ---------------------------------------------------------------------------------------------

    def step(self) -> Update:
        """Run one step on all workers; blocks until it is done. Nothing runs if nothing can.

        Raises:
            WorkerError: a worker died, raised or hangs (WorkerTimeout). BrokenCodecError: the codec raised or made no
            payload. EngineError: another step runs, or one failed or was interrupted. ``close`` works after all.
        """
        begun = monotonic_ns()
        if self._no_step:
            raise EngineError(f"{self._no_step}; make a new LLM or Engine")
        self._no_step = "another step runs (not thread-safe), or one was interrupted"
        try:
            update = self._step_once(begun)
        except Exception as error:
            self._no_step = f"a step failed ({str(error).partition(chr(10))[0]})"
            raise
        self._no_step = ""
        return update

    def _step_once(self, begun: int) -> Update:
        scheduled = self._scheduler.schedule(self._step, self._epoch)
        if scheduled is None:
            return self._told(Update(_NO_IDS, _NO_IDS, self._scheduler.take_ended()))
        update = self._run(scheduled, begun)
        self._step += 1
        return self._told(update)

    def _run(self, scheduled: Scheduled, begun: int) -> Update:
        plan = scheduled.plan
        scheduled_at = monotonic_ns()
        try:
            objects = self._encoder.adapt(plan, self._scheduler.table)
            adapted = monotonic_ns()
            body = self._encoder.encode(objects)
            encoded = monotonic_ns()
            header = pack_header(PLAN, self._codec_id, plan.epoch, plan.step, body)
        except BaseException as error:
            raise_broken(self._codec, f"no payload of step {plan.step}", error)
        self._link.send(header, body)
        sent = monotonic_ns()
        self._scheduler.advance(plan)
        plan_bytes = len(header) + body_bytes(body) if body_bytes(body) else 0
        ahead = self._do_ahead(plan, sent) if self._link.runs_aside else 0
        try:
            with self._link.receive() as payload:
                received = monotonic_ns()
                size = body_bytes(payload.body)
                expect_header(payload.header, size, RESULT, self._result_id, self._epoch, plan.step)
                objects = self._result_decoder.decode(payload.body)  # type: ignore[arg-type]
                decoded = monotonic_ns()
                result: StepResult = self._result_decoder.adapt(objects, plan.step, plan.epoch)
                result_bytes = len(payload.header) + size if size else 0
            result_adapted = monotonic_ns()
            update = self._scheduler.update(scheduled, result, result_adapted)
        except (PayloadRefused, CodecError) as error:
            return self._recover(error)
        self._recoveries_in_a_row = 0
        updated = monotonic_ns()
        stamps = (begun, scheduled_at, adapted, encoded, sent, received, decoded, result_adapted, updated)
        sizes = (plan_bytes, result_bytes, len(plan.batch_rows), scheduled.num_tokens)
        self._last = plan, (plan.epoch, plan.step, *stamps, *sizes, self._scheduler.has_unfinished, ahead)
        if not self._link.runs_aside:
            self._note_last()
        return update

    def _do_ahead(self, plan: StepPlan, since: int) -> int:
        """While the workers run ``plan``: what need not wait for them. The time since ``since``, in ns."""
        self._note_last()
        self._scheduler.look_ahead(plan)
        return monotonic_ns() - since

    def _note_last(self) -> None:
        """Write down the step that was done last."""
        if self._last is not None:
            plan, fields = self._last
            self._batches.add(plan)
            self._log.add(*fields)
            self._last = None

    def _told(self, update: Update) -> Update:
        for finished in update.finished:
            del self._requests[finished.request_id]
        return update

    def _recover(self, error: PayloadRefused | CodecError) -> Update:
        """A payload was lost or garbled: raise the epoch and recompute everything that runs; outputs stay the same."""
        rank = error.rank if isinstance(error, PayloadRefused) else 0
        self._recoveries_in_a_row += 1
        if self._executor.num_workers > 1:
            raise WorkerError(rank, f"{error}; with {self._executor.num_workers} workers a session can't go on")
        if self._recoveries_in_a_row > MAX_RECOVERIES_IN_A_ROW:
            raise EngineError(f"{self._recoveries_in_a_row} payloads in a row could not be decoded; the last: {error}")
        self._recoveries += 1
        self._first_refusal = self._first_refusal or str(error)
        self._epoch += 1
        self._encoder = new_ends(self._codec, self._limits)[0]
        self._scheduler.recover()
        return Update(_NO_IDS, _NO_IDS, self._scheduler.take_ended())

    # --- the end ----------------------------------------------------------------------------------------------

    def close(self) -> SessionReport:
        """End the session; what it cost. The executor and its workers live on.

        Raises:
            WorkerError: a worker is gone or does not report.
        """
        cpu_s = clock_gettime(CLOCK_PROCESS_CPUTIME_ID) - self._cpu_begun_s
        self._note_last()
        reports = self._link.close()
        return SessionReport.of(
            self._log.to_array(),
            reports,
            cpu_s=cpu_s,
            shares_process=self._options.transport == "inproc",
            batches_digest=self._batches.hexdigest(),
            preemptions=self._scheduler.preemptions,
            recoveries=self._recoveries,
            first_refusal=self._first_refusal,
            cached_tokens=self._scheduler.cached_tokens,
        )


class BatchesDigest:
    """A digest of the sequence of batches (rows and counts); an unchanged batch costs one short update."""

    def __init__(self) -> None:
        self._digest = blake2b(digest_size=16)
        self._rows: Int32Array | None = None
        self._counts: Int32Array | None = None
        self._last = b""

    def add(self, plan: StepPlan) -> None:
        """Take in the batch of one step."""
        if plan.batch_rows is not self._rows or plan.batch_counts is not self._counts:
            self._rows, self._counts = plan.batch_rows, plan.batch_counts
            both = self._rows.tobytes() + self._counts.tobytes()
            self._last = blake2b(both, digest_size=16).digest()
        self._digest.update(self._last)

    def hexdigest(self) -> str:
        return self._digest.hexdigest()


def _is_writable(text: object) -> bool:
    """Whether it is text that a payload can carry: a lone surrogate can't be."""
    if not isinstance(text, str):
        return False
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


def _session_spec(options: EngineOptions, result_format: str, limits: TableLimits) -> SessionSpec:
    return SessionSpec(
        codec=options.codec,
        result_format=result_format,
        transport=options.transport,
        limits=limits,
        validate=options.validate,
        rolling_digest=options.rolling_digest,
        wait=options.wait,
    )


_NO_IDS = np.empty(0, dtype=np.int32)
