"""A request's text while it grows, one id at a time, and the stop strings in it.

It does not know why ids come or what becomes of a request that stops. An id costs time in proportion to its own bytes.
"""

from collections.abc import Sequence
from encodings.utf_8 import IncrementalDecoder

from serbench_engine.text.tokenizer import Tokenizer


class Detokenizer:
    """Puts an output's text together. A character appears only when it is complete.

    ``text`` is what there is so far; it ends with, or before, the stop string that ended it. Of stop strings the one
    that is complete first counts, of several the longest: how the text is cut into tokens changes nothing. A space that
    an output begins with stays: it stands between the prompt and the output.
    """

    def __init__(
        self, tokenizer: Tokenizer, stop: Sequence[str] = (), *, include_stop_str_in_output: bool = False
    ) -> None:
        self._tokenizer = tokenizer
        self._stop = tuple(stop)
        self._include = include_stop_str_in_output
        self._decoder = IncrementalDecoder(errors="replace")
        self._parts: list[str] = []
        self._keep = max((len(one) for one in self._stop), default=1) - 1
        self._tail = ""  # the last characters, in which a stop string may have begun

    @property
    def text(self) -> str:
        """The complete characters so far."""
        if len(self._parts) > 1:
            self._parts = ["".join(self._parts)]
        return self._parts[0] if self._parts else ""

    def append(self, token_id: int, *, may_stop: bool = True) -> str | None:
        """Take the next id; the stop string that it completed, None if there is none.

        ``may_stop`` off: a stop string that is complete with this id doesn't count (min_tokens). After a stop string
        nothing more may be appended.
        """
        return self._take(self._decoder.decode(self._tokenizer.id_to_bytes(token_id)), may_stop)

    def finish(self) -> str | None:
        """The output has ended: a character that is still incomplete becomes U+FFFD. Returns as ``append`` does."""
        return self._take(self._decoder.decode(b"", final=True), may_stop=True)

    def _take(self, new: str, may_stop: bool) -> str | None:
        if not new:
            return None
        window = self._tail + new
        found = self._first_stop(window) if self._stop and may_stop else None
        self._parts.append(new)
        if found is None:
            self._tail = window[-self._keep :] if self._keep else ""
            return None
        start, stop = found
        surplus = len(window) - (start + (len(stop) if self._include else 0))
        self._parts = [self.text[: len(self.text) - surplus]]
        return stop

    def _first_stop(self, window: str) -> tuple[int, str] | None:
        """(start, stop string) of the one that ends first; of those that end there, of the longest."""
        found = [(start + len(stop), start, stop) for stop in self._stop if (start := window.find(stop)) >= 0]
        if not found:
            return None
        _, start, stop = min(found)
        return start, stop
