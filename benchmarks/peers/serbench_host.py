"""A child that measures serbench's host time of steady decode steps, in two processes. It does not know the peers.

It asks `serbench hostpath`'s own parts: the time is everything from scheduling to taking in the result, with encoding,
both ways of the transport, decoding, the worker's applying and preparing, and the loop around; only the model's forward
and sampling, which take next to nothing on the simulated model, are left out.
"""

from typing import Any

from benchmarks.peers.child_loop import serve
from serbench.experiment import Experiment
from serbench.live import LiveEngine
from serbench.stats import percentile
from serbench.steady_decode import SteadyBatch, decode_steadily, prepare_steady, simulated


def measure(question: dict[str, Any]) -> dict[str, Any]:
    """Steady decode of ``batch`` requests at ``context`` tokens for ``steps`` steps; medians a step, in µs and bytes.

    ``seed`` must differ from question to question for prompts to differ.
    """
    base = Experiment(model="sim", codec=question["codec"], executor="mp", transport="shm", seed=question["seed"])
    steady = SteadyBatch(batch=question["batch"], context=question["context"], steps=question["steps"])
    prepared = prepare_steady(base, steady, simulated(base.model, steady.max_model_len))
    engine = LiveEngine(prepared)
    try:
        # The workers' first session imports and allocates; only the second is looked at.
        decode_steadily(engine.session(prepared.experiment), prepared.workload.requests(-1), 8)
        steps = decode_steadily(engine.session(prepared.experiment), prepared.workload.requests(0), question["steps"])
    finally:
        engine.close()
    return {
        "host_us": percentile(steps.host_us, 50),
        "ahead_us": percentile(steps.ahead_us, 50),
        "phases_us": {name: percentile(us, 50) for name, us in steps.phases_us.items()},
        "plan_bytes": percentile(steps.plan_bytes.astype(float), 50),
        "result_bytes": percentile(steps.result_bytes.astype(float), 50),
    }


if __name__ == "__main__":
    serve(lambda: measure)
