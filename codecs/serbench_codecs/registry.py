"""The codecs and result formats by name, with their options: a literal table, plug-ins, and ``package.module:NAME``.

It does not know how any of them works.
"""

import difflib
import importlib
from collections.abc import Callable, Mapping, Sequence
from importlib.metadata import EntryPoint, entry_points
from typing import Any, Final, NoReturn, cast

import msgspec

from serbench_codecs.cached import CachedCodec
from serbench_codecs.codec import Codec, ResultFormat, Traits
from serbench_codecs.columnar import ColumnarCodec
from serbench_codecs.delta import DeltaCodec
from serbench_codecs.errors import UnknownCodecError
from serbench_codecs.msgspec_full import MsgspecCodec
from serbench_codecs.ormsgpack_full import make_ormsgpack
from serbench_codecs.pickled import PickleCodec
from serbench_codecs.reference import ReferenceCodec
from serbench_codecs.results import ListResults, PackedResults, ReferenceResults

ENTRY_POINT_GROUP: Final = "serbench.codecs"
"""A plug-in's entry points name a Codec, or something that makes one without arguments."""


class CodecFamily(msgspec.Struct, frozen=True):
    """A codec and its options: for each key its values, the default first. ``make`` takes a value for every key."""

    description: str
    make: Callable[[Mapping[str, Any]], Codec]
    options: Mapping[str, tuple[str, ...]] = {}


class CodecInfo(msgspec.Struct, frozen=True):
    """A line of ``serbench codecs``. A plug-in that can't be loaded has no traits, and a description that says why."""

    name: str
    description: str
    traits: Traits | None
    options: Mapping[str, tuple[str, ...]]


CODECS: Final[Mapping[str, CodecFamily]] = {
    "none": CodecFamily("the plan by reference, same process only: the ceiling", lambda _: ReferenceCodec()),
    "pickle": CodecFamily(
        "the whole state of every scheduled request, pickled dataclasses",
        lambda options: PickleCodec("pickle", **options),
        {"ids": ("list", "packed")},
    ),
    "cloudpickle": CodecFamily(
        "the same dataclasses by cloudpickle, as Ray does",
        lambda options: PickleCodec("cloudpickle", **options),
        {"ids": ("list", "packed")},
    ),
    "msgspec": CodecFamily(
        "the whole state of every scheduled request, structs in MessagePack",
        lambda options: MsgspecCodec(**options),
        {"ids": ("packed", "list")},
    ),
    "ormsgpack": CodecFamily(
        "the same by another library (an optional extra), to place ours",
        lambda options: make_ormsgpack(**options),
        {"ids": ("packed", "list")},
    ),
    "delta": CodecFamily(
        "a request whole once, then its changes, as structs",
        lambda options: DeltaCodec(**options),
        {"format": ("msgspec", "pickle")},
    ),
    "cached": CodecFamily("the changes without the sampled ids, which the worker keeps", lambda _: CachedCodec()),
    "columnar": CodecFamily("packed columns of what the worker can't tell itself", lambda _: ColumnarCodec()),
}

RESULT_FORMATS: Final[Mapping[str, ResultFormat]] = {
    "none": ReferenceResults(),
    "pickle": ListResults("pickle"),
    "cloudpickle": ListResults("cloudpickle"),
    "msgspec": ListResults("msgspec"),
    "packed": PackedResults(),
}


def get_codec(spec: str) -> Codec:
    """The codec of a name as users write it.

    ``name`` or ``name:key=value[:key=value]`` of CODECS, the name of a plug-in's entry point, or
    ``package.module:NAME`` for an object that is a Codec or makes one when called.

    Raises:
        UnknownCodecError: no such codec, option or value, or a plug-in that can't be loaded; with what there is.
    """
    name, *parts = spec.split(":")
    if name in CODECS:
        return _with_options(name, CODECS[name], parts)
    plugins = _plugins()
    if name in plugins:
        if parts:
            raise UnknownCodecError(f"plug-in codec {name!r} has no options, so {':'.join(parts)!r} means nothing")
        return _load_plugin(plugins[name])
    if _is_module_and_name(name, parts):
        return _imported(name, parts[0])
    _unknown("codec", name, [*CODECS, *plugins])


def names_module(spec: str) -> bool:
    """Whether ``get_codec`` would import the module that ``spec`` names: whoever wrote it decides what code runs."""
    name, *parts = spec.split(":")
    return name not in CODECS and name not in _plugins() and _is_module_and_name(name, parts)


def get_result_format(name: str) -> ResultFormat:
    """The result format of this name.

    Raises:
        UnknownCodecError: there is none; with those that there are.
    """
    if name not in RESULT_FORMATS:
        _unknown("result format", name, list(RESULT_FORMATS))
    return RESULT_FORMATS[name]


def list_codecs() -> list[CodecInfo]:
    """Every codec that has a name, ours first, then plug-ins by name."""
    ours = [_info(name, family) for name, family in CODECS.items()]
    return ours + [_plugin_info(name, point) for name, point in sorted(_plugins().items()) if name not in CODECS]


def _info(name: str, family: CodecFamily) -> CodecInfo:
    try:
        return CodecInfo(name, family.description, get_codec(name).traits, family.options)
    except UnknownCodecError as error:  # it needs an extra
        return CodecInfo(name, str(error), None, family.options)


def _is_module_and_name(name: str, parts: Sequence[str]) -> bool:
    return len(parts) == 1 and all(part.isidentifier() for part in f"{name}.{parts[0]}".split("."))


def _with_options(name: str, family: CodecFamily, parts: Sequence[str]) -> Codec:
    chosen = {key: values[0] for key, values in family.options.items()}
    for part in parts:
        key, _, value = part.partition("=")
        if key not in family.options:
            raise UnknownCodecError(f"codec {name!r} has no option {key!r}; {_options_text(name, family)}")
        if value not in family.options[key]:
            raise UnknownCodecError(f"codec {name!r}: {key}={value!r} is not possible; {_options_text(name, family)}")
        chosen[key] = value
    return family.make(chosen)


def _options_text(name: str, family: CodecFamily) -> str:
    if not family.options:
        return "it has none"
    return "possible: " + ", ".join(f"{name}:{key}={'|'.join(values)}" for key, values in family.options.items())


def _unknown(what: str, name: str, names: list[str]) -> NoReturn:
    near = difflib.get_close_matches(name, names, n=3, cutoff=0.5)
    hint = f" Did you mean {' or '.join(near)}?" if near else ""
    raise UnknownCodecError(f"no {what} {name!r}.{hint} There are: {', '.join(names)}")


def _plugins() -> dict[str, EntryPoint]:
    return {point.name: point for point in entry_points(group=ENTRY_POINT_GROUP)}


def _load_plugin(point: EntryPoint) -> Codec:
    try:
        found = point.load()
    except KeyboardInterrupt:
        raise
    except BaseException as error:  # a plug-in's module may raise anything when it is imported, and may exit
        raise UnknownCodecError(f"plug-in codec {point.name!r} ({point.value}) can't be loaded: {error!r}") from error
    return _as_codec(found, point.value)


def _plugin_info(name: str, point: EntryPoint) -> CodecInfo:
    try:
        codec = _load_plugin(point)
    except UnknownCodecError as error:
        return CodecInfo(name, str(error), None, {})
    first_line = (type(codec).__doc__ or "").strip().partition("\n")[0]
    return CodecInfo(name, first_line or f"plug-in {point.value}", codec.traits, {})


def _imported(module_name: str, attribute: str) -> Codec:
    spec = f"{module_name}:{attribute}"
    try:
        module = importlib.import_module(module_name)
    except KeyboardInterrupt:
        raise
    except ModuleNotFoundError as error:
        names = ", ".join(CODECS)
        raise UnknownCodecError(f"no codec {spec!r}: {error}. There are: {names}, or package.module:NAME") from error
    except BaseException as error:  # a module may raise anything when it is imported, and may exit
        raise UnknownCodecError(f"codec {spec!r}: importing {module_name} failed: {error!r}") from error
    if not hasattr(module, attribute):
        raise UnknownCodecError(f"no codec {spec!r}: module {module_name} has no {attribute}")
    return _as_codec(getattr(module, attribute), spec)


def _as_codec(found: Any, spec: str) -> Codec:
    """``found`` if it is a codec, else what it makes."""
    try:
        is_factory = isinstance(found, type) or (callable(found) and not _is_codec(found))
        made = found() if is_factory else found
        is_codec = _is_codec(made)
    except KeyboardInterrupt:
        raise
    except BaseException as error:  # whatever was named is called: it may raise anything, and may exit
        raise UnknownCodecError(f"{spec} does not make a codec when called: {error!r}") from error
    if not is_codec:
        raise UnknownCodecError(f"{spec} is a {type(made).__name__}; a codec has name, traits and ends(limits)")
    return cast(Codec, made)


def _is_codec(found: Any) -> bool:
    return (
        isinstance(getattr(found, "name", None), str)
        and isinstance(getattr(found, "traits", None), Traits)
        and callable(getattr(found, "ends", None))
    )
