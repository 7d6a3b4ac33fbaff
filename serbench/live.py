"""Opens serbench's engine for the harness: living workers, and a session for each pass. It measures nothing itself."""

from collections.abc import Callable

from serbench.experiment import Experiment
from serbench.prepared import Prepared
from serbench_engine.config import EngineOptions
from serbench_engine.engine import Engine
from serbench_engine.executor.base import Executor, WorkerSpec
from serbench_engine.executor.registry import make_executor


class LiveEngine:
    """Workers with loaded weights, alive until ``close``. ``around`` may put something around their executor.

    Raises:
        ConfigError: weights that don't fit. WorkerError: a worker that can't start.
    """

    def __init__(self, prepared: Prepared, around: Callable[[Executor], Executor] = lambda executor: executor) -> None:
        experiment = prepared.experiment
        dtype = experiment.dtype
        assert dtype != "auto", "settled"
        assert experiment.num_blocks is not None, "settled"
        self._model = prepared.model
        spec = WorkerSpec(
            model=prepared.model,
            dtype=dtype,
            device=experiment.device,
            block_size=experiment.block_size,
            num_blocks=experiment.num_blocks,
            max_num_batched_tokens=experiment.max_num_batched_tokens,
            seed=experiment.seed,
        )
        executor = make_executor(
            experiment.executor, spec, num_workers=experiment.workers, step_timeout_s=experiment.step_timeout_s
        )
        self._executor = around(executor)

    def session(self, experiment: Experiment) -> Engine:
        """A new engine on the living workers: table, codec ends, transport and prefix cache are new too."""
        assert experiment.transport is not None, "settled"
        assert experiment.max_model_len is not None, "settled"
        assert experiment.num_blocks is not None, "settled"
        options = EngineOptions(
            codec=experiment.codec,
            result_format=experiment.result_format,
            transport=experiment.transport,
            wait=experiment.wait,
            max_num_seqs=experiment.max_num_seqs,
            max_num_batched_tokens=experiment.max_num_batched_tokens,
            max_model_len=experiment.max_model_len,
            block_size=experiment.block_size,
            num_blocks=experiment.num_blocks,
            enable_prefix_caching=experiment.enable_prefix_caching,
            seed=experiment.seed,
            rolling_digest=experiment.workers > 1,
        )
        return Engine(self._executor, options, self._model)

    def close(self) -> None:
        """End the workers. Idempotent."""
        self._executor.close()
