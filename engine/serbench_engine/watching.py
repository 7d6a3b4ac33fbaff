"""Watches the outputs of requests with stop strings or stop ids of their own, and cuts a finished output's text.

It does not know how a request ends once it is told (the scheduler's business) nor how text is put together.
"""

from collections.abc import Callable, Sequence

from serbench_engine.errors import RequestError
from serbench_engine.request import SamplingParams
from serbench_engine.text.detokenizer import Detokenizer
from serbench_engine.text.tokenizer import Tokenizer
from serbench_engine.tracked import OutputWatch


class StopWatch:
    """Looks for the stop ids and stop strings of one request; neither counts before ``min_tokens`` ids."""

    def __init__(self, params: SamplingParams, tokenizer: Tokenizer | None) -> None:
        self._stop_token_ids = frozenset(params.stop_token_ids)
        self._min_tokens = params.min_tokens
        self._detokenizer = _detokenizer(tokenizer, params) if tokenizer and params.stop else None
        self._seen = 0

    def push(self, token_id: int) -> str | int | None:
        """Take the next id; the stop string or id that ends the request."""
        may_stop = self._seen >= self._min_tokens
        self._seen += 1
        found = None if self._detokenizer is None else self._detokenizer.append(token_id, may_stop=may_stop)
        if may_stop and token_id in self._stop_token_ids:
            return token_id
        return found


def watch_maker(tokenizer: Tokenizer | None) -> Callable[[SamplingParams], OutputWatch | None]:
    """What an Engine asks for each request's watch; it gets None where the vectorised stop checks suffice."""

    def watch_for(params: SamplingParams) -> OutputWatch | None:
        if params.stop and tokenizer is None:
            raise RequestError("stop strings need a tokenizer; this engine was made without one")
        return StopWatch(params, tokenizer) if params.stop or params.stop_token_ids else None

    return watch_for


def output_text(tokenizer: Tokenizer, token_ids: Sequence[int], params: SamplingParams) -> str:
    """The text of a finished output, cut at the stop string that ended it."""
    detokenizer = _detokenizer(tokenizer, params)
    for index, token_id in enumerate(token_ids):
        if detokenizer.append(token_id, may_stop=index >= params.min_tokens) is not None:
            return detokenizer.text
    detokenizer.finish()
    return detokenizer.text


def _detokenizer(tokenizer: Tokenizer, params: SamplingParams) -> Detokenizer:
    return Detokenizer(tokenizer, params.stop, include_stop_str_in_output=params.include_stop_str_in_output)
