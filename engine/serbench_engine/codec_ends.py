"""Makes a codec's ends, and says what a codec did wrong where it raises or makes no payload. Codecs may be plug-ins.

It does not know what a codec does, nor when it is called.
"""

import traceback
from typing import Any, NoReturn

from serbench_codecs.codec import Codec, Decoder, Encoder
from serbench_codecs.errors import CodecError
from serbench_codecs.table import TableLimits
from serbench_engine.errors import BrokenCodecError


def new_ends(codec: Codec, limits: TableLimits) -> tuple[Encoder, Decoder]:
    """A new encoder and a new decoder.

    Raises:
        BrokenCodecError: it raised, or these are none.
    """
    try:
        made: Any = codec.ends(limits)
    except BaseException as error:
        raise_broken(codec, "ends(limits) failed", error)
    if not isinstance(made, tuple) or len(made) != 2 or not _has(made[0], "encode") or not _has(made[1], "decode"):
        raise BrokenCodecError(
            f"codec {codec.name}: ends(limits) returned {_shown(made)}; it must return an encoder (adapt, encode) and "
            "a decoder (decode, adapt)"
        )
    encoder, decoder = made
    return encoder, decoder


def raise_broken(codec: Codec, what: str, error: BaseException) -> NoReturn:
    """Raise ``error``, whatever a plug-in may raise, as the codec's fault, with the traceback from its own frames on.

    An interrupt is the user's and stays what it is.
    """
    if isinstance(error, KeyboardInterrupt):
        raise error
    if isinstance(error, CodecError):  # says itself what is wrong
        raise BrokenCodecError(f"codec {codec.name}: {what}: {error}") from error
    where = error.__traceback__.tb_next if error.__traceback__ else None
    lines = traceback.format_exception(type(error), error, where)
    message = f"codec {codec.name}: {what}: {type(error).__name__}: {error}"
    raise BrokenCodecError(message, "".join(lines)) from error


def _has(end: object, call: str) -> bool:
    return callable(getattr(end, "adapt", None)) and callable(getattr(end, call, None))


def _shown(made: object) -> str:
    if isinstance(made, tuple):
        return f"({', '.join(type(one).__name__ for one in made)})"
    return "None" if made is None else f"a {type(made).__name__}"
