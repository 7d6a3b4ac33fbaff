"""Every result format passes its kit, the packed one is as small as it says, and the kit catches wrong ones."""

from typing import Any

import msgspec
import numpy as np
import pytest

from serbench_codecs.codec import ResultDecoder, ResultEncoder, ResultFormat
from serbench_codecs.conformance import check_result_format
from serbench_codecs.errors import MalformedPayloadError
from serbench_codecs.plan import FAILED_ROW, Logprobs, StepResult
from serbench_codecs.registry import RESULT_FORMATS
from serbench_codecs.table import TableLimits

LIMITS = TableLimits(max_num_seqs=300, max_model_len=64, block_size=4, num_blocks=64, vocab_size=50_000)


def int32(*values: int) -> Any:
    return np.array(values, dtype=np.int32)


def result(n: int, logprobs: Logprobs | None = None) -> StepResult:
    return StepResult(4, 1, np.arange(20_000, 20_000 + n, dtype=np.int32), logprobs)


WIDE = msgspec.structs.replace(LIMITS, vocab_size=65_536)


def encoded(form: ResultFormat, what: StepResult, limits: TableLimits = LIMITS) -> bytes:
    encoder = form.ends(limits)[0]
    return bytes(encoder.encode(encoder.adapt(what)))  # type: ignore[arg-type]


@pytest.mark.parametrize("name", RESULT_FORMATS)
def test_results_come_out_as_they_went_in(name: str) -> None:
    check_result_format(RESULT_FORMATS[name])


@pytest.mark.parametrize(("limits", "width"), [(LIMITS, 2), (WIDE, 4)])
@pytest.mark.parametrize("n", [0, 1, 16, 256])
def test_packed_results_take_two_bytes_a_row_or_four_by_vocabulary(n: int, limits: TableLimits, width: int) -> None:
    packed = RESULT_FORMATS["packed"]
    assert len(encoded(packed, result(n), limits)) == 5 + width * n
    logprobs = Logprobs(np.ones(n, dtype=np.int32), int32(*range(n)), np.zeros(n, dtype=np.float32), int32(*range(n)))
    assert len(encoded(packed, result(n, logprobs), limits)) == 5 + (width + 4 + 12) * n


@pytest.mark.parametrize("limits", [LIMITS, WIDE, msgspec.structs.replace(LIMITS, vocab_size=65_535)])
def test_packed_results_tell_the_highest_id_from_a_failed_row(limits: TableLimits) -> None:
    encoder, decoder = RESULT_FORMATS["packed"].ends(limits)
    ids = int32(0, limits.vocab_size - 1, FAILED_ROW, 7)
    body = encoder.encode(encoder.adapt(StepResult(1, 0, ids)))
    objects = decoder.decode(memoryview(body))  # type: ignore[arg-type]
    assert decoder.adapt(objects, 1, 0).token_ids.tolist() == ids.tolist()


def test_packed_results_are_the_smallest() -> None:
    sizes = {name: len(encoded(form, result(256))) for name, form in RESULT_FORMATS.items() if name != "none"}
    assert min(sizes, key=lambda name: sizes[name]) == "packed"
    assert sizes["packed"] == 517
    assert sizes["msgspec"] == 773


@pytest.mark.parametrize("name", ["pickle", "cloudpickle", "msgspec", "packed"])
@pytest.mark.parametrize(
    ("bad", "says"),
    [
        (StepResult(0, 0, int32(50_000)), "an id outside 0 … 49999 that is not -1"),
        (StepResult(0, 0, int32(FAILED_ROW - 1)), "an id outside"),
        (result(301), "301 ids, where at most 300 rows run"),
        (result(1, Logprobs(int32(1, 1), int32(1, 2), np.zeros(2, dtype=np.float32), int32(1, 2))), "logprobs|bytes"),
        (result(2, Logprobs(int32(1, 2), int32(1, 2), np.zeros(2, dtype=np.float32), int32(1, 2))), "do not fit"),
        (result(1, Logprobs(int32(-1), int32(), np.zeros(0, dtype=np.float32), int32())), "do not fit"),
        (
            result(1, Logprobs(int32(1), int32(-1), np.zeros(1, dtype=np.float32), int32(1))),
            "a logprob of an id outside",
        ),
    ],
)
def test_results_outside_the_limits_are_refused(name: str, bad: StepResult, says: str) -> None:
    decoder = RESULT_FORMATS[name].ends(LIMITS)[1]
    with pytest.raises(MalformedPayloadError, match=says):
        decoder.adapt(decoder.decode(memoryview(encoded(RESULT_FORMATS[name], bad))), 0, 0)


class Broken(msgspec.Struct, frozen=True):
    """The packed format, with one thing wrong at the scheduler's end."""

    decoder: Any
    name: str = "broken"
    trusted_only: bool = False

    def ends(self, limits: TableLimits) -> tuple[ResultEncoder, ResultDecoder]:
        four_bytes_an_id = msgspec.structs.replace(limits, vocab_size=1 << 17)
        encoder, decoder = RESULT_FORMATS["packed"].ends(four_bytes_an_id)
        return encoder, self.decoder(decoder)


class _Inner:
    def __init__(self, inner: ResultDecoder) -> None:
        self.inner = inner


class SwapsRanks(_Inner):
    def decode(self, payload: memoryview) -> Any:
        return self.inner.decode(payload)

    def adapt(self, objects: Any, step: int, epoch: int) -> StepResult:
        right = self.inner.adapt(objects, step, epoch)
        if right.logprobs is None:
            return right
        ranks = right.logprobs.ranks[::-1].copy()
        return msgspec.structs.replace(right, logprobs=msgspec.structs.replace(right.logprobs, ranks=ranks))


class KeepsViews(_Inner):
    def decode(self, payload: memoryview) -> Any:
        return payload

    def adapt(self, objects: Any, step: int, epoch: int) -> StepResult:
        right = self.inner.adapt(self.inner.decode(objects), step, epoch)
        if right.logprobs is not None:
            return right
        return StepResult(step, epoch, np.frombuffer(objects, dtype=np.int32, offset=5, count=len(right.token_ids)))


class ChecksNothing(_Inner):
    def decode(self, payload: memoryview) -> Any:
        return payload

    def adapt(self, objects: Any, step: int, epoch: int) -> StepResult:
        if objects[4]:
            return self.inner.adapt(self.inner.decode(objects), step, epoch)
        count = len(objects[5:]) // 4
        return StepResult(step, epoch, np.frombuffer(objects, dtype=np.int32, offset=5, count=count).copy())


@pytest.mark.parametrize("decoder", [SwapsRanks, KeepsViews, ChecksNothing])
def test_a_wrong_format_is_caught(decoder: Any) -> None:
    with pytest.raises(AssertionError):
        check_result_format(Broken(decoder))
