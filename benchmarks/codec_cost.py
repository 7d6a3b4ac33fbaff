"""What one steady decode step costs in each codec: microseconds of its four calls, and bytes.

It does not know the engine or a transport: a table, an encoder and a decoder in one process. For a first look at a
change; what counts is `serbench compare`.

    python -m benchmarks.codec_cost --batch 256 --context 512
"""

import statistics
import time
from collections.abc import Iterator
from itertools import pairwise

import click
import numpy as np

from serbench_codecs.codec import HEADER_BYTES, Codec
from serbench_codecs.errors import UnknownCodecError
from serbench_codecs.plan import (
    NO_ADMISSIONS,
    NO_ROWS,
    NO_WRITES,
    SAMPLING_DTYPE,
    Admissions,
    Int32Array,
    Ragged,
    StepPlan,
    Writes,
)
from serbench_codecs.registry import CODECS, get_codec
from serbench_codecs.table import RequestTable, TableLimits

BLOCK_SIZE = 16
SPECS = [
    f"{name}:{key}={value}" if value != values[0] else name
    for name, family in CODECS.items()
    for key, values in (family.options or {"": ("",)}).items()
    for value in values
]


class SteadyDecode:
    """The plans of a batch that only decodes; a sixteenth of its rows gets a block in each step."""

    def __init__(self, batch: int, context: int, steps: int) -> None:
        max_model_len = context + BLOCK_SIZE + steps + 1
        max_blocks = -(-max_model_len // BLOCK_SIZE)
        self.limits = TableLimits(batch, max_model_len, BLOCK_SIZE, batch * max_blocks, 50_000)
        self.table = RequestTable(self.limits)
        self._batch = batch
        self._context = context
        self._steps = steps
        self._rows = np.arange(batch, dtype=np.int32)
        self._ones = np.ones(batch, dtype=np.int32)
        self._free_block = 0

    def plans(self) -> Iterator[StepPlan]:
        """An admission of everything with its whole prefill, then ``steps`` decode steps."""
        yield self._admission()
        rng = np.random.default_rng(1)
        for step in range(1, self._steps + 1):
            ids = rng.integers(0, self.limits.vocab_size, self._batch, dtype=np.int32)
            starts = self.table.num_tokens[self._rows]
            self.table.append_sampled(self._rows, ids)
            yield StepPlan(
                step,
                0,
                NO_ROWS,
                NO_ADMISSIONS,
                self._blocks(),
                Writes(self._rows, starts, self._ones, ids),
                self._rows,
                self._ones,
            )

    def _admission(self) -> StepPlan:
        lengths = self._context + self._rows % BLOCK_SIZE
        rng = np.random.default_rng(0)
        sampling = np.zeros(self._batch, dtype=SAMPLING_DTYPE)
        sampling["seed"] = rng.integers(0, 1 << 63, self._batch)
        admitted = Admissions(
            self._rows,
            np.arange(1, self._batch + 1),
            [f"request-{row}" for row in self._rows],
            lengths,
            np.zeros(self._batch, dtype=np.int32),
            Ragged.of([rng.integers(0, self.limits.vocab_size, n, dtype=np.int32) for n in lengths]),
            Ragged.of([self._take(-(-int(n) // BLOCK_SIZE)) for n in lengths]),
            sampling,
            Ragged.of([[2]] * self._batch),
        )
        self.table.admit(admitted)
        return StepPlan(0, 0, NO_ROWS, admitted, NO_WRITES, NO_WRITES, self._rows, lengths)

    def _blocks(self) -> Writes:
        """A block for each row whose last token needs one."""
        rows = np.flatnonzero(self.table.num_blocks * BLOCK_SIZE < self.table.num_tokens).astype(np.int32)
        if not len(rows):
            return NO_WRITES
        writes = Writes(rows, self.table.num_blocks[rows], self._ones[: len(rows)], self._take(len(rows)))
        self.table.write_blocks(writes)
        return writes

    def _take(self, number: int) -> Int32Array:
        self._free_block += number
        return np.arange(self._free_block - number, self._free_block, dtype=np.int32)


def measure(codec: Codec, batch: int, context: int, steps: int) -> list[float]:
    """Medians over the decode steps: µs of adapt, encode, decode and adapt, then bytes with the header,
    0 where plans are handed over by reference.
    """
    steady = SteadyDecode(batch, context, steps)
    encoder, decoder = codec.ends(steady.limits)
    samples = []
    for plan in steady.plans():
        times = [time.perf_counter_ns()]
        objects = encoder.adapt(plan, steady.table)
        times.append(time.perf_counter_ns())
        body = encoder.encode(objects)
        payload = body if isinstance(body, StepPlan) else memoryview(bytes(body))  # type: ignore[arg-type]
        times.append(time.perf_counter_ns())
        received = decoder.decode(payload)  # type: ignore[arg-type]
        times.append(time.perf_counter_ns())
        decoder.adapt(received)
        times.append(time.perf_counter_ns())
        payload_bytes = 0 if isinstance(payload, StepPlan) else HEADER_BYTES + len(payload)
        samples.append([(end - begin) / 1e3 for begin, end in pairwise(times)] + [float(payload_bytes)])
        steady.table.advance(plan)
    return [statistics.median(column) for column in zip(*samples[1:], strict=True)]


@click.command()
@click.option("--batch", type=click.IntRange(1), default=256, show_default=True, help="Requests that decode.")
@click.option("--context", type=click.IntRange(1), default=512, show_default=True, help="Tokens of the shortest one.")
@click.option("--steps", type=click.IntRange(1), default=200, show_default=True, help="Decode steps measured.")
@click.argument("codecs", nargs=-1)
def main(batch: int, context: int, steps: int, codecs: tuple[str, ...]) -> None:
    """Measure what a steady decode step costs in each of CODECS (default: all, with each option)."""
    try:
        chosen = {spec: get_codec(spec) for spec in codecs or SPECS}
    except UnknownCodecError as error:
        raise click.UsageError(str(error)) from None
    columns = ("adapt µs", "encode µs", "decode µs", "adapt µs", "bytes")
    print(f"{'codec':24}" + "".join(f"{column:>11}" for column in columns))
    for spec, codec in chosen.items():
        figures = measure(codec, batch, context, steps)
        print(f"{spec:24}" + "".join(f"{figure:11.1f}" for figure in figures[:-1]) + f"{figures[-1]:11,.0f}")


if __name__ == "__main__":
    main(prog_name="python -m benchmarks.codec_cost")
