"""Shows what a model made of prompts. It does not know tokens or how they were sampled."""

from collections.abc import Sequence

from rich.console import Group, RenderableType
from rich.padding import Padding
from rich.text import Text


def answers_report(exchanges: Sequence[tuple[str, str, str]]) -> RenderableType:
    """Each prompt with its answer; the third of each is why it ended, told where it isn't by its own will."""
    blocks: list[RenderableType] = []
    for prompt, answer, reason in exchanges:
        ended = "" if reason == "stop" else f" [{reason}]"
        text = Text.assemble((f"> {prompt}\n", "bold"), answer, (ended, "dim"))
        blocks.append(Padding(text, (1, 0, 0, 1)))
    return Group(*blocks)
