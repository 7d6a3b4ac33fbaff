"""Drive the engine step by step, abort a request in the middle, and see where the time of a step goes.

Run it with ``python examples/stepwise.py``; it uses the simulated model and needs no weights and no torch.
"""

import numpy as np

from serbench_engine.config import EngineOptions
from serbench_engine.engine import Engine
from serbench_engine.executor.base import WorkerSpec
from serbench_engine.executor.registry import make_executor
from serbench_engine.models.catalogue import resolve_model
from serbench_engine.request import SamplingParams


def main() -> None:
    """One session of 64 requests."""
    model = resolve_model("sim:step=1ms")
    options = EngineOptions(codec="delta", transport="shm", max_model_len=1024, num_blocks=4096)
    spec = WorkerSpec(model, "float32", "cpu", options.block_size, options.num_blocks, options.max_num_batched_tokens)
    executor = make_executor("mp", spec)
    try:
        engine = Engine(executor, options, model)  # one session; the workers outlive it
        for i in range(64):
            prompt = np.arange(100 + i, dtype=np.int32)
            engine.add_request(f"request-{i}", prompt, SamplingParams(temperature=0.0, max_tokens=32, ignore_eos=True))
        steps = 0
        while engine.has_unfinished:
            update = engine.step()
            steps += 1
            if steps == 10:
                engine.abort_request("request-7")
            for finished in update.finished:
                if finished.finish_reason == "abort":
                    print(f"{finished.request_id} was aborted after {len(finished.output_token_ids)} tokens")
        report = engine.close()
    finally:
        executor.close()
    print(f"{steps} steps, {np.median(report.host_us):.0f} µs of host time in the median one:")
    for phase, spans_us in report.phases_us.items():
        print(f"    {phase:<12} {np.median(spans_us):8.1f} µs")


if __name__ == "__main__":
    main()
