"""Tests that what a codec costs a worker is never counted as the model's time. It asserts an order, not times."""

from time import monotonic_ns
from typing import Any

import msgspec
import numpy as np

from serbench_codecs.codec import Encoder, Traits
from serbench_codecs.delta import DeltaCodec
from serbench_codecs.plan import StepPlan
from serbench_codecs.table import TableLimits
from serbench_engine.phases import WORKER_FIELDS
from tests.engine.serving import Outcome, random_workload, serve_sim


class Decoded:
    """Decoded objects that note when they are thrown away."""

    thrown_away: list[int]

    def __init__(self, objects: Any, thrown_away: list[int]) -> None:
        self.objects = objects
        self.thrown_away = thrown_away

    def __del__(self) -> None:
        self.thrown_away.append(monotonic_ns())


class NotingDecoder:
    """Decodes as delta does."""

    def __init__(self, limits: TableLimits, thrown_away: list[int]) -> None:
        self._decoder = DeltaCodec("msgspec").ends(limits)[1]
        self._thrown_away = thrown_away

    def decode(self, payload: memoryview) -> Decoded:
        return Decoded(self._decoder.decode(payload), self._thrown_away)

    def adapt(self, objects: Decoded) -> StepPlan:
        return self._decoder.adapt(objects.objects)


class NotingCodec(msgspec.Struct, frozen=True):
    """delta, whose decoded objects note when they are thrown away, in ``thrown_away``."""

    name: str = "noting"
    traits: Traits = DeltaCodec("msgspec").traits
    thrown_away: list[int] = []

    def ends(self, limits: TableLimits) -> tuple[Encoder, NotingDecoder]:
        return DeltaCodec("msgspec").ends(limits)[0], NotingDecoder(limits, self.thrown_away)


NOTING = NotingCodec()


def test_decoded_objects_are_thrown_away_before_the_model_runs() -> None:
    NOTING.thrown_away.clear()
    done: Outcome = serve_sim(random_workload(1, 4, (5, 20), (5, 10)), codec="tests.engine.test_worker_phases:NOTING")
    [spans] = done.report.worker_spans
    columns = {name: spans[:, i] for i, name in enumerate(WORKER_FIELDS)}
    assert len(NOTING.thrown_away) == len(spans)
    assert (np.array(NOTING.thrown_away) >= columns["decoded"]).all()
    assert (np.array(NOTING.thrown_away) <= columns["adapted"]).all()
