"""Records a small run under pressure for tests, and codecs that are wrong. It knows no test."""

from pathlib import Path

import msgspec

from serbench.experiment import Experiment
from serbench.recorder import Recorded, prepare_recording, record_plans
from serbench.workload.spec import LengthRange, Synthetic
from serbench_codecs.codec import Decoder, Encoder, Traits
from serbench_codecs.delta import DeltaCodec
from serbench_codecs.plan import NO_WRITES, StepPlan
from serbench_codecs.table import RequestTable, TableLimits

EXPERIMENT = Experiment(
    model="sim",
    workload=Synthetic(num_prompts=12, input_len=LengthRange(5, 60), output_len=LengthRange(2, 40)),
    max_num_seqs=8,
    max_num_batched_tokens=64,
    max_model_len=128,
    num_blocks=20,
)
"""More requests than rows, prompts computed in pieces, and so few blocks that some are preempted."""


def record(path: Path, experiment: Experiment = EXPERIMENT) -> Recorded:
    """Record it to ``path``."""
    return record_plans(prepare_recording(experiment), path)


class ForgetfulEncoder:
    """Leaves out the blocks of every plan."""

    def __init__(self, encoder: Encoder) -> None:
        self._encoder = encoder

    def adapt(self, plan: StepPlan, table: RequestTable) -> object:
        return self._encoder.adapt(msgspec.structs.replace(plan, blocks=NO_WRITES), table)

    def encode(self, objects: object) -> object:
        return self._encoder.encode(objects)


class ForgetfulCodec(msgspec.Struct, frozen=True):
    """A codec that loses blocks."""

    name: str = "forgetful"
    traits: Traits = DeltaCodec("msgspec").traits

    def ends(self, limits: TableLimits) -> tuple[ForgetfulEncoder, Decoder]:
        encoder, decoder = DeltaCodec("msgspec").ends(limits)
        return ForgetfulEncoder(encoder), decoder


FORGETFUL = "tests.serbench.plans.recorded:ForgetfulCodec"
