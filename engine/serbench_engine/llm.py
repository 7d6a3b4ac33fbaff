"""The offline API: load a model, give it prompts, get texts back. Shaped like vLLM's, so that scripts carry over.

It does not know how a step is made; the step-wise Engine underneath is ``LLM.engine``.
"""

import contextlib
import os
import threading
import weakref
from collections.abc import Iterable, Iterator, Mapping, Sequence
from types import TracebackType
from typing import Any, Literal, Self, get_args, get_origin, get_type_hints

import msgspec
import numpy as np

from serbench_engine.config import EngineOptions, WorkerLimits, plan_memory
from serbench_engine.engine import Engine
from serbench_engine.errors import ConfigError, EngineError, RequestError
from serbench_engine.executor.base import WorkerSpec
from serbench_engine.executor.registry import check_executor, make_executor
from serbench_engine.models.catalogue import WeightsChoice, resolve_model
from serbench_engine.prompts import Prompt, read_prompts
from serbench_engine.request import CompletionOutput, FinishedRequest, Logprob, RequestOutput, SamplingParams
from serbench_engine.text.chat import load_chat_template
from serbench_engine.text.tokenizer import load_tokenizer
from serbench_engine.transport.wait import WaitKind
from serbench_engine.watching import output_text


class LLMConfig(msgspec.Struct, frozen=True, kw_only=True):
    """What an LLM can be told, as on the command line.

    By default the worker is another process and gets ``delta`` payloads through shared memory. ``dtype`` ``auto`` is
    float32; ``transport`` None follows the executor; ``wait``: how payloads are waited for (transport/wait.py).
    ``num_blocks`` None: as many as ``max_num_seqs`` full requests need, within ``kv_share`` of the free memory.
    ``step_timeout_s``: a worker that takes longer for a step counts as hung; loading the model has a limit of its own,
    600 s (START_TIMEOUT_S in executor/mp.py).
    """

    weights: WeightsChoice = "auto"
    tokenizer: str | None = None
    dtype: Literal["auto", "float32", "bfloat16", "float16"] = "auto"
    device: Literal["auto", "cpu"] = "auto"
    codec: str = "delta"
    result_format: str | None = None
    executor: Literal["mp", "inproc"] = "mp"
    transport: str | None = None
    wait: WaitKind = "auto"
    max_num_seqs: int = 256
    max_num_batched_tokens: int = 2048
    max_model_len: int | None = None
    block_size: int = 16
    num_blocks: int | None = None
    kv_share: float = 0.3
    enable_prefix_caching: bool = False
    seed: int = 0
    step_timeout_s: float = 120.0


class LLM:
    """A model behind an engine, alive until ``close`` (or the end of a ``with`` block).

    ``options`` are the fields of LLMConfig: ``LLM("smollm2-135m", codec="columnar", max_num_seqs=8)``.

    Raises:
        ConfigError: options that can't be (ModelError: the model can't be found or read).
    """

    def __init__(self, model: str | os.PathLike[str], **options: Any) -> None:
        config = _config(options)
        self.model = resolve_model(_name(model), weights=config.weights, tokenizer=config.tokenizer)
        self.tokenizer = load_tokenizer(self.model.tokenizer, vocab_size=self.model.config.vocab_size)
        dtype: Literal["float32", "bfloat16", "float16"] = "float32" if config.dtype == "auto" else config.dtype
        fits = plan_memory(
            self.model,
            dtype=dtype,
            block_size=config.block_size,
            num_blocks=config.num_blocks,
            max_model_len=config.max_model_len,
            max_num_seqs=config.max_num_seqs,
            max_num_batched_tokens=config.max_num_batched_tokens,
            kv_share=config.kv_share,
        )
        engine_options = _engine_options(config, fits)
        check_executor(config.executor, engine_options.transport)
        spec = WorkerSpec(
            model=self.model,
            dtype=dtype,
            device="cpu",
            block_size=config.block_size,
            num_blocks=fits.num_blocks,
            max_num_batched_tokens=config.max_num_batched_tokens,
            seed=config.seed,
        )
        workers = make_executor(config.executor, spec, step_timeout_s=config.step_timeout_s)
        self._end = weakref.finalize(self, workers.close)
        try:
            self.engine = Engine(workers, engine_options, self.model, self.tokenizer)
        except BaseException:
            self.close()
            raise
        self._served = 0
        self._entered = threading.Lock()

    def generate(
        self,
        prompts: Prompt | Iterable[Prompt],
        sampling_params: SamplingParams | Sequence[SamplingParams] | None = None,
        *,
        use_tqdm: bool = False,
    ) -> list[RequestOutput]:
        """Complete every prompt; the outputs are in the order of the prompts.

        ``prompts``: a text, token ids, a dictionary with ``prompt`` or ``prompt_token_ids``, or several of these.
        ``sampling_params``: one for all, or one each. ``use_tqdm`` is there for scripts that give it: no bar is drawn.

        Raises:
            RequestError: a prompt or parameters that can't be served; none of the call's prompts is run then.
            WorkerError: a worker died, raised or hangs. EngineError: closed, or called by two threads at once.
        """
        given = read_prompts(prompts)
        params = _as_params(sampling_params, len(given))
        with self._alone():
            ids = [self.tokenizer.encode(one.text or "") if one.token_ids is None else one.token_ids for one in given]
            names = [f"{self._served + i}" for i in range(len(given))]
            requests = list(zip(names, ids, params, strict=True))
            checked = [self.engine.check_request(*request) for request in requests]  # all before any is added
            self._served += len(given)
            for name, prompt, one in zip(names, checked, params, strict=True):
                self.engine.add_request(name, prompt, one)
            finished = self._run()
        return [
            self._output(finished[name], prompt.text, one)
            for name, prompt, one in zip(names, given, params, strict=True)
        ]

    def chat(
        self,
        messages: Sequence[Mapping[str, str]] | Sequence[Sequence[Mapping[str, str]]],
        sampling_params: SamplingParams | Sequence[SamplingParams] | None = None,
        *,
        use_tqdm: bool = False,
    ) -> list[RequestOutput]:
        """``generate`` for conversations, one or several, through the model's chat template.

        Raises:
            RequestError: the model has no chat template, or as ``generate`` does.
        """
        template = load_chat_template(self.model.tokenizer)
        if template is None:
            raise RequestError(f"{self.model.name} has no chat template; use generate with a prompt")
        many = [messages] if messages and isinstance(messages[0], Mapping) else messages
        texts = [template.render(one) for one in many]  # type: ignore[arg-type]
        return self.generate([self.tokenizer.encode(text, add_special_tokens=False) for text in texts], sampling_params)

    def close(self) -> None:
        """End the workers. Idempotent; also done when the LLM is collected or the interpreter exits."""
        self._end()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, where: TracebackType | None
    ) -> None:
        self.close()

    @contextlib.contextmanager
    def _alone(self) -> Iterator[None]:
        """Keep others out, who would run and get each other's requests."""
        if not self._end.alive:
            raise EngineError("this LLM is closed; make a new one")
        if not self._entered.acquire(blocking=False):
            raise EngineError("LLM is not thread-safe: another thread is in generate or chat; call them in turn")
        try:
            yield
        finally:
            self._entered.release()

    def _run(self) -> dict[str, FinishedRequest]:
        finished: dict[str, FinishedRequest] = {}
        while self.engine.has_unfinished:
            finished.update({one.request_id: one for one in self.engine.step().finished})
        return finished

    def _output(self, finished: FinishedRequest, prompt: str | None, params: SamplingParams) -> RequestOutput:
        token_ids = finished.output_token_ids.tolist()
        completion = CompletionOutput(
            index=0,
            text=output_text(self.tokenizer, token_ids, params),
            token_ids=token_ids,
            finish_reason=finished.finish_reason,
            stop_reason=finished.stop_reason,
            cumulative_logprob=_cumulative(token_ids, finished.logprobs),
            logprobs=self._decoded(finished.logprobs),
        )
        return RequestOutput(
            request_id=finished.request_id,
            prompt=prompt,
            prompt_token_ids=finished.prompt_token_ids.tolist(),
            outputs=[completion],
            finished=True,
            times=finished.times,
        )

    def _decoded(self, logprobs: list[dict[int, Logprob]] | None) -> list[dict[int, Logprob]] | None:
        if logprobs is None:
            return None
        return [
            {token: Logprob(one.logprob, one.rank, self.tokenizer.id_to_text(token)) for token, one in entries.items()}
            for entries in logprobs
        ]


def _name(model: object) -> str:
    """The model's name as a text."""
    name = os.fspath(model) if isinstance(model, os.PathLike) else model
    if not isinstance(name, str):
        raise ConfigError(f"the model is {model!r}; it must be a name or a folder's path, as a text or a Path")
    return name


def _config(options: dict[str, Any]) -> LLMConfig:
    """The options, checked by name and type."""
    unknown = [name for name in options if name not in LLMConfig.__struct_fields__]
    if unknown:
        raise ConfigError(f"LLM has no option {unknown[0]!r}; there are: {', '.join(LLMConfig.__struct_fields__)}")
    plain = {name: _plain(value) for name, value in options.items()}
    for name, hint in get_type_hints(LLMConfig).items():
        choices = get_args(hint) if get_origin(hint) is Literal else ()
        if choices and isinstance(plain.get(name), str) and plain[name] not in choices:
            raise ConfigError(f"LLM: {name} is {plain[name]!r}; it must be one of {', '.join(choices)}")
    try:
        return msgspec.convert(plain, LLMConfig)
    except msgspec.ValidationError as error:
        raise ConfigError(f"LLM: {error}") from None


def _plain(value: object) -> object:
    """Paths as texts and numbers of numpy as Python's, as scripts give them."""
    if isinstance(value, os.PathLike):
        return os.fspath(value)
    return value.item() if isinstance(value, np.generic) else value


def _engine_options(config: LLMConfig, fits: WorkerLimits) -> EngineOptions:
    return EngineOptions(
        codec=config.codec,
        result_format=config.result_format,
        transport=config.transport or ("shm" if config.executor == "mp" else "inproc"),
        max_num_seqs=config.max_num_seqs,
        max_num_batched_tokens=config.max_num_batched_tokens,
        max_model_len=fits.max_model_len,
        block_size=config.block_size,
        num_blocks=fits.num_blocks,
        enable_prefix_caching=config.enable_prefix_caching,
        seed=config.seed,
        wait=config.wait,
    )


def _cumulative(token_ids: list[int], logprobs: list[dict[int, Logprob]] | None) -> float | None:
    if logprobs is None:
        return None
    return sum(entries[token].logprob for token, entries in zip(token_ids, logprobs, strict=True))


def _as_params(params: SamplingParams | Sequence[SamplingParams] | None, count: int) -> list[SamplingParams]:
    if params is None:
        params = SamplingParams()
    if isinstance(params, SamplingParams):
        return [params] * count
    if not isinstance(params, Sequence):
        raise RequestError(f"sampling_params is {params!r}; give SamplingParams, or a list of one each")
    if len(params) != count:
        raise RequestError(f"{len(params)} sampling parameters for {count} prompts; give one, or one each")
    return list(params)
