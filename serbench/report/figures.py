"""Writes numbers for people: few digits, thousands grouped. It does not know what they measure."""


def figure(value: float) -> str:
    """Three or four significant digits: 0.123, 1.23, 12.3, 123, 1,234, 123,457."""
    size = abs(value)
    if size >= 100 or value == int(value):
        return f"{value:,.0f}"
    if size >= 10:
        return f"{value:.1f}"
    if size >= 1:
        return f"{value:.2f}"
    return f"{value:.3f}"


def seconds(value: float) -> str:
    """A time in the unit that suits it."""
    if value < 1e-3:
        return f"{figure(value * 1e6)} µs"
    return f"{figure(value * 1e3)} ms" if value < 1 else f"{figure(value)} s"


def times(ratio: float) -> str:
    """A ratio with the digits that can matter."""
    return f"{ratio:.2f}" if ratio < 10 else figure(ratio)


def share(part: float, whole: float) -> str:
    """A part of a whole in per cent."""
    return f"{part / whole:.1%}" if whole > 0 else "–"


def counted(number: float, thing: str) -> str:
    """``1 prompt``, ``2 prompts``, ``2.50 prompts``."""
    return f"{figure(number)} {thing}{'' if number == 1 else 's'}"
