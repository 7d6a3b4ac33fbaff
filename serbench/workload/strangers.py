"""Names files that hold no requests: results of benchmarks, models' files, runs of our own. It does not read formats.

Without it such a file would be taken for prompts where it is text, or be refused with a list of its keys.
"""

import re
from collections.abc import Mapping
from pathlib import PurePath
from typing import Any, Final

_TEXTS: Final[tuple[tuple[re.Pattern[str], str], ...]] = (
    (re.compile(r"#version: "), "a tokenizer's merges"),
    (re.compile(r"(?m)^(goos: \w|Benchmark\w+\S*\s+\d+\s+[\d.]+ ns/op)"), "results of a Go benchmark"),
    (re.compile(r"version https://git-lfs"), "a Git LFS pointer, in place of the file itself"),
    (re.compile(r"\s*<(!doctype|html|\?xml)", re.IGNORECASE), "a web page or XML"),
)
_SUFFIXES: Final = {".json": "JSON", ".jsonl": "JSON lines", ".csv": "CSV", ".tsv": "a table"}

_OBJECTS: Final[tuple[tuple[frozenset[str], str], ...]] = (
    (frozenset({"schema", "repeats"}), "a run stored by serbench"),
    (frozenset({"benchmarks", "machine_info"}), "results of pytest-benchmark"),
    (frozenset({"benchmarks", "context"}), "results of Google Benchmark"),
    (frozenset({"benchmarks", "version"}), "results of pyperf"),
    (frozenset({"benchmarks"}), "results of a benchmark"),
    (frozenset({"name", "unit", "value"}), "results for github-action-benchmark"),
    (frozenset({"avg_latency", "latencies"}), "results of vLLM's benchmark"),
    (frozenset({"elapsed_time", "num_requests"}), "results of vLLM's benchmark"),
    (frozenset({"model_type"}), "a model's configuration"),
    (frozenset({"transformers_version"}), "a model's configuration"),
    (frozenset({"tokenizer_class"}), "a tokenizer's configuration"),
    (frozenset({"eos_token", "unk_token"}), "a tokenizer's configuration"),
)
_HEAD: Final = 20_000
_VOCABULARY: Final = 200


def known_stranger(name: str, text: str, item: Any = None) -> str | None:
    """What a file is that is in no format: told by its first object ``item``, or by its ``text`` and name.

    None: nothing speaks against plain text.
    """
    if item is not None:
        return _object(item)
    for pattern, what in _TEXTS:
        if pattern.search(text[:_HEAD]) if pattern.pattern.startswith("(?m)") else pattern.match(text):
            return what
    suffix = PurePath(name.removesuffix(".gz")).suffix.lower()
    if suffix in _SUFFIXES:
        return f"not {_SUFFIXES[suffix]} in any known format, as its name {name} says"
    return None


def _object(item: Any) -> str:
    if not isinstance(item, dict):
        return f"a row that is no object but {_short(item)}"
    if len(item) >= _VOCABULARY and all(isinstance(value, int) for value in item.values()):
        return "a tokenizer's vocabulary"
    for keys, what in _OBJECTS:
        if keys <= item.keys():
            return what
    if _is_hyperfine(item):
        return "results of hyperfine"
    return f"an object with the keys {', '.join(map(_short, list(item)[:5]))}" if item else "an object without keys"


def _is_hyperfine(item: Mapping[str, Any]) -> bool:
    results = item.get("results")
    return isinstance(results, list) and bool(results) and isinstance(results[0], dict) and "command" in results[0]


def _short(value: Any) -> str:
    return str(value)[:40]
