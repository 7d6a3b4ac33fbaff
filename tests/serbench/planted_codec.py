"""The codec delta with faults that a test plants: ``--codec tests.serbench.planted_codec:CODEC``. It gates nothing."""

import time

import msgspec

from serbench_codecs.codec import Traits
from serbench_codecs.delta import DeltaCodec, DeltaDecoder, DeltaEncoder, StepDelta
from serbench_codecs.errors import MalformedPayloadError
from serbench_codecs.plan import StepPlan
from serbench_codecs.table import RequestTable, TableLimits


class Planted:
    """What is planted: bytes added to every plan, a pause in each encoding, after how many a decoder refuses all."""

    padding = 0
    pause_s = 0.0
    lasts = 1 << 30


class PlantedEncoder:
    """Delta's, padded and slow."""

    def __init__(self, encoder: DeltaEncoder) -> None:
        self._encoder = encoder

    def adapt(self, plan: StepPlan, table: RequestTable) -> StepDelta:
        return self._encoder.adapt(plan, table)

    def encode(self, objects: StepDelta) -> bytes:
        if Planted.pause_s:
            time.sleep(Planted.pause_s)
        return self._encoder.encode(objects) + bytes(Planted.padding)


class PlantedDecoder:
    """Delta's, without the padding, and not for ever."""

    def __init__(self, decoder: DeltaDecoder) -> None:
        self._decoder = decoder
        self._had = 0

    def decode(self, payload: memoryview) -> StepDelta:
        self._had += 1
        if self._had > Planted.lasts:
            raise MalformedPayloadError("tired")
        return self._decoder.decode(payload[: len(payload) - Planted.padding])

    def adapt(self, objects: StepDelta) -> StepPlan:
        return self._decoder.adapt(objects)


class PlantedCodec(msgspec.Struct, frozen=True):
    """Delta with what is planted."""

    name: str = "planted"

    @property
    def traits(self) -> Traits:
        return DeltaCodec().traits

    def ends(self, limits: TableLimits) -> tuple[PlantedEncoder, PlantedDecoder]:
        encoder, decoder = DeltaCodec().ends(limits)
        return PlantedEncoder(encoder), PlantedDecoder(decoder)


CODEC = PlantedCodec()
