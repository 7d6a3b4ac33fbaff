"""Names of codecs and result formats: what each gives, and what is said about those that don't exist."""

import subprocess
import sys
from importlib.metadata import EntryPoint
from pathlib import Path

import pytest

from serbench_codecs import registry
from serbench_codecs.codec import Codec
from serbench_codecs.delta import DeltaCodec
from serbench_codecs.errors import UnknownCodecError
from serbench_codecs.pickled import PickleCodec
from serbench_codecs.registry import CODECS, RESULT_FORMATS, get_codec, get_result_format, list_codecs
from serbench_codecs.table import TableLimits
from tests.codecs.variants import SPECS, WIRE_SPECS

LIMITS = TableLimits(max_num_seqs=8, max_model_len=64, block_size=4, num_blocks=64, vocab_size=100)


@pytest.mark.parametrize("spec", SPECS)
def test_a_codec_is_called_what_it_was_asked_for(spec: str) -> None:
    codec = get_codec(spec)
    assert codec.name == spec
    assert codec == get_codec(spec)
    assert codec.traits.result_format in RESULT_FORMATS


@pytest.mark.parametrize("spec", SPECS)
def test_ends_are_made_anew(spec: str) -> None:
    one, other = get_codec(spec).ends(LIMITS), get_codec(spec).ends(LIMITS)
    assert one[0] is not other[0]
    assert one[1] is not other[1]


@pytest.mark.parametrize(("spec", "name"), [("pickle:ids=list", "pickle"), ("delta:format=msgspec", "delta")])
def test_a_default_is_not_part_of_the_name(spec: str, name: str) -> None:
    assert get_codec(spec).name == name
    assert get_codec(spec) == get_codec(name)


def test_only_pickles_can_execute_code() -> None:
    trusted = {spec for spec in WIRE_SPECS if get_codec(spec).traits.trusted_only}
    assert trusted == {spec for spec in WIRE_SPECS if "pickle" in spec}
    assert {name for name, form in RESULT_FORMATS.items() if form.trusted_only} == {"pickle", "cloudpickle"}


@pytest.mark.parametrize(
    ("spec", "says"),
    [
        ("pickel", r"no codec 'pickel'. Did you mean pickle"),
        ("colunmar", r"Did you mean columnar\? There are: none, pickle,"),
        ("qqqqqq", r"no codec 'qqqqqq'. There are: none, pickle,"),
        ("", r"no codec ''. There are"),
        ("pickel:ids=packed", r"Did you mean pickle"),
        ("pickle:ids=paked", r"pickle.*ids='paked' is not possible; possible: pickle:ids=list\|packed"),
        ("pickle:ids", r"has no option|is not possible"),
        ("pickle:idz=list", r"has no option 'idz'; possible: pickle:ids=list\|packed"),
        ("cached:ids=list", r"has no option 'ids'; it has none"),
        ("delta:", r"has no option ''; possible: delta:format=msgspec\|pickle"),
        ("no_such_module:CODEC", r"No module named 'no_such_module'"),
        ("serbench_codecs.delta:NoSuch", r"module serbench_codecs.delta has no NoSuch"),
        ("serbench_codecs.delta:written", r"does not make a codec when called: TypeError"),
        ("serbench_codecs.codec:MAGIC", r"is a bytes; a codec has name, traits and ends\(limits\)"),
        (":", r"no codec"),
        ("a:b:c", r"no codec 'a'"),
        (".relative:NAME", r"no codec"),
    ],
)
def test_what_does_not_exist_is_said(spec: str, says: str) -> None:
    with pytest.raises(UnknownCodecError, match=says):
        get_codec(spec)


def test_result_formats() -> None:
    for name in RESULT_FORMATS:
        assert get_result_format(name).name == name
    with pytest.raises(UnknownCodecError, match=r"no result format 'paked'. Did you mean packed"):
        get_result_format("paked")


@pytest.mark.parametrize(
    ("statement", "says"),
    [
        ("import sys; sys.exit(3)", r"importing leaves failed: SystemExit\(3\)"),
        ("raise RuntimeError('first\\nsecond')", r"importing leaves failed: RuntimeError\('first\\nsecond'\)"),
        ("class Odd(BaseException): ...\nraise Odd", r"importing leaves failed: Odd\(\)"),
        ("import no_such_module", "No module named 'no_such_module'"),
        ("class NAME:\n    name = property(lambda self: 1 // 0)", "does not make a codec when called: ZeroDivision"),
        ("import sys\nNAME = lambda: sys.exit(0)", r"does not make a codec when called: SystemExit\(0\)"),
    ],
)
def test_a_module_that_raises_or_exits_is_no_codec(
    statement: str, says: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "leaves.py").write_text(statement)
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.delitem(sys.modules, "leaves", raising=False)
    with pytest.raises(UnknownCodecError, match=says) as caught:
        get_codec("leaves:NAME")
    assert "\n" not in str(caught.value)
    plugins(monkeypatch, leaver="leaves:NAME")
    with pytest.raises(UnknownCodecError, match="leave"):
        get_codec("leaver")


A_CODEC = DeltaCodec("pickle")


def test_a_codec_is_imported_by_its_path() -> None:
    assert get_codec("serbench_codecs.delta:DeltaCodec") == DeltaCodec()  # a class is called
    assert get_codec("serbench_codecs.pickled:PickleCodec") == PickleCodec()
    assert get_codec(f"{__name__}:A_CODEC") == A_CODEC  # a codec is taken as it is


def plugins(monkeypatch: pytest.MonkeyPatch, **values: str) -> None:
    points = [EntryPoint(name, value, registry.ENTRY_POINT_GROUP) for name, value in values.items()]
    monkeypatch.setattr(registry, "entry_points", lambda group: points if group == registry.ENTRY_POINT_GROUP else [])


def test_a_plugin_has_the_name_of_its_entry_point(monkeypatch: pytest.MonkeyPatch) -> None:
    plugins(monkeypatch, mine="serbench_codecs.cached:CachedCodec", broken="no_such_module:CODEC")
    codec: Codec = get_codec("mine")
    assert codec.name == "cached"
    listed = {info.name: info for info in list_codecs()}
    assert [*listed] == [*CODECS, "broken", "mine"]
    assert listed["mine"].traits == codec.traits
    assert listed["mine"].description.startswith("Changes only")
    assert listed["broken"].traits is None
    assert "No module named 'no_such_module'" in listed["broken"].description
    with pytest.raises(UnknownCodecError, match=r"plug-in codec 'broken' .* can't be loaded"):
        get_codec("broken")
    with pytest.raises(UnknownCodecError, match="has no options"):
        get_codec("mine:ids=list")
    with pytest.raises(UnknownCodecError, match="Did you mean mine"):
        get_codec("minne")


def test_a_plugin_does_not_replace_ours(monkeypatch: pytest.MonkeyPatch) -> None:
    plugins(monkeypatch, delta="serbench_codecs.cached:CachedCodec")
    assert get_codec("delta") == DeltaCodec()
    assert [info.name for info in list_codecs()] == [*CODECS]


def test_the_list_has_a_line_for_every_codec() -> None:
    for info in list_codecs():
        assert info.description
        assert "\n" not in info.description
    options = {info.name: info.options for info in list_codecs()}
    assert options["pickle"] == {"ids": ("list", "packed")}
    assert options["msgspec"] == {"ids": ("packed", "list")}
    assert options["columnar"] == {}


def test_importing_the_registry_is_light() -> None:
    heavy = ["torch", "transformers", "pandas", "cloudpickle", "hypothesis", "serbench_engine"]
    program = f"import sys, serbench_codecs.registry; print([m for m in {heavy} if m in sys.modules])"
    root = Path(registry.__file__).parents[1]
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, timeout=60, check=True, cwd=root
    )
    assert done.stdout.strip() == "[]"
