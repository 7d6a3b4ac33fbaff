"""The format of a stored run, ``serbench/run/1``, and its reading and writing. It does not know how figures are taken.

results/README.md documents the format and its history; fields are only ever added within one version.
"""

import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Final, Literal

import msgspec

from serbench.documents import decode_json
from serbench.environment import Environment
from serbench.errors import ExperimentError, NotWrittenError, ResultsError
from serbench.experiment import Experiment
from serbench.files import write_atomically
from serbench.paths import kind_of, names_in, unreadable
from serbench.plausible import implausible

SCHEMA: Final = "serbench/run/1"

LATENCY_PERCENTS: Final = (0, 1, 5, 10, 25, 50, 75, 90, 95, 99, 100)
"""The percentiles that ``latency_quantiles_s`` holds, in this order."""

MODEL_PHASES: Final = ("forward", "sample")
"""The model's own; all others are host time."""


class PhaseTimes(msgspec.Struct, frozen=True):
    """One phase over a repeat's steps, in µs. ``total`` is the sum."""

    p50: float
    p99: float
    mean: float
    total: float


class Bytes(msgspec.Struct, frozen=True):
    """Payload bytes a step, header included, over a repeat's steps."""

    p50: float
    max: int
    mean: float
    total: int


class PayloadBytes(msgspec.Struct, frozen=True):
    """What crossed: plans to one worker, results back."""

    plan: Bytes
    result: Bytes


class Latency(msgspec.Struct, frozen=True):
    """One latency over a repeat's requests, in s."""

    p50: float
    p99: float
    mean: float


class Latencies(msgspec.Struct, frozen=True):
    """Time to the first token and to the end, both from arrival; time per output token after the first.

    ``tpot`` is None where no request produced two tokens, all are None where none produced one.
    """

    ttft: Latency | None
    tpot: Latency | None
    e2e: Latency | None


class BatchSizes(msgspec.Struct, frozen=True):
    """Requests that ran in a step, over a repeat's steps."""

    p50: float
    max: int
    mean: float


class ArrivalFigures(msgspec.Struct, frozen=True):
    """How requests came, over a repeat: those a second that were to arrive, and that really were handed to the engine;
    None where all came at once. ``late_s``: from when a request was to arrive until it was handed over.
    """

    offered_per_s: float | None
    achieved_per_s: float | None
    late_s: Latency


class CpuSeconds(msgspec.Struct, frozen=True):
    """User and system time of the scheduler's process, and of all workers together (0 where they share its process)."""

    scheduler: float
    workers: float


class Repeat(msgspec.Struct, frozen=True, kw_only=True):
    """One timed pass. ``group`` says which prompts it had; ``order`` its turn among all passes of the session.

    ``wall_s`` from the first request added to the last one finished; the rates are over it. ``input_tokens`` and
    ``output_tokens`` are those really taken and produced by finished requests. ``host_us_per_step``: mean of the step
    less forward and sample. ``peak_rss_bytes``: of each process since it began. ``cached_tokens``: found in the prefix
    cache by requests that were admitted, so not computed. ``batch_sizes``, ``arrivals`` and ``cached_tokens`` are None
    and ``latency_quantiles_s`` (by latency, in s at each of LATENCY_PERCENTS) empty in runs stored before there were
    these fields.

    Raises:
        ValueError: the model's phases, which are not host time, are not among ``phases_us``.
    """

    group: int
    order: int
    outputs_digest: str
    wall_s: float
    requests_per_s: float
    output_tokens_per_s: float
    total_tokens_per_s: float
    steps: int
    phases_us: dict[str, PhaseTimes]
    host_us_per_step: float
    payload_bytes: PayloadBytes
    latency_s: Latencies
    cpu_s: CpuSeconds
    preemptions: int
    input_tokens: int
    output_tokens: int
    batches_digest: str
    recoveries: int = 0
    first_refusal: str = ""
    peak_rss_bytes: list[int] = []
    batch_sizes: BatchSizes | None = None
    latency_quantiles_s: dict[str, list[float]] = {}
    arrivals: ArrivalFigures | None = None
    cached_tokens: int | None = None

    def __post_init__(self) -> None:
        missing = [name for name in MODEL_PHASES if name not in self.phases_us]
        if missing:
            raise ValueError(f"repeat {self.group} has no phase {' and no phase '.join(missing)}")

    @property
    def host_us_without_adapt(self) -> float | None:
        """``host_us_per_step`` less what turns columns into a codec's own objects and back; None where that was not
        measured.
        """
        adapt = self.phases_us.get("adapt")
        return None if adapt is None else self.host_us_per_step - adapt.mean


class WeightsInfo(msgspec.Struct, frozen=True):
    """Which weights ran; runs with different fingerprints are never compared.

    ``kind``: of the files that were loaded. ``origin``: what those were made of here, None where they are as published.
    """

    kind: Literal["safetensors", "bin", "gguf", "dummy", "sim"]
    fingerprint: str
    origin: str | None = None


class TokenizerInfo(msgspec.Struct, frozen=True):
    """How text became tokens: a folder's tokenizer, or bytes as tokens."""

    kind: Literal["folder", "bytes"]
    path: str | None = None


class Spread(msgspec.Struct, frozen=True):
    """One figure over the repeats."""

    median: float
    mean: float
    min: float
    max: float


class Run(msgspec.Struct, frozen=True, kw_only=True):
    """An experiment with its repeats. ``session`` is shared by runs that were measured interleaved.

    ``created`` is UTC, ISO 8601. The digests are over the repeats' own, in order of group. ``summary`` has a Spread
    for each figure that is one number a repeat. ``without_kernels``: why the engine's C++ kernels were not used, which
    makes a model slower; empty where they were, or where the model is simulated.
    """

    schema: str = SCHEMA
    id: str
    session: str
    created: str
    spec: Experiment
    environment: Environment
    weights: WeightsInfo
    tokenizer: TokenizerInfo
    without_kernels: str = ""
    repeats: list[Repeat]
    outputs_digest: str
    batches_digest: str
    summary: dict[str, Spread]
    warnings: list[str]


class _SchemaOnly(msgspec.Struct):
    schema: str | None = None


def encode_run(run: Run) -> bytes:
    """The document as indented JSON with a final newline."""
    return msgspec.json.format(msgspec.json.encode(run), indent=2) + b"\n"


def store_run(run: Run, folder: Path) -> Path:
    """Write ``run`` to ``folder``/id.json, replacing an earlier state of it at once or not at all; its path.

    Raises:
        NotWrittenError: it can't be written.
    """
    path = folder / f"{run.id}.json"
    try:
        write_atomically(path, encode_run(run))
    except OSError as error:
        raise NotWrittenError(f"{path} can't be written: {error.strerror}") from error
    return path


def check_writable(folder: Path) -> None:
    """Find out before measuring whether results can be stored.

    Raises:
        ResultsError: they can't.
    """
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=folder):
            pass
    except OSError as error:
        raise ResultsError(
            f"results can't be written to {folder}: {error.strerror}; --output chooses another"
        ) from error


def read_run(path: Path) -> Run:
    """Read a stored run.

    Raises:
        ResultsError: it isn't there, is no JSON, of another schema, or has impossible figures; says which.
    """
    try:
        data = path.read_bytes()
    except OSError as error:
        raise unreadable(path, error) from error
    try:
        schema = decode_json(data, _SchemaOnly).schema
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise ResultsError(f"{path} is no stored run: {error}") from error
    if schema != SCHEMA:
        raise ResultsError(f"{path}: its schema is {schema!r}, this serbench reads {SCHEMA!r}")
    try:
        run = decode_json(data, Run)
    except (msgspec.ValidationError, UnicodeDecodeError, ExperimentError) as error:
        raise ResultsError(f"{path} does not hold what {SCHEMA} says: {error}") from error
    for name, value in _impossible(run):
        raise ResultsError(f"{path} has figures that can't have been measured: {name} is {value}")
    return run


def _impossible(run: Run) -> Iterator[tuple[str, object]]:
    """Figures that can't be, each with where it is."""
    groups = [repeat.group for repeat in run.repeats]
    for i, repeat in enumerate(run.repeats):
        if repeat.steps == 0:
            yield f"repeats[{i}].steps", 0
        if repeat.group in groups[:i]:
            yield f"repeats[{i}].group", f"{repeat.group}, as that of another"
    for name in ("repeats", "summary"):
        yield from implausible(msgspec.to_builtins(getattr(run, name)), name)


def find_run(name: str, folder: Path) -> Path:
    """The file of a run given as a path, as an id in ``folder``, or as the only id there that begins so.

    Raises:
        ResultsError: none or more than one; names some that are there. Or it can't be looked for.
    """
    if kind_of(Path(name)) == "file":
        return Path(name)
    ids = [one.removesuffix(".json") for one in names_in(folder) if one.endswith(".json") and not one.startswith(".")]
    matches = [one for one in ids if one == name] or [one for one in ids if one.startswith(name)]
    if len(matches) == 1:
        return folder / f"{matches[0]}.json"
    if matches:
        raise ResultsError(f"{name} is the beginning of {len(matches)} runs in {folder}: {_some(matches)}")
    there = f"the latest there: {_some(ids[-3:])}" if ids else "there are none yet"
    raise ResultsError(f"{name} is neither a file nor a run in {folder}; {there}")


def _some(ids: Sequence[str]) -> str:
    return ", ".join(ids[:5]) + (", …" if len(ids) > 5 else "")
