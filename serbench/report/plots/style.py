"""How plots look: colours, markers, hatches, fonts. It does not know what is plotted.

Colours: Okabe and Ito, "Color Universal Design" (2008), which most people tell apart whatever their eyes; markers and
hatches say the same again, for print in grey. ``INK`` and ``GRID`` are placeholders that a page replaces by its own
colours, so that plots follow its light or dark scheme; on paper they are what they say.
"""

from collections.abc import Sequence
from typing import Any, Final

import msgspec

INK: Final = "#1b1b1c"
GRID: Final = "#d9d9da"
EDGE: Final = "#202022"
"""Around and across fills, which are light: dark on every page."""

WIDTH_IN: Final = 7.2
"""Two columns of a paper."""

FONT_PT: Final = 8.0
SMALL_PT: Final = 7.0

RC: Final[dict[Any, Any]] = {  # the keys are literals of matplotlib's, too many to name
    "svg.fonttype": "none",  # text stays text: it can be searched for, and is in the reader's own font
    "svg.hashsalt": "serbench",
    "text.parse_math": False,  # names come from users: a $ is a $
    "font.family": "sans-serif",
    "font.sans-serif": ["DejaVu Sans"],
    "font.size": FONT_PT,
    "axes.titlesize": FONT_PT,
    "axes.titleweight": "bold",
    "axes.titlelocation": "left",
    "axes.labelsize": FONT_PT,
    "xtick.labelsize": SMALL_PT,
    "ytick.labelsize": SMALL_PT,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.linewidth": 0.7,
    "axes.edgecolor": INK,
    "axes.labelcolor": INK,
    "axes.titlecolor": INK,
    "text.color": INK,
    "xtick.color": INK,
    "ytick.color": INK,
    "xtick.major.width": 0.7,
    "ytick.major.width": 0.7,
    "axes.grid": True,
    "axes.axisbelow": True,
    "grid.color": GRID,
    "grid.linewidth": 0.5,
    "lines.linewidth": 1.3,
    "lines.markersize": 4.0,
    "hatch.linewidth": 0.5,
    "figure.facecolor": "none",
    "axes.facecolor": "none",
    "savefig.facecolor": "white",
    "figure.dpi": 100,
}


class Look(msgspec.Struct, frozen=True):
    """How a series is drawn, everywhere the same."""

    colour: str
    marker: str
    line: Any


_BY_CODEC: Final = {
    "none": INK,
    "pickle": "#D55E00",
    "cloudpickle": "#CC79A7",
    "msgspec": "#E69F00",
    "delta": "#56B4E9",
    "cached": "#0072B2",
    "columnar": "#009E73",
}
_OTHERS: Final = ("#7F7F80", "#B8860B", "#6A3D9A", "#8C564B")
_MARKERS: Final = {
    "none": "*",
    "pickle": "o",
    "cloudpickle": "v",
    "msgspec": "s",
    "delta": "^",
    "cached": "D",
    "columnar": "P",
}
_MORE_MARKERS: Final = ("X", "<", ">", "p", "h")
_LINES: Final = ("-", (0, (4, 1.5)), (0, (1.5, 1.2)), (0, (5, 1.5, 1, 1.5)))


def looks(series: Sequence[str]) -> dict[str, Look]:
    """A look for each series: the codec's colour and marker; a codec's second series is dashed, its third dotted."""
    codecs: dict[str, list[str]] = {}
    for name in series:
        codecs.setdefault(name.split(" ")[0].split(":")[0], []).append(name)
    unknown = [codec for codec in codecs if codec not in _BY_CODEC]
    found = {}
    for codec, names in codecs.items():
        place = unknown.index(codec) if codec in unknown else 0
        colour = _BY_CODEC.get(codec, _OTHERS[place % len(_OTHERS)])
        marker = _MARKERS.get(codec, _MORE_MARKERS[place % len(_MORE_MARKERS)])
        for i, name in enumerate(names):
            found[name] = Look(colour, marker, _LINES[i % len(_LINES)])
    return found


class Fill(msgspec.Struct, frozen=True):
    """How a part of a bar is filled."""

    colour: str
    hatch: str


GROUPS: Final[dict[str, tuple[tuple[str, ...], Fill]]] = {
    "schedule, update": (("schedule", "update"), Fill("#0072B2", "")),
    "adapt": (("adapt",), Fill("#F0E442", "....")),
    "encode, send": (("encode", "send"), Fill("#D55E00", "////")),
    "transit out": (("transit_out",), Fill("#E9E9EA", "")),
    "decode, apply": (("decode", "apply"), Fill("#E69F00", "\\\\\\\\")),
    "prepare": (("prepare",), Fill("#56B4E9", "")),
    "reply, transit back, collect": (("reply", "transit_back", "collect"), Fill("#CC79A7", "xxxx")),
    "other": (("other",), Fill("#8E8E8F", "")),
}
"""The phases of a step but for the model's own, in the order of the step, as few as can be told apart."""
