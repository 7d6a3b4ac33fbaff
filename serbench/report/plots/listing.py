"""The table of plots, and how each becomes SVG and PNG. It does not know what they show.

matplotlib is imported here and below, so whoever wants no plots must not import this. Figures are drawn without pyplot,
on Agg, within a context of settings: nothing global is left changed.
"""

import io
import re
from collections.abc import Callable
from typing import Final

import matplotlib
import msgspec
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure

from serbench.report.plots.latency import draw_latency
from serbench.report.plots.payloads import draw_payloads
from serbench.report.plots.phases import draw_phases
from serbench.report.plots.speedup import draw_speedup
from serbench.report.plots.style import GRID, INK, RC
from serbench.report.plots.throughput import draw_throughput
from serbench.report.survey import Survey

PNG_DPI: Final = 200

HARDEST: Final = (
    "the hardest place ({place}): of those with several codecs the one with the most requests at once, then the "
    "longest context, then the quickest model"
)
"""``Survey.hardest`` in words, with its name to be filled in."""


class Plot(msgspec.Struct, frozen=True):
    """A plot to draw: ``draw`` returns why there is none where the runs have nothing for it."""

    name: str
    title: str
    caption: str
    draw: Callable[[Survey], Figure | str]


PLOTS: Final = (
    Plot(
        "throughput",
        "Throughput by batch and codec",
        "Output tokens per second: geometric mean of the repeats, small dots each repeat, bars the 95 % interval of "
        "the mean (from 4 repeats on). Repeats are interleaved, so differences between codecs are surer than these "
        "intervals, which hold what all codecs share; the ratios below have paired ones.",
        draw_throughput,
    ),
    Plot(
        "speedup",
        "Speed-up by the model's step time",
        "Throughput as a multiple of the baseline's, with paired 95 % intervals; the line at 1 is no difference.",
        draw_speedup,
    ),
    Plot(
        "phases",
        "Where a step's host time goes",
        "Mean over all steps, in the order of the step, without the model's own forward and sample; the figure at the "
        "bar's end is their sum; all panels have one scale. The model's own time, told below, is the median of a "
        f"panel's runs. Model and context are those of {HARDEST}.",
        draw_phases,
    ),
    Plot(
        "bytes",
        "Bytes by context",
        "Bytes of the plan to one worker, header included. Bytes are counted, not timed, so there is no interval.",
        draw_payloads,
    ),
    Plot(
        "latency",
        "Latency distributions",
        f"Over requests, at {HARDEST}: thin line 1 to 99 %, with a tick at 99 %, thick line 25 to 75 %, mark the "
        "median. Each is the median of the repeats' own, so how repeats differ does not show: what is sure is in the "
        "ratios. All requests arrive together where no rate was set, so queueing is part of it.",
        draw_latency,
    ),
)


class Drawn(msgspec.Struct, frozen=True):
    """A plot as files: SVG and PNG for paper, and SVG for a page, with the page's colours and ids of its own."""

    plot: Plot
    svg: bytes
    png: bytes
    inline: str


class NotDrawn(msgspec.Struct, frozen=True):
    """A plot that the runs have nothing for, and why."""

    plot: Plot
    why: str


def draw(plot: Plot, survey: Survey) -> Drawn | NotDrawn:
    """Draw one plot, and say in its caption of which place it is."""
    plot = msgspec.structs.replace(plot, caption=plot.caption.format(place=survey.hardest))
    with matplotlib.rc_context(RC):
        found = plot.draw(survey)
        if isinstance(found, str):
            return NotDrawn(plot, found)
        FigureCanvasAgg(found)
        svg = _saved(found, "svg", "none").decode()
        png = _saved(found, "png", "white")
    return Drawn(plot, on_white(svg).encode(), png, inline_svg(svg, plot.name))


def _saved(found: Figure, kind: str, background: str) -> bytes:
    file = io.BytesIO()
    about = {"Creator": "serbench", "Date": None} if kind == "svg" else {"Software": "serbench"}
    found.savefig(file, format=kind, dpi=PNG_DPI, facecolor=background, metadata=about)
    return file.getvalue()


def on_white(document: str) -> str:
    """The SVG document with a white ground, for pages whose colour is not known."""
    return re.sub(r"<svg[^>]*>", r'\g<0><rect width="100%" height="100%" fill="white"/>', document, count=1)


def inline_svg(document: str, name: str) -> str:
    """The svg element alone, sized by the page, in the page's colours; ids are made the plot's own, since several plots
    share a page.
    """
    element = document[document.index("<svg") :]
    element = re.sub(r'(<svg[^>]*?) width="[^"]*"', r"\1", element, count=1)
    element = re.sub(r'(<svg[^>]*?) height="[^"]*"', r"\1", element, count=1)
    element = re.sub(r"<metadata>.*?</metadata>", "", element, count=1, flags=re.DOTALL)
    element = re.sub(r'\bid="', f'id="{name}-', element)
    element = re.sub(r'\bxlink:href="#', f'xlink:href="#{name}-', element)
    element = element.replace("url(#", f"url(#{name}-")
    return element.replace(INK, "currentColor").replace(GRID, "var(--line)")
