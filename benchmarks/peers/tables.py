"""Markdown tables for the scripts of this folder. It does not know what is in them."""

from collections.abc import Sequence

from serbench.stats import Finding


def markdown(head: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """A table; all columns but the first are right-aligned."""
    lines = [head, [":--"] + ["--:"] * (len(head) - 1), *rows]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def ratio(finding: Finding, digits: int = 2) -> str:
    """``1.23 (1.20–1.26)``; the interval only where there are repeats enough for one."""
    text = f"{finding.ratio:.{digits}f}"
    if finding.low is None or finding.high is None:
        return text
    return f"{text} ({finding.low:.{digits}f}–{finding.high:.{digits}f})"


def as_part(finding: Finding) -> str:
    """A ratio far below 1 as ``1/43 (1/45–1/41)``."""
    text = f"1/{1 / finding.ratio:.1f}"
    if finding.low is None or finding.high is None:
        return text
    return f"{text} (1/{1 / finding.low:.1f}–1/{1 / finding.high:.1f})"
