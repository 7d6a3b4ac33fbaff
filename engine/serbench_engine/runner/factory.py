"""Chooses the runner for a worker's model. It knows no runner's inside, and imports one only when it is chosen."""

from serbench_engine.executor.base import WorkerSpec
from serbench_engine.models.config import SimConfig
from serbench_engine.runner.base import ModelRunner


def make_runner(spec: WorkerSpec) -> ModelRunner:
    """Load the model that ``spec`` names; a simulated one needs no torch.

    Raises:
        ModelError, ConfigError: weights or KV cache that do not fit.
    """
    if isinstance(spec.model.config, SimConfig):
        from serbench_engine.runner.simulated import SimulatedRunner

        return SimulatedRunner(spec.model.config, num_slots=spec.num_blocks * spec.block_size)
    from serbench_engine.runner.torch_runner import TorchRunner

    return TorchRunner(spec)
