"""What must hold of any result format: results come out as they went in, and damaged ones do no harm.

It knows no format.
"""

import random
from typing import Any, Final

import hypothesis
import numpy as np
from hypothesis import strategies as st

from serbench_codecs.codec import ResultDecoder, ResultFormat
from serbench_codecs.conformance.payload_faults import damages
from serbench_codecs.errors import CodecError
from serbench_codecs.plan import FAILED_ROW, Logprobs, StepResult
from serbench_codecs.table import TableLimits

LIMITS: Final = TableLimits(max_num_seqs=8, max_model_len=64, block_size=4, num_blocks=64, vocab_size=50_000)


def check_result_format(form: ResultFormat, *, max_examples: int = 100, seed: int = 0) -> None:
    """Results come out as they went in, and damaged ones raise a CodecError or are results within the limits.

    Raises:
        AssertionError: with the result, or the body, that shows what does not hold.
    """
    check_round_trips(form, max_examples=max_examples, seed=seed)
    if form.name != "none" and not form.trusted_only:
        check_damaged_results(form, seed=seed)


def check_round_trips(form: ResultFormat, *, max_examples: int = 100, seed: int = 0) -> None:
    """Results come out as they went in, with logprobs and without, and don't change with the payload's buffer.

    Raises:
        AssertionError: with the result that does not.
    """
    encoder, decoder = form.ends(LIMITS)

    @hypothesis.seed(seed)
    @hypothesis.settings(max_examples=max_examples, deadline=None, database=None)
    @hypothesis.given(result=_results())
    def round_trip(result: StepResult) -> None:
        body = encoder.encode(encoder.adapt(result))
        if isinstance(body, StepResult):
            got = decoder.adapt(decoder.decode(body), result.step, result.epoch)  # type: ignore[arg-type]
        else:
            got = _decoded(decoder, bytes(body), result.step, result.epoch)  # type: ignore[arg-type]
        assert _columns(got) == _columns(result), f"{form.name}: {got} came out of {result}"

    round_trip()


def check_damaged_results(form: ResultFormat, *, seed: int = 0) -> None:
    """Bodies that were cut off, or damaged.

    Raises:
        AssertionError: one raised something else than a CodecError, or made a result outside the limits.
    """
    encoder, decoder = form.ends(LIMITS)
    values = np.array([-0.5, -1, -3], dtype=np.float32)
    logprobs = Logprobs(_int32([2, 0, 1]), _int32([7, 9, 300]), values, _int32([1, 2, 3]))
    rng = random.Random(seed)
    for result in (StepResult(1, 0, _int32([7, FAILED_ROW, 300])), StepResult(1, 0, _int32([7, 8, 300]), logprobs)):
        body = bytes(encoder.encode(encoder.adapt(result)))  # type: ignore[arg-type]
        for length in range(len(body)):
            refused = _refused_or_sound(decoder, body[:length])
            assert refused, f"{form.name}: accepted the first {length} bytes of {body!r}"
        for what, damaged in damages(body, rng):
            _refused_or_sound(decoder, damaged, what)


def _refused_or_sound(decoder: ResultDecoder, body: bytes, what: str = "cut off") -> bool:
    """Whether ``body`` was refused; if it was not, it must be a result within the limits."""
    try:
        result = _decoded(decoder, body, 1, 0)
    except CodecError:
        return True
    except Exception as other:
        raise AssertionError(f"{what}: body {body.hex()}: {other!r} where a CodecError is due") from other
    ids = result.token_ids
    in_limits = len(ids) <= LIMITS.max_num_seqs and ((ids >= FAILED_ROW) & (ids < LIMITS.vocab_size)).all()
    assert in_limits, f"{what}: body {body.hex()} became {result}, outside {LIMITS}"
    return False


def _decoded(decoder: ResultDecoder, body: bytes, step: int, epoch: int) -> StepResult:
    buffer = bytearray(body)
    result = decoder.adapt(decoder.decode(memoryview(buffer)), step, epoch)
    before = _columns(result)
    buffer[:] = b"\xff" * len(buffer)
    assert _columns(result) == before, "the decoded result has views of the payload: it changed with the buffer"
    return result


def _columns(result: StepResult) -> list[Any]:
    """Everything in a result, for comparison."""
    arrays = [result.token_ids]
    if (logprobs := result.logprobs) is not None:
        arrays += [logprobs.counts, logprobs.token_ids, logprobs.ranks, logprobs.values.view(np.int32)]
    return [result.step, result.epoch, *((array.dtype.str, array.tolist()) for array in arrays)]


@st.composite
def _results(draw: st.DrawFn) -> StepResult:
    ids = draw(st.lists(st.integers(FAILED_ROW, LIMITS.vocab_size - 1), max_size=LIMITS.max_num_seqs))
    logprobs = None
    if draw(st.booleans()):
        counts = draw(st.lists(st.integers(0, 5), min_size=len(ids), max_size=len(ids)))
        rng = np.random.default_rng(draw(st.integers(0, 1000)))
        entries = rng.integers(0, LIMITS.vocab_size, (2, sum(counts)), dtype=np.int32)
        logprobs = Logprobs(_int32(counts), entries[0], -rng.exponential(5, sum(counts)).astype(np.float32), entries[1])
    return StepResult(draw(st.integers(0, 1 << 40)), draw(st.integers(0, 1 << 15)), _int32(ids), logprobs)


def _int32(values: list[int]) -> Any:
    return np.array(values, dtype=np.int32)
