"""What a worker asks of a model runner: four calls a step. It does not know codecs or transports."""

from typing import Any, Protocol

from serbench_codecs.plan import Int32Array, StepPlan, StepResult
from serbench_codecs.table import RequestTable, TableLimits


class Batch(Protocol):
    """One prepared step; all but ``sample_rows`` is the runner's own business."""

    @property
    def sample_rows(self) -> Int32Array:
        """int32[s]: the rows that sample in this step, in batch order."""
        ...


class ModelRunner(Protocol):
    """The model with its KV cache and sampler behind one worker. The first three calls are clocked by the worker."""

    @property
    def device_ns(self) -> int:
        """Time that a simulated device spent on the last step; 0 where the phases tell it."""
        ...

    def open(self, limits: TableLimits) -> None:
        """A new session or epoch begins: forget everything keyed by row or serial."""
        ...

    def prepare(self, plan: StepPlan, table: RequestTable) -> Any:
        """Turn an applied, not yet advanced plan into a Batch (phase ``prepare``).

        Until the step is answered nothing changes the table.
        """
        ...

    def forward(self, batch: Any) -> Any:
        """Run the model (phase ``forward``); what it returns is for ``sample`` only."""
        ...

    def sample(self, output: Any, batch: Any) -> StepResult:
        """Sample the rows that are due, and wait for the device (phase ``sample``)."""
        ...

    def look_ahead(self, table: RequestTable) -> None:
        """The step was answered, and ``table`` holds what it sampled: do what the next ``prepare`` may be spared.

        Nothing waits for it; it must change nothing but how long the next step takes.
        """
        ...
