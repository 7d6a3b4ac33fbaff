"""What lost, repeated, reordered, cut, mislabelled and damaged payloads must lead to: a CodecError, or no harm.

It knows no codec. A body that was damaged may still be some other plan, which a table then accepts or refuses; a codec
that is ``trusted_only`` is spared that, because only its own processes ever write to the transport.
"""

import random
import tracemalloc
from collections.abc import Callable, Iterator, Sequence
from typing import Final

from serbench_codecs.codec import HEADER_BYTES, PLAN, RESULT, Codec, codec_id, pack_header
from serbench_codecs.conformance.reference_worker import ReferenceWorker, Sent
from serbench_codecs.errors import CodecError, MalformedPayloadError, OutOfOrderError, WrongEpochError
from serbench_codecs.table import TableLimits

MAX_DECODE_BYTES: Final = 1 << 20
"""What decoding a small body may allocate, beyond 64 times its length."""

_VERSION_OFFSET: Final = 3


class FaultyDelivery:
    """A recorded session of one epoch, whose payloads can be delivered wrongly to new workers."""

    def __init__(self, codec: Codec, limits: TableLimits, recorded: Sequence[Sent]) -> None:
        self._codec = codec
        self._limits = limits
        self._recorded = recorded

    def worker_before(self, step: int) -> ReferenceWorker:
        """A new worker that has had the payloads before ``step``."""
        worker = ReferenceWorker(self._codec, self._codec.ends(self._limits)[1], self._limits)
        for due, sent in enumerate(self._recorded[:step]):
            worker.run(worker.receive(sent, 0, due))
        return worker

    def must_refuse(self, worker: ReferenceWorker, step: int, sent: Sent, error: type[CodecError], what: str) -> None:
        """At ``worker``, where ``step`` is due, ``sent`` must raise ``error``."""
        try:
            worker.receive(sent, 0, step)
        except error:
            return
        except Exception as other:
            raise AssertionError(f"{self._where(step)}: {what}: {other!r} where {error.__name__} is due") from other
        raise AssertionError(f"{self._where(step)}: {what} was accepted")

    def must_do_no_harm(self, step: int, body: bytes, what: str) -> None:
        """Where ``step`` is due, ``body`` must raise a CodecError or be some plan, within bounded memory."""
        worker = self.worker_before(step)
        tracemalloc.start()
        try:
            worker.receive(self._labelled(step, body), 0, step)
        except CodecError:
            pass
        except Exception as other:
            rule = f"{self._where(step)}: {what}: {other!r} where a CodecError is due"
            raise AssertionError(f"{rule}\n# body {body.hex()}") from other
        finally:
            peak_bytes = tracemalloc.get_traced_memory()[1]
            tracemalloc.stop()
        if peak_bytes > MAX_DECODE_BYTES + 64 * len(body):
            rule = f"{self._where(step)}: {what}: {peak_bytes} bytes allocated for a body of {len(body)}"
            raise AssertionError(f"{rule}\n# body {body.hex()}")

    def check_headers(self, step: int) -> None:
        """Payloads that are whole, but not the one due, or wrongly labelled."""
        sent, body, worker = self._recorded[step], self._recorded[step].body, self.worker_before(step)
        name = codec_id(self._codec.name)
        header = bytearray(sent.header)
        header[_VERSION_OFFSET] += 1
        self.must_refuse(worker, step, self._recorded[step + 1], OutOfOrderError, "a lost payload")
        self.must_refuse(worker, step, self._recorded[step - 1], OutOfOrderError, "a repeated payload")
        self.must_refuse(worker, step, Sent(bytes(header), body), MalformedPayloadError, "another format version")
        for other, error, what in (
            (pack_header(PLAN, name, 1, step, body), WrongEpochError, "another epoch"),
            (pack_header(PLAN, name ^ 1, 0, step, body), MalformedPayloadError, "another codec"),
            (pack_header(RESULT, name, 0, step, body), MalformedPayloadError, "a result"),
        ):
            self.must_refuse(worker, step, Sent(other, body), error, what)
        for length in range(HEADER_BYTES):
            self.must_refuse(worker, step, Sent(sent.header[:length], b""), MalformedPayloadError, "a part of a header")
        if isinstance(body, bytes):
            for length in _lengths(len(body)):
                self.must_refuse(
                    worker, step, Sent(sent.header, body[:length]), MalformedPayloadError, "a part of a payload"
                )
            self.must_refuse(
                worker, step, Sent(sent.header, body + b"\0"), MalformedPayloadError, "a payload and a byte"
            )

    def check_bodies(self, step: int, rng: random.Random) -> None:
        """Bodies that are no encoder's, under a header that fits them."""
        body = self._recorded[step].body
        assert isinstance(body, bytes)
        for length in _lengths(len(body)):
            self.must_refuse(
                self.worker_before(step), step, self._labelled(step, body[:length]), CodecError, "a body cut off"
            )
        self.must_refuse(
            self.worker_before(step), step, self._labelled(step, body + b"\0"), CodecError, "a body and a byte"
        )
        for what, damaged in damages(body, rng):
            self.must_do_no_harm(step, damaged, what)

    def _labelled(self, step: int, body: bytes) -> Sent:
        return Sent(pack_header(PLAN, codec_id(self._codec.name), 0, step, body), body)

    def _where(self, step: int) -> str:
        return f"payload {step}"


def damages(body: bytes, rng: random.Random, number: int = 15) -> Iterator[tuple[str, bytes]]:
    """Damaged forms of ``body``, each with what was done to it."""
    kinds: list[tuple[str, Callable[[bytes, int], bytes]]] = [
        ("a flipped bit", lambda b, i: _with(b, i, bytes([b[i] ^ 1 << rng.randrange(8)]))),
        ("another byte", lambda b, i: _with(b, i, rng.randbytes(1))),
        ("a byte of ones", lambda b, i: _with(b, i, b"\xff")),
        ("a huge length", lambda b, i: _with(b, i, b"\xff\xff\xff\x7f")),
        ("the largest length", lambda b, i: _with(b, i, b"\xff\xff\xff\xff")),
        ("a huge MessagePack array", lambda b, i: _with(b, i, b"\xdd\x7f\xff\xff\xff")),
        ("a huge MessagePack string", lambda b, i: _with(b, i, b"\xdb\x7f\xff\xff\xff")),
        ("a byte too few", lambda b, i: b[:i] + b[i + 1 :]),
        ("a byte too many", lambda b, i: b[:i] + rng.randbytes(1) + b[i:]),
        ("garbage", lambda b, _: rng.randbytes(rng.randrange(2 * len(b) + 2))),
        ("garbage after a true beginning", lambda b, i: b[:i] + rng.randbytes(len(b) - i)),
    ]
    for what, damage in kinds:
        for _ in range(number if body else 1):
            yield what, damage(body or b"\0", rng.randrange(len(body or b"\0")))


def _with(body: bytes, at: int, part: bytes) -> bytes:
    """``body`` with ``part`` written over it, not longer than before."""
    return (body[:at] + part + body[at + len(part) :])[: len(body)]


def _lengths(length: int) -> list[int]:
    """Lengths below ``length``: all of them, or of a long body the first, the last and some between."""
    if length <= 160:
        return list(range(length))
    return sorted({*range(64), *range(64, length - 32, length // 32), *range(length - 32, length)})
