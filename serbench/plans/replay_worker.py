"""The main program of a worker to which plans are replayed: serbench's worker, with what was recorded for a model.

``python -m serbench.plans.replay_worker FILE STEPS CHECK_EVERY FD``. It knows neither codec nor transport.
"""

import sys
from pathlib import Path

from serbench.plans.reading import Recording
from serbench.plans.replay_runner import ReplayRunner
from serbench_engine.executor.base import WorkerSpec
from serbench_engine.executor.worker_process import run


def runner_for(_: WorkerSpec) -> ReplayRunner:
    """What stands behind this worker, as its arguments say."""
    path, num_steps, check_every = sys.argv[1:4]
    recording = Recording(Path(path))
    return ReplayRunner([recording.step(i) for i in range(int(num_steps))], int(check_every))


if __name__ == "__main__":
    run(sys.argv[4:], runner_for)
