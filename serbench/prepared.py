"""An experiment with everything found that it needs to run. It does not know how that is found (prepare.py)."""

import msgspec

from serbench.experiment import Experiment
from serbench.workload.base import Text, Workload
from serbench_engine.models.config import ResolvedModel


class Prepared(msgspec.Struct, frozen=True, eq=False):
    """An experiment in which nothing is open any more. ``notes`` are lines for the user, stored with the results."""

    experiment: Experiment
    model: ResolvedModel
    text: Text
    workload: Workload
    notes: tuple[str, ...] = ()
