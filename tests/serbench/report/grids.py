"""Makes stored runs that stand in a grid, from mock engines. It does not know what is tested with them."""

from collections.abc import Sequence
from pathlib import Path

import msgspec

from serbench.experiment import Experiment
from serbench.results import Run
from serbench.workload.spec import LengthRange
from tests.serbench.mocks import SPEC, Bench, prepared

COST_US = {"pickle": 3000.0, "delta": 2000.0, "columnar": 1000.0}


def measured(folder: Path, codecs: Sequence[str] = ("pickle", "delta", "columnar"), repeats: int = 4) -> list[Run]:
    """One run a codec, interleaved; three requests each."""

    def cost_us(experiment: Experiment) -> float:
        return COST_US.get(experiment.codec, 1500.0)

    return Bench(prepared(codecs, repeats=repeats), folder, cost_us).run()


def placed(run: Run, model: str = "sim", batch: int = 3, context: int = 5, **changes: object) -> Run:
    """``run`` as if it had been measured elsewhere in a grid."""
    workload = msgspec.structs.replace(SPEC, input_len=LengthRange(context, context))
    spec = msgspec.structs.replace(run.spec, model=model, max_num_seqs=batch, workload=workload, **changes)
    words = "-".join(str(word) for word in (run.id, model, batch, context, *changes.values()))
    return msgspec.structs.replace(run, id="".join(c if c.isalnum() else "-" for c in words), spec=spec)


def grid(runs: Sequence[Run], models: Sequence[str], batches: Sequence[int], contexts: Sequence[int]) -> list[Run]:
    """Every run at every place."""
    places = [(model, batch, context) for model in models for batch in batches for context in contexts]
    return [placed(run, *place) for place in places for run in runs]
