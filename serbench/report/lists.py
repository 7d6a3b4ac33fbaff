"""The tables of what there is: codecs, models, the doctor's findings. It does not know how they came about."""

from collections.abc import Sequence
from typing import Final

from rich.box import SIMPLE_HEAD
from rich.table import Table
from rich.text import Text

from serbench.doctor import Finding
from serbench.report.folding_table import FoldingTable
from serbench_codecs.codec import Traits
from serbench_codecs.registry import CodecInfo
from serbench_engine.models.known import KnownModel

SIGNS: Final = {"fine": ("✓", "green"), "care": ("!", "yellow"), "wrong": ("✗", "red")}


def codecs_table(codecs: Sequence[CodecInfo]) -> Table:
    """One codec a block: what it is, its options (the default first), its traits."""
    table = FoldingTable(box=SIMPLE_HEAD, show_edge=False)
    table.add_column("codec", no_wrap=True, style="bold")
    table.add_column("sends", no_wrap=True)
    table.add_column("what it is")
    for codec in codecs:
        lines = [codec.description]
        lines += [f"{codec.name}:{key}={'|'.join(values)}" for key, values in codec.options.items()]
        if codec.traits is not None:
            lines.append(_traits(codec.traits))
        what = Text("\n".join(lines))
        what.stylize("dim", len(codec.description))
        table.add_row(codec.name, codec.traits.sends if codec.traits else "?", what)
    return table


def _traits(traits: Traits) -> str:
    return ", ".join(
        (
            "sampled ids travel" if traits.sampled_ids_travel else "sampled ids stay",
            "its ends remember" if traits.remembers else "each payload stands alone",
            "decoding can execute code" if traits.trusted_only else "decoding is safe",
            f"results {traits.result_format}",
        )
    )


def models_table(models: Sequence[KnownModel]) -> Table:
    """One model a row."""
    table = FoldingTable(box=SIMPLE_HEAD, show_edge=False)
    table.add_column("model", no_wrap=True, style="bold")
    for name in ("layers", "hidden", "parameters"):
        table.add_column(name, justify="right", no_wrap=True)
    table.add_column("weights")
    for model in models:
        sizes = (str(model.layers), str(model.hidden), _parameters(model.parameters)) if model.config else ("", "", "")
        table.add_row(model.name, *sizes, model.source)
    return table


def _parameters(number: int) -> str:
    return f"{number / 1e9:.1f} B" if number >= 1e9 else f"{number / 1e6:.0f} M"


def findings_table(findings: Sequence[Finding]) -> Table:
    """What the doctor found, a sign for each, advice below."""
    table = FoldingTable(box=SIMPLE_HEAD, show_edge=False, show_header=False)
    table.add_column(no_wrap=True)
    table.add_column(no_wrap=True, style="bold")
    table.add_column()
    for finding in findings:
        sign, style = SIGNS[finding.state]
        text = Text(finding.found)
        if finding.advice:
            text.append(f"\n{finding.advice}", style)
        table.add_row(Text(sign, style), finding.what, text)
    return table
