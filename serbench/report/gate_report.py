"""Shows the outcome of a check: for a terminal, as Markdown, and as github-action-benchmark reads it.

It does not know how gates are judged.
"""

import json
from collections.abc import Sequence
from typing import Final

from rich.box import SIMPLE_HEAD
from rich.console import Group, RenderableType
from rich.padding import Padding
from rich.text import Text

from serbench.gates.judging import Gate, Outcome
from serbench.gates.metrics import Value
from serbench.report.figures import counted
from serbench.report.folding_table import FoldingTable

STYLES: Final = {"failed": "red", "not confirmed": "yellow", "better": "green", "passed": ""}
COLUMNS: Final = ("codec", "metric", "baseline", "measured", "change", "tolerance", "state")


def gate_report(outcome: Outcome) -> RenderableType:
    """The verdict and every gate that did not simply pass."""
    lines = [gate for gate in outcome.gates if gate.state != "passed"]
    table = FoldingTable(box=SIMPLE_HEAD, show_edge=False, padding=(0, 1))
    for i, name in enumerate(COLUMNS):
        table.add_column(name, justify="left" if i < 2 else "right", overflow="fold")
    for gate in lines:
        table.add_row(*_cells(gate)[:-1], Text(_state(gate), STYLES[gate.state]))
    heading = Text(verdict(outcome), "bold green" if outcome.passed else "bold red")
    return Group(Padding(heading, (1, 0, 1, 1)), *([table] if lines else []))


def verdict(outcome: Outcome) -> str:
    """The outcome in a line."""
    failed = sum(gate.state == "failed" for gate in outcome.gates)
    held = f"{len(outcome.gates) - failed} of {counted(len(outcome.gates), 'gate')} hold"
    measured = "" if outcome.measurements == 1 else ", after a second measurement"
    without = "" if outcome.times else "; times were not gated"
    return f"check {outcome.name}: {'passed' if outcome.passed else 'FAILED'}: {held}{measured}{without}"


def markdown(outcome: Outcome) -> str:
    """A summary for a pull request: what did not simply pass, and all gates folded away."""
    special = [gate for gate in outcome.gates if gate.state != "passed"]
    parts = [f"### serbench {verdict(outcome)}\n"]
    if special:
        parts.append(_markdown_table(special))
    if any(gate.state == "better" for gate in special):
        parts.append("What is better is not held yet: `serbench check --update` makes it the baseline.\n")
    parts.append(f"<details><summary>All gates</summary>\n\n{_markdown_table(outcome.gates)}\n</details>\n")
    return "\n".join(parts)


def _markdown_table(gates: Sequence[Gate]) -> str:
    rows = [COLUMNS, ("---", "---", *(["---:"] * 4), "---")]
    rows += [(*_cells(gate)[:-1], f"**{_state(gate)}**" if gate.state == "failed" else _state(gate)) for gate in gates]
    return "".join(f"| {' | '.join(cell.replace('|', chr(92) + '|') for cell in row)} |\n" for row in rows)


def github_benchmark_json(outcome: Outcome) -> str:
    """What github-action-benchmark's ``customSmallerIsBetter`` reads: an array of name, unit, value, range and extra.

    Only figures of which less is better: tokens and outputs must be equal, so a chart of them says nothing.
    """
    entries = []
    for gate in outcome.gates:
        if gate.kind == "equal":
            continue
        entry = {"name": f"{outcome.name}: {gate.codec} {gate.metric}", "unit": gate.unit, "value": gate.measured}
        if gate.low is not None and gate.high is not None:
            entry["range"] = f"{gate.low:.3f} to {gate.high:.3f}"
        entry["extra"] = f"baseline {gate.baseline}, tolerance {gate.tolerance:.0%}, {_state(gate)}"
        entries.append(entry)
    return json.dumps(entries, indent=2, ensure_ascii=False) + "\n"


def _cells(gate: Gate) -> list[str]:
    """One for each of COLUMNS."""
    change = "" if gate.change is None else f"{gate.change:+.2%}" if gate.kind != "ratio" else f"{gate.change:+.0%}"
    return [
        gate.codec,
        gate.metric.replace("_", " "),
        _value(gate.baseline, gate.kind == "ratio"),
        _value(gate.measured, gate.kind == "ratio"),
        change,
        f"{gate.tolerance:.0%}",
        _state(gate),
    ]


def _state(gate: Gate) -> str:
    if gate.again is None:
        return gate.state
    return f"{gate.state} ({_value(gate.again, gate.kind == 'ratio')} the second time)"


def _value(value: Value, is_ratio: bool) -> str:
    if isinstance(value, str):
        return value[:8]
    return f"{value:.3f}" if is_ratio else f"{value:,}"
