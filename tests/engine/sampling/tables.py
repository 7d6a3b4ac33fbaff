"""Request tables for sampling tests: rows with given ids and parameters. It knows no sampler."""

from collections.abc import Sequence

import numpy as np

from serbench_codecs.plan import Int32Array
from serbench_codecs.table import RequestTable, TableLimits

DEFAULTS = {"top_p": 1.0, "repetition_penalty": 1.0, "num_logprobs": -1}


def make_table(rows: int, vocab_size: int, length: int = 64) -> RequestTable:
    """A table whose rows have serials 1 … and greedy parameters, one prompt token and no output."""
    table = RequestTable(TableLimits(rows, length, 16, rows * length, vocab_size))
    table.serial[:] = np.arange(1, rows + 1)
    for name, value in DEFAULTS.items():
        table.sampling[name] = value
    table.num_prompt_tokens[:] = 1
    table.num_tokens[:] = 1
    return table


def set_ids(table: RequestTable, row: int, prompt: Sequence[int], output: Sequence[int] = ()) -> None:
    ids = [*prompt, *output]
    table.token_ids[row, : len(ids)] = ids
    table.num_prompt_tokens[row] = len(prompt)
    table.num_tokens[row] = len(ids)


def set_parameters(table: RequestTable, row: int, **parameters: float) -> None:
    for name, value in parameters.items():
        table.sampling[name][row] = value


def all_rows(table: RequestTable) -> Int32Array:
    return np.arange(len(table.serial), dtype=np.int32)
