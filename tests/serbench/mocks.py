"""Makes prepared experiments for the mock engine. It does not know what is tested with them."""

from collections.abc import Callable, Sequence
from pathlib import Path

from serbench.environment import Environment
from serbench.experiment import Experiment, settled
from serbench.harness import Harness
from serbench.mock import MockClock, MockEngine
from serbench.prepared import Prepared
from serbench.results import Run, store_run
from serbench.workload.spec import LengthRange, Synthetic
from serbench.workload.synthetic import SyntheticWorkload
from serbench_engine.models.config import ResolvedModel, SimConfig, WeightsSource

ENVIRONMENT = Environment(
    cpu="a mock",
    architecture="none",
    cores=2,
    machine_cores=2,
    memory_bytes=1 << 30,
    system="none",
    python="CPython 3.11",
    versions={"numpy": "2.4.6", "torch": None},
    threads={},
    load_average=0.0,
)
SPEC = Synthetic(num_prompts=3, input_len=LengthRange(4, 6), output_len=LengthRange(2, 4))
MODEL = ResolvedModel("sim", SimConfig(), WeightsSource("sim"), "sim-1")


class Bytes:
    """Text as bytes."""

    def encode(self, text: str) -> list[int]:
        return list(text.encode())

    def decode(self, token_ids: Sequence[int]) -> str:
        return bytes(token_ids).decode(errors="replace")

    def answer_length(self, text: str) -> int:
        return len(text.encode())

    def chat(self, text: str) -> list[int]:
        return self.encode(f"<user>{text}<assistant>")


class Silent:
    """A watcher that remembers the turns."""

    def __init__(self) -> None:
        self.passes = 0
        self.turns: list[tuple[str, int]] = []
        self.ended = 0

    def begin(self, passes: int) -> None:
        self.passes = passes

    def turn(self, experiment: Experiment, group: int) -> None:
        self.turns.append((experiment.codec, group))

    def done(self) -> None:
        self.ended += 1


def prepared(codecs: Sequence[str], *, repeats: int = 5, warmup: int = 1, seed: int = 0) -> list[Prepared]:
    """Experiments that differ in their codecs only and share a workload."""
    workload = SyntheticWorkload(SPEC, seed=seed, vocab_size=100, avoid=[], max_model_len=64)
    return [
        Prepared(
            settled(Experiment(model="sim", codec=codec, workload=SPEC, repeats=repeats, warmup=warmup, seed=seed)),
            MODEL,
            Bytes(),
            workload,
        )
        for codec in codecs
    ]


class Bench:
    """A harness on mock engines; ``stored`` holds every state that was stored, ``engines`` what was opened.

    ``open_engine`` may be set to plant another engine."""

    def __init__(
        self, things: Sequence[Prepared], folder: Path, cost_us: Callable[[Experiment], float] = lambda _: 1000.0
    ) -> None:
        self.clock = MockClock()
        self.engines: list[MockEngine] = []
        self.stored: list[Run] = []
        self.watcher = Silent()
        self.open_engine: Callable[[Bench], MockEngine] = lambda bench: MockEngine(bench.clock, cost_us)
        self._folder = folder
        self.harness = Harness(
            things,
            open_engine=self._open,
            store=self._store,
            watcher=self.watcher,
            clock_ns=self.clock,
            sleep_s=self.clock.sleep_s,
            collect=lambda: None,  # it would take most of a mock pass's time
            environment=ENVIRONMENT,
        )

    def run(self) -> list[Run]:
        """Measure; the runs in the order of the things."""
        self.harness.run()
        return [recorder.run() for recorder in self.harness.recorders]

    def _open(self, _: Prepared) -> MockEngine:
        self.engines.append(self.open_engine(self))
        return self.engines[-1]

    def _store(self, run: Run) -> Path:
        self.stored.append(run)
        return store_run(run, self._folder)
