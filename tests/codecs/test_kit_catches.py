"""The conformance kit catches codecs that are wrong, each in one way.

It does not know the codecs that are right, but as a beginning to break.
"""

import re
import struct
from collections.abc import Callable
from typing import Any

import msgspec
import numpy as np
import pytest

from serbench_codecs.codec import Codec, Decoder, Encoder, Traits
from serbench_codecs.conformance import (
    check_codec,
    check_conversations,
    check_faults,
)
from serbench_codecs.plan import NO_ROWS, NO_WRITES, SAMPLING_DTYPE, StepPlan, Writes
from serbench_codecs.registry import get_codec
from serbench_codecs.table import RequestTable, TableLimits

Change = Callable[[StepPlan], StepPlan]


def unchanged(plan: StepPlan) -> StepPlan:
    return plan


class ChangedEncoder:
    """Gives its inner encoder changed plans."""

    def __init__(self, inner: Encoder, change: Change) -> None:
        self._inner, self._change = inner, change

    def adapt(self, plan: StepPlan, table: RequestTable) -> Any:
        return self._inner.adapt(self._change(plan), table)

    def encode(self, objects: Any) -> Any:
        return self._inner.encode(objects)


class ChangedDecoder:
    """Changes the plans of its inner decoder."""

    def __init__(self, inner: Decoder, change: Change) -> None:
        self._inner, self._change = inner, change

    def decode(self, payload: memoryview) -> Any:
        return self._inner.decode(payload)

    def adapt(self, objects: Any) -> StepPlan:
        return self._change(self._inner.adapt(objects))


class Broken(msgspec.Struct, frozen=True):
    """A codec that is right but for one thing: what it does to plans before it encodes, or after it decodes, them.

    ``before`` and ``after`` are called once for each pair of ends, and give what is called for each plan.
    """

    inner: Codec
    before: Callable[[], Change] = lambda: unchanged
    after: Callable[[], Change] = lambda: unchanged
    name: str = "broken"

    @property
    def traits(self) -> Traits:
        return self.inner.traits

    def ends(self, limits: TableLimits) -> tuple[Encoder, Decoder]:
        encoder, decoder = self.inner.ends(limits)
        return ChangedEncoder(encoder, self.before()), ChangedDecoder(decoder, self.after())


def with_(plan: StepPlan, **columns: Any) -> StepPlan:
    return msgspec.structs.replace(plan, **columns)


def drops_a_block(plan: StepPlan) -> StepPlan:
    blocks = plan.blocks
    if not len(blocks):
        return plan
    n = int(blocks.counts[-1])
    kept = Writes(blocks.rows[:-1], blocks.starts[:-1], blocks.counts[:-1], blocks.values[:-n])
    return with_(plan, blocks=kept if len(kept) else NO_WRITES)


def writes_blocks_at_a_wrong_place(plan: StepPlan) -> StepPlan:
    blocks = plan.blocks
    return with_(plan, blocks=Writes(blocks.rows, np.maximum(blocks.starts - 1, 0), blocks.counts, blocks.values))


def forgets_freed_rows(plan: StepPlan) -> StepPlan:
    return with_(plan, freed=NO_ROWS)


def tells_only_rows_that_run(plan: StepPlan) -> StepPlan:
    told = np.isin(plan.tokens.rows, plan.batch_rows)
    counts = plan.tokens.counts
    values = plan.tokens.values[np.repeat(told, counts)]
    return with_(plan, tokens=Writes(plan.tokens.rows[told], plan.tokens.starts[told], counts[told], values))


def forgets_sampling(plan: StepPlan) -> StepPlan:
    nothing = np.zeros(len(plan.admitted), dtype=SAMPLING_DTYPE)
    return with_(plan, admitted=msgspec.structs.replace(plan.admitted, sampling=nothing))


def starts_over(plan: StepPlan) -> StepPlan:
    computed = np.zeros(len(plan.admitted), dtype=np.int32)
    return with_(plan, admitted=msgspec.structs.replace(plan.admitted, num_computed_tokens=computed))


def reverses_the_batch(plan: StepPlan) -> StepPlan:
    return with_(plan, batch_rows=plan.batch_rows[::-1].copy(), batch_counts=plan.batch_counts[::-1].copy())


def widens_ids(plan: StepPlan) -> StepPlan:
    return with_(plan, batch_rows=plan.batch_rows.astype(np.int64))


def counts_steps_from_one(plan: StepPlan) -> StepPlan:
    return with_(plan, step=plan.step + 1)


def stale_counts() -> Change:
    """Sends the counts of the step before, where there are as many."""
    last = [NO_ROWS]

    def change(plan: StepPlan) -> StepPlan:
        counts = last[0] if len(last[0]) == len(plan.batch_counts) else plan.batch_counts
        last[0] = plan.batch_counts
        return with_(plan, batch_counts=counts)

    return change


def reuses_arrays() -> Change:
    """Hands out the same array for every batch, overwritten."""
    rows = np.zeros(100, dtype=np.int32)

    def change(plan: StepPlan) -> StepPlan:
        n = len(plan.batch_rows)
        rows[:n] = plan.batch_rows
        return with_(plan, batch_rows=rows[:n])

    return change


def writes_to_the_plan(plan: StepPlan) -> StepPlan:
    plan.batch_counts[:] = plan.batch_counts[::-1].copy()
    return plan


@pytest.mark.parametrize("spec", ["delta", "cached", "columnar"])
@pytest.mark.parametrize(
    "change",
    [
        drops_a_block,
        writes_blocks_at_a_wrong_place,
        forgets_freed_rows,
        forgets_sampling,
        starts_over,
        reverses_the_batch,
        counts_steps_from_one,
    ],
)
def test_a_wrong_plan_is_caught(spec: str, change: Change) -> None:
    with pytest.raises(AssertionError, match=r"\nrun_conversation\(codec"):
        check_conversations(Broken(get_codec(spec), before=lambda: change), shrinks=False)


@pytest.mark.parametrize("factory", [stale_counts, lambda: tells_only_rows_that_run, lambda: writes_to_the_plan])
def test_a_wrong_encoder_is_caught(factory: Callable[[], Change]) -> None:
    with pytest.raises(AssertionError, match=r"\nrun_conversation\(codec"):
        check_conversations(Broken(get_codec("delta"), before=factory), shrinks=False)


@pytest.mark.parametrize("factory", [reuses_arrays, lambda: widens_ids, lambda: counts_steps_from_one])
def test_a_wrong_decoder_is_caught(factory: Callable[[], Change]) -> None:
    with pytest.raises(AssertionError, match=r"\nrun_conversation\(codec"):
        check_conversations(Broken(get_codec("delta"), after=factory), shrinks=False)


class WithTraits(msgspec.Struct, frozen=True):
    """A codec that claims other traits than it has."""

    inner: Codec
    traits: Traits
    name: str = "boaster"

    def ends(self, limits: TableLimits) -> tuple[Encoder, Decoder]:
        return self.inner.ends(limits)


@pytest.mark.parametrize(("spec", "claim"), [("delta", {"remembers": False}), ("cached", {"sampled_ids_travel": True})])
def test_a_false_claim_is_caught(spec: str, claim: dict[str, bool]) -> None:
    codec = get_codec(spec)
    with pytest.raises(AssertionError):
        check_conversations(WithTraits(codec, msgspec.structs.replace(codec.traits, **claim)), shrinks=False)


# --- ends that are wrong with bytes -----------------------------------------------------------------------------------


class TrailingRows:
    """Appends the batch's rows to a body, and reads them back: ``take`` gets the bytes and how many rows there are."""

    def __init__(self, take: Callable[[memoryview, int], Any]) -> None:
        self.name = "trailing"
        self.traits = get_codec("delta").traits
        self._take = take

    def ends(self, limits: TableLimits) -> tuple[Encoder, Decoder]:
        encoder, decoder = get_codec("delta").ends(limits)
        return _TrailingEncoder(encoder), _TrailingDecoder(decoder, self._take)


class _TrailingEncoder:
    def __init__(self, inner: Encoder) -> None:
        self._inner = inner

    def adapt(self, plan: StepPlan, table: RequestTable) -> Any:
        return plan, self._inner.adapt(plan, table)

    def encode(self, objects: Any) -> bytes:
        plan, inner = objects
        body: bytes = self._inner.encode(inner)  # type: ignore[assignment]
        rows: bytes = plan.batch_rows.tobytes()
        return struct.pack("<II", len(body), len(plan.batch_rows)) + body + rows


class _TrailingDecoder:
    def __init__(self, inner: Decoder, take: Callable[[memoryview, int], Any]) -> None:
        self._inner, self._take = inner, take

    def decode(self, payload: memoryview) -> Any:
        length, num_rows = struct.unpack_from("<II", payload)
        return self._inner.decode(payload[8 : 8 + length]), self._take(payload[8 + length :], num_rows)

    def adapt(self, objects: Any) -> StepPlan:
        inner, rows = objects
        return with_(self._inner.adapt(inner), batch_rows=rows)


def views(body: memoryview, num_rows: int) -> Any:
    return np.frombuffer(body, dtype=np.int32)


def copies(body: memoryview, num_rows: int) -> Any:
    return np.frombuffer(body, dtype=np.int32).copy()


def allocates_first(body: memoryview, num_rows: int) -> Any:
    rows = np.zeros(num_rows, dtype=np.int32)
    if len(body) != rows.nbytes:
        raise ValueError("too late")
    return np.frombuffer(body, dtype=np.int32).copy()


def test_views_of_the_payload_are_caught() -> None:
    with pytest.raises(AssertionError, match="views of the payload"):
        check_conversations(TrailingRows(views), shrinks=False)
    check_conversations(TrailingRows(copies), max_examples=20)  # so it is the views that were caught


def test_exceptions_that_are_no_codec_errors_are_caught() -> None:
    with pytest.raises(AssertionError, match="CodecError is due"):
        check_faults(TrailingRows(copies))


class Raising(msgspec.Struct, frozen=True):
    """``delta``, which raises where it makes its ends, or where its encoder is used."""

    what: str
    name: str = "raising"
    traits: Traits = get_codec("delta").traits

    def ends(self, limits: TableLimits) -> tuple[Encoder, Decoder]:
        if self.what == "ends":
            raise ZeroDivisionError
        if self.what == "none":
            return None  # type: ignore[return-value]
        encoder, decoder = get_codec("delta").ends(limits)
        return ChangedEncoder(encoder, fails), decoder


def fails(plan: StepPlan) -> StepPlan:
    raise ZeroDivisionError


@pytest.mark.parametrize(
    ("what", "says"),
    [("ends", "ZeroDivisionError"), ("encoder", "ZeroDivisionError"), ("none", r".*ends\(limits\) returned None")],
)
def test_a_codec_that_raises_is_caught_with_the_conversation(what: str, says: str) -> None:
    with pytest.raises(AssertionError, match=rf"codec raising breaks the contract: {says}(?s:.*)\nrun_conv"):
        check_conversations(Raising(what), shrinks=False)


class Catching:
    """A codec whose decoder turns every exception into a CodecError."""

    def __init__(self, inner: Codec) -> None:
        self.name, self.traits, self._inner = "catching", inner.traits, inner

    def ends(self, limits: TableLimits) -> tuple[Encoder, Decoder]:
        encoder, decoder = self._inner.ends(limits)
        return encoder, _CatchingDecoder(decoder)


class _CatchingDecoder:
    def __init__(self, inner: Decoder) -> None:
        self._inner = inner

    def decode(self, payload: memoryview) -> Any:
        from serbench_codecs.errors import MalformedPayloadError

        try:
            return self._inner.decode(payload)
        except Exception as error:
            raise MalformedPayloadError(repr(error)) from error

    def adapt(self, objects: Any) -> StepPlan:
        return self._inner.adapt(objects)


def test_allocation_without_bound_is_caught() -> None:
    with pytest.raises(AssertionError, match="bytes allocated for a body of"):
        check_faults(Catching(TrailingRows(allocates_first)))


def test_a_body_without_an_end_is_caught() -> None:
    def first_rows(body: memoryview, num_rows: int) -> Any:
        return np.frombuffer(body, dtype=np.int32, count=num_rows).copy()

    with pytest.raises(AssertionError, match="a body and a byte was accepted"):
        check_faults(Catching(TrailingRows(first_rows)))


# --- the conversations ------------------------------------------------------------------------------------------------


def test_a_failure_can_be_played_again() -> None:
    broken = Broken(get_codec("delta"), before=lambda: drops_a_block)
    with pytest.raises(AssertionError) as first:
        check_codec(broken, shrinks=False)
    _rule, below = str(first.value).split("\n", 1)
    with pytest.raises(AssertionError) as second:
        exec(below, {"codec": broken})
    assert str(second.value) == str(first.value)


def test_a_failure_is_one_line_and_below_it_its_step_and_rows() -> None:
    with pytest.raises(AssertionError) as failure:
        check_conversations(Broken(get_codec("delta"), before=lambda: starts_over), shrinks=False)
    rule, step, rows, *_code = str(failure.value).splitlines()
    assert re.fullmatch(r"codec broken breaks the contract: row \d+: num_computed_tokens is 0 at the worker, .*", rule)
    assert re.fullmatch(r"# step \d+ of epoch \d+, after \d+ payloads", step)
    assert re.fullmatch(r"# rows [\d ]+", rows)


def test_a_failure_by_a_faulty_payload_can_be_repeated_too() -> None:
    codec = TrailingRows(copies)
    with pytest.raises(AssertionError) as first:
        check_faults(codec)
    rule, below = str(first.value).split("\n", 1)
    assert "body" not in rule.partition("where a CodecError is due")[2]
    with pytest.raises(AssertionError) as second:
        exec(below, {"codec": codec})
    assert str(second.value) == str(first.value)
