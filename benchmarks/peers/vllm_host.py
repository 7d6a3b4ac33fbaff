"""A child that measures what vLLM's scheduler and its shared-memory queue take of a steady decode step, in vLLM's own
environment and through its own classes. It does not know serbench.

No model runs: a second process takes each plan off the queue and answers with a result of the right size. A step is
schedule(), the plan out and the result back (pickled and unpickled by the queue, as vLLM does), update_from_output().
The worker's own bookkeeping is not in it, and logging of statistics is off.

Request ids take a good part of its bytes: they are as long as those of its API server, or with ``--offline-ids`` as
those of its LLM class.

    python -m benchmarks.peers.vllm_host FOLDER [--offline-ids]
"""

import gc
import multiprocessing
import pickle
import statistics
import sys
import time
from multiprocessing.connection import Connection
from typing import Any

import numpy as np
import torch
from vllm import SamplingParams
from vllm.distributed.device_communicators.shm_broadcast import MessageQueue
from vllm.engine.arg_utils import EngineArgs
from vllm.v1.core.sched.scheduler import Scheduler
from vllm.v1.executor.multiproc_executor import WorkerProc
from vllm.v1.kv_cache_interface import FullAttentionSpec, KVCacheConfig, KVCacheGroupSpec
from vllm.v1.outputs import ModelRunnerOutput
from vllm.v1.request import Request
from vllm.v1.structured_output import StructuredOutputManager

from benchmarks.peers.child_loop import option, serve

SAMPLED_ID = 1000
DROPPED_STEPS = 4
BLOCK_SIZE = 16
ONE_CALL, FIRST_OF_TWO, SECOND_OF_TWO, END = "one_call", "execute_model", "sample_tokens", "end"


def results_of(request_ids: list[str]) -> ModelRunnerOutput:
    """One sampled id for each request, as a worker answers."""
    index = {name: i for i, name in enumerate(request_ids)}
    return ModelRunnerOutput(
        req_ids=request_ids, req_id_to_index=index, sampled_token_ids=[[SAMPLED_ID] for _ in request_ids]
    )


def answer_plans(control: Connection) -> None:
    """The other process: for each list of request ids that ``control`` brings, answer calls until told to end."""
    calls = MessageQueue.create_from_handle(control.recv(), 0)
    answers = MessageQueue(1, 1)
    control.send(answers.export_handle())
    calls.wait_until_ready()
    answers.wait_until_ready()
    while (request_ids := control.recv()) is not None:
        result = results_of(request_ids)
        control.send("ready")
        while (method := calls.dequeue(indefinite=True)[0]) != END:
            answers.enqueue((WorkerProc.ResponseStatus.SUCCESS, None if method == FIRST_OF_TWO else result))


class Queue:
    """The executor's side of vLLM's two queues, with the other process behind them."""

    def __init__(self) -> None:
        spawn = multiprocessing.get_context("spawn")
        self.control, theirs = spawn.Pipe()
        spawn.Process(target=answer_plans, args=(theirs,), daemon=True).start()
        self._calls = MessageQueue(1, 1)
        self.control.send(self._calls.export_handle())
        self._answers = MessageQueue.create_from_handle(self.control.recv(), 0)
        self._calls.wait_until_ready()
        self._answers.wait_until_ready()

    def begin(self, request_ids: list[str]) -> None:
        """From now on calls are answered, with results for these requests."""
        self.control.send(request_ids)
        self.control.recv()

    def end(self) -> None:
        """The other process waits for the next ``begin``, and takes no time."""
        self._calls.enqueue((END, (), {}, 0))

    def call(self, method: str, argument: Any) -> Any:
        """What the executor's remote call does: one message out, one back."""
        self._calls.enqueue((method, (argument,), {}, 0))
        status, result = self._answers.dequeue(timeout=60.0)
        assert status == WorkerProc.ResponseStatus.SUCCESS, "nothing can fail here"
        return result


def make_scheduler(folder: str, batch: int, context: int, steps: int) -> Scheduler:
    """vLLM's scheduler with its own defaults, room for everybody, and no prefix cache."""
    longest = context + 2 * BLOCK_SIZE + steps
    config = EngineArgs(
        model=folder,
        skip_tokenizer_init=True,
        max_model_len=longest,
        max_num_seqs=batch,
        max_num_batched_tokens=batch * context,
        block_size=BLOCK_SIZE,
        enable_prefix_caching=False,
        async_scheduling=False,
    ).create_engine_config()
    num_blocks = batch * -(-longest // BLOCK_SIZE) + 1
    config.cache_config.num_gpu_blocks = num_blocks
    attention = FullAttentionSpec(block_size=BLOCK_SIZE, num_kv_heads=12, head_size=64, dtype=torch.bfloat16)
    group = KVCacheGroupSpec(layer_names=["layer"], kv_cache_spec=attention)
    return Scheduler(
        vllm_config=config,
        kv_cache_config=KVCacheConfig(num_blocks=num_blocks, kv_cache_tensors=[], kv_cache_groups=[group]),
        structured_output_manager=StructuredOutputManager(config),
        block_size=BLOCK_SIZE,
        log_stats=False,
    )


def request_ids(batch: int) -> list[str]:
    """Ids as the LLM class makes them (a count, and 8 hex digits) or as the server does (32 characters)."""
    rng = np.random.default_rng(0)
    ends = [f"{i}-{rng.bytes(4).hex()}" for i in range(batch)]
    return ends if option("offline-ids") else [f"cmpl-{rng.bytes(8).hex()}-0-{end[-8:]}" for end in ends]


def add_requests(scheduler: Scheduler, batch: int, context: int, steps: int) -> list[str]:
    """Requests that differ in length by less than a block, so that in each step one in BLOCK_SIZE gets a block."""
    params = SamplingParams(temperature=0.0, max_tokens=DROPPED_STEPS + steps + 2, ignore_eos=True)
    names = request_ids(batch)
    for i, name in enumerate(names):
        ids = [(7 * i + j) % 50000 for j in range(context - i % BLOCK_SIZE)]
        scheduler.add_request(
            Request(request_id=name, prompt_token_ids=ids, sampling_params=params, pooling_params=None)
        )
    return names


class Measure:
    """Answers ``{"batch": B, "context": n, "steps": s}`` with medians a step, in µs and bytes."""

    def __init__(self, folder: str) -> None:
        self._folder = folder
        self._queue = Queue()

    def answer(self, question: dict[str, Any]) -> dict[str, Any]:
        """Steady decode of a new batch; every second step makes vLLM's two calls instead of one."""
        shape = question["batch"], question["context"], question["steps"]
        scheduler = make_scheduler(self._folder, *shape)
        self._queue.begin(add_requests(scheduler, *shape))
        gc.collect()
        gc.freeze()
        try:
            scheduler.update_from_output(plan := scheduler.schedule(), self._queue.call(ONE_CALL, plan))
            spans = [self._step(scheduler, two_calls=bool(i % 2)) for i in range(DROPPED_STEPS + question["steps"])]
        finally:
            gc.unfreeze()
            self._queue.end()
        return self._said(spans[DROPPED_STEPS:], scheduler, question["batch"])

    def _step(self, scheduler: Scheduler, *, two_calls: bool) -> tuple[bool, float, float, float]:
        """One step: whether it made two calls, and µs of schedule, queue and update."""
        begun = time.perf_counter_ns()
        plan = scheduler.schedule()
        scheduled = time.perf_counter_ns()
        if two_calls:
            self._queue.call(FIRST_OF_TWO, plan)
            result = self._queue.call(SECOND_OF_TWO, None)
        else:
            result = self._queue.call(ONE_CALL, plan)
        answered = time.perf_counter_ns()
        scheduler.update_from_output(plan, result)
        updated = time.perf_counter_ns()
        return two_calls, (scheduled - begun) / 1e3, (answered - scheduled) / 1e3, (updated - answered) / 1e3

    def _said(self, spans: list[tuple[bool, float, float, float]], scheduler: Scheduler, batch: int) -> dict[str, Any]:
        plan = scheduler.schedule()
        assert plan.total_num_scheduled_tokens == batch, "a token for each request, or this was no steady decode"
        result = results_of(request_ids(batch))
        one = [span for span in spans if not span[0]]
        return {
            "schedule_us": statistics.median(span[1] for span in spans),
            "round_trip_us": statistics.median(span[2] for span in one),
            "two_calls_us": statistics.median(span[2] for span in spans if span[0]),
            "update_us": statistics.median(span[3] for span in spans),
            "step_us": statistics.median(sum(span[1:]) for span in one),
            "plan_bytes": len(pickle.dumps(("execute_model", (plan,), {}, 0), protocol=pickle.HIGHEST_PROTOCOL)),
            "result_bytes": len(
                pickle.dumps((WorkerProc.ResponseStatus.SUCCESS, result), protocol=pickle.HIGHEST_PROTOCOL)
            ),
        }


if __name__ == "__main__":
    serve(lambda: Measure(sys.argv[1]).answer)
