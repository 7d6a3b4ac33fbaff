"""Gathers the repeats of one experiment into a Run, and stores it after each. It does not know how repeats are made."""

import hashlib
import os
import re
from collections.abc import Callable, Iterable, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Final

import numpy as np

from serbench.environment import Environment
from serbench.errors import ResultsError
from serbench.experiment import Experiment
from serbench.noise import kernels_warning, load_warning, noise_warnings
from serbench.results import Repeat, Run, Spread, TokenizerInfo, WeightsInfo
from serbench_engine.models.config import ResolvedModel, SimConfig
from serbench_engine.native.library import native_status

SUMMARY: Final[dict[str, Callable[[Repeat], float | None]]] = {
    "requests_per_s": lambda repeat: repeat.requests_per_s,
    "output_tokens_per_s": lambda repeat: repeat.output_tokens_per_s,
    "total_tokens_per_s": lambda repeat: repeat.total_tokens_per_s,
    "wall_s": lambda repeat: repeat.wall_s,
    "host_us_per_step": lambda repeat: repeat.host_us_per_step,
    "host_us_per_step_without_adapt": lambda repeat: repeat.host_us_without_adapt,
    "plan_bytes_per_step": lambda repeat: repeat.payload_bytes.plan.mean,
    "result_bytes_per_step": lambda repeat: repeat.payload_bytes.result.mean,
    "cpu_scheduler_s": lambda repeat: repeat.cpu_s.scheduler,
    "cpu_workers_s": lambda repeat: repeat.cpu_s.workers,
}
"""The figures that are one number a repeat; None where it was not measured."""


class Recorder:
    """One experiment's run while it grows. ``path`` is where it was last stored, None before the first repeat.

    ``run_id``: the id it gets, by default a new one. ``begun``: what an earlier sitting stored of it, to go on from.

    Raises:
        ResultsError: it was begun with the C++ kernels and would go on without, or the other way round.
    """

    def __init__(
        self,
        experiment: Experiment,
        model: ResolvedModel,
        environment: Environment,
        session: str,
        store: Callable[[Run], Path],
        *,
        run_id: str | None = None,
        begun: Run | None = None,
    ) -> None:
        self.experiment = experiment
        self.path: Path | None = None
        self._model = model
        self._environment = environment
        self._session = session
        self._store = store
        self._created = datetime.now(UTC) if begun is None else datetime.fromisoformat(begun.created)
        self._id = run_id or new_id(self._created, experiment)
        self._repeats: list[Repeat] = [] if begun is None else list(begun.repeats)
        self._warnings: dict[str, None] = {}
        self._of_workload: Sequence[str] = ()
        if begun is not None:
            derived = [*kernels_warning(begun.without_kernels), *_noise(begun.repeats, begun.environment)]
            self.warn(line for line in begun.warnings if line not in derived)
            self._check_kernels(begun)

    @property
    def repeats(self) -> Sequence[Repeat]:
        """What was measured so far."""
        return self._repeats

    def warn(self, lines: Iterable[str]) -> None:
        """Note what a reader of the figures must know; the same line is kept once."""
        self._warnings.update(dict.fromkeys(lines))

    def note_workload(self, lines: Sequence[str]) -> None:
        """Note what the workload says of all requests it gave so far, in the place of what it said before."""
        self._of_workload = lines

    def add(self, repeat: Repeat) -> None:
        """Take a repeat in and store the run as it is now; what can't be stored is not taken in.

        Raises:
            ResultsError: it can't be stored.
        """
        self._repeats.append(repeat)
        try:
            self.save()
        except ResultsError:
            self._repeats.pop()
            raise

    def save(self) -> None:
        """Store the run as it is now."""
        self.path = self._store(self.run())

    def run(self) -> Run:
        """The run as it is now."""
        repeats = sorted(self._repeats, key=lambda repeat: repeat.group)
        without_kernels = self._without_kernels()
        return Run(
            id=self._id,
            session=self._session,
            created=self._created.isoformat(timespec="seconds"),
            spec=self.experiment,
            environment=self._environment,
            weights=WeightsInfo(self._model.weights.kind, self._model.fingerprint, self._model.weights.origin),
            tokenizer=TokenizerInfo("folder" if self._model.tokenizer else "bytes", self._model.tokenizer),
            without_kernels=without_kernels,
            repeats=repeats,
            outputs_digest=_combined(repeat.outputs_digest for repeat in repeats),
            batches_digest=_combined(repeat.batches_digest for repeat in repeats),
            summary=_summary(repeats),
            warnings=[
                *self._warnings,
                *self._of_workload,
                *kernels_warning(without_kernels),
                *_noise(repeats, self._environment),
            ],
        )

    def _check_kernels(self, begun: Run) -> None:
        now = self._without_kernels()
        if bool(now) != bool(begun.without_kernels):
            then, here = (
                f"without the C++ kernels ({why})" if why else "with them" for why in (begun.without_kernels, now)
            )
            raise ResultsError(
                f"{begun.id} was begun {then} and would go on {here}: its repeats would not belong together; --name "
                "begins a new sweep"
            )

    def _without_kernels(self) -> str:
        config = self._model.config
        if isinstance(config, SimConfig):
            return ""
        dtype = "float32" if self.experiment.dtype == "auto" else self.experiment.dtype
        return native_status(dtype, config.head_dim)


def new_id(created: datetime, experiment: Experiment) -> str:
    """An id that sorts by time, names model and codec, and is safe as a file's name."""
    model = experiment.model.rstrip("/").rpartition("/")[2]
    words = re.sub(r"[^A-Za-z0-9.]+", "-", f"{model}-{experiment.codec}").strip("-.")
    return f"{created:%Y%m%d-%H%M%S}-{words[:60]}-{os.urandom(3).hex()}"


def _combined(digests: Iterable[str]) -> str:
    combined = hashlib.blake2b(digest_size=16)
    for digest in digests:
        combined.update(digest.encode())
    return combined.hexdigest()


def _summary(repeats: Sequence[Repeat]) -> dict[str, Spread]:
    figures = {name: [of(repeat) for repeat in repeats] for name, of in SUMMARY.items()}
    measured = {name: [value for value in values if value is not None] for name, values in figures.items()}
    return {name: _spread(values) for name, values in measured.items() if values}


def _spread(values: Sequence[float]) -> Spread:
    return Spread(float(np.median(values)), float(np.mean(values)), min(values), max(values))


def _noise(repeats: Sequence[Repeat], environment: Environment) -> list[str]:
    """What may have disturbed the figures, and what to do about it."""
    rates = [repeat.output_tokens_per_s for repeat in repeats if repeat.output_tokens]
    return [*noise_warnings(rates), *load_warning(environment.load_average, environment.cores)]
