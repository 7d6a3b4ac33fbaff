"""Codecs, such as plug-ins, that raise or make no payload: one line with the codec's name and what it did."""

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import msgspec
import pytest

from serbench_codecs.codec import MAX_BODY_BYTES, Traits
from serbench_codecs.delta import DeltaCodec
from serbench_codecs.table import TableLimits
from serbench_engine.engine import Engine
from serbench_engine.errors import BrokenCodecError, ConfigError, EngineError, WorkerError
from tests.engine.serving import SIM, greedy, options, sim_executor


class Faulty(msgspec.Struct, frozen=True):
    """``delta``, but for one call: ``ends`` itself, or one of ``encoder.adapt``, ``encoder.encode``, …"""

    call: str
    instead: Callable[..., Any]
    name: str = "faulty"
    traits: Traits = DeltaCodec().traits

    def ends(self, limits: TableLimits) -> Any:
        if self.call == "ends":
            return self.instead(limits)
        encoder, decoder = DeltaCodec().ends(limits)
        ends = {
            "encoder": SimpleNamespace(adapt=encoder.adapt, encode=encoder.encode),
            "decoder": SimpleNamespace(adapt=decoder.adapt, decode=decoder.decode),
        }
        end, _, call = self.call.partition(".")
        setattr(ends[end], call, self.instead)
        return tuple(ends.values())


class Huge(bytes):
    """Says that it is larger than any body may be."""

    def __len__(self) -> int:
        return MAX_BODY_BYTES + 1


def _fail(*_: object) -> None:
    raise ZeroDivisionError("in the plug-in")


class _Own(BaseException):
    """A plug-in's own, which is no Exception."""


def _own(*_: object) -> None:
    raise _Own("in the plug-in")


def _leave(*_: object) -> None:
    raise SystemExit(0)


ENDS_RAISES = Faulty("ends", _fail)
ENDS_NONE = Faulty("ends", lambda limits: None)
ENDS_ONE = Faulty("ends", lambda limits: (DeltaCodec().ends(limits)[0],))
ENDS_OTHERS = Faulty("ends", lambda limits: (1, 2))
ENCODE_RAISES = Faulty("encoder.encode", _fail)
ENCODE_LEAVES = Faulty("encoder.encode", _leave)
ENCODE_OWN = Faulty("encoder.encode", _own)
ENDS_OWN = Faulty("ends", _own)
ENCODE_NONE = Faulty("encoder.encode", lambda objects: None)
ENCODE_INT = Faulty("encoder.encode", lambda objects: 5)
ENCODE_HUGE = Faulty("encoder.encode", lambda objects: Huge())
ADAPT_RAISES = Faulty("encoder.adapt", _fail)
DECODE_RAISES = Faulty("decoder.decode", _fail)
DECODE_OWN = Faulty("decoder.decode", _own)
DECODED_NONE = Faulty("decoder.adapt", lambda objects: None)
UNKNOWN_RESULTS = Faulty(
    "encoder.encode", _fail, traits=msgspec.structs.replace(DeltaCodec().traits, result_format="nope")
)


def _serve_one(name: str, steps: int = 1) -> None:
    engine = Engine(sim_executor(), options(codec=f"{__name__}:{name}"), SIM)
    engine.add_request("a", [1, 2, 3], greedy())
    for _ in range(steps):
        engine.step()


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("ENDS_RAISES", r"codec faulty: ends\(limits\) failed: ZeroDivisionError: in the plug-in"),
        ("ENDS_NONE", r"codec faulty: ends\(limits\) returned None; it must return an encoder"),
        ("ENDS_ONE", r"ends\(limits\) returned \(DeltaEncoder\); it must return an encoder"),
        ("ENDS_OTHERS", r"ends\(limits\) returned \(int, int\); it must return an encoder"),
        ("ENCODE_RAISES", "codec faulty: no payload of step 0: ZeroDivisionError: in the plug-in"),
        ("ENCODE_LEAVES", "codec faulty: no payload of step 0: SystemExit: 0"),
        ("ENCODE_OWN", "codec faulty: no payload of step 0: _Own: in the plug-in"),
        ("ENDS_OWN", r"codec faulty: ends\(limits\) failed: _Own: in the plug-in"),
        ("ENCODE_NONE", "codec faulty: no payload of step 0: encode returned None; it must return bytes"),
        ("ENCODE_INT", "no payload of step 0: encode returned a int; it must return bytes"),
        ("ENCODE_HUGE", f"no payload of step 0: body of {MAX_BODY_BYTES + 1} bytes, more than {MAX_BODY_BYTES}"),
        ("ADAPT_RAISES", "no payload of step 0: ZeroDivisionError: in the plug-in"),
    ],
)
def test_what_a_codec_does_wrong_is_one_line_that_names_it(name: str, message: str) -> None:
    with pytest.raises(BrokenCodecError, match=message) as caught:
        _serve_one(name)
    assert "\n" not in str(caught.value)
    raised = any(name in message for name in ("ZeroDivisionError", "SystemExit", "_Own"))
    assert any(f"in {call}" in caught.value.traceback_text for call in ("_fail", "_leave", "_own")) == raised
    assert "serbench_engine" not in caught.value.traceback_text  # its own frames only


def test_a_default_of_results_that_there_is_not_is_refused() -> None:
    with pytest.raises(ConfigError, match="unknown result format 'nope'; there are: none, pickle"):
        _serve_one("UNKNOWN_RESULTS")


def test_a_decoder_that_makes_no_plan_is_named() -> None:
    with pytest.raises(EngineError, match="codec faulty decoded a NoneType; a StepPlan was due"):
        _serve_one("DECODED_NONE", steps=9)


@pytest.mark.parametrize(("name", "raised"), [("DECODE_RAISES", "ZeroDivisionError"), ("DECODE_OWN", "_Own")])
def test_a_decoder_that_raises_is_named_by_the_worker(name: str, raised: str) -> None:
    with pytest.raises(WorkerError, match=f"codec faulty: the payload of step 0 can't be decoded: {raised}"):
        _serve_one(name)
