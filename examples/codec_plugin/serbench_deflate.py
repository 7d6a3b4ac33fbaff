"""A codec from outside: ``delta``'s payloads, compressed. See docs/codecs.md."""

import zlib
from typing import Any

from serbench_codecs.errors import MalformedPayloadError
from serbench_codecs.registry import get_codec

INNER = get_codec("delta")
LARGEST = 1 << 28


class DeflateEncoder:
    def __init__(self, inner: Any) -> None:
        self.adapt, self._encode = inner.adapt, inner.encode

    def encode(self, objects: Any) -> bytes:
        return zlib.compress(self._encode(objects), level=1)


class DeflateDecoder:
    def __init__(self, inner: Any) -> None:
        self.adapt, self._decode = inner.adapt, inner.decode

    def decode(self, payload: memoryview) -> Any:
        unpacker = zlib.decompressobj()
        try:
            body = unpacker.decompress(payload, LARGEST)  # a few bad bytes must not become gigabytes
        except zlib.error as error:
            raise MalformedPayloadError(f"deflate: {error}") from error
        if not unpacker.eof or unpacker.unused_data:
            raise MalformedPayloadError("deflate: truncated, or more than one stream")
        return self._decode(memoryview(body))


class DeflateCodec:
    name = "deflate"
    traits = INNER.traits

    def ends(self, limits: Any) -> tuple[DeflateEncoder, DeflateDecoder]:
        encoder, decoder = INNER.ends(limits)
        return DeflateEncoder(encoder), DeflateDecoder(decoder)


DEFLATE = DeflateCodec()
