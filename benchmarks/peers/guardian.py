"""Ends processes when whoever named them is gone: stopped ones can't notice by themselves. It knows nothing else.

Process ids come on stdin, one a line; when it closes, those still there are killed with all that they started.
"""

import contextlib
import sys

import psutil


def watch() -> None:
    """Until stdin closes."""
    watched = []
    for line in sys.stdin:
        with contextlib.suppress(psutil.NoSuchProcess):
            watched.append(psutil.Process(int(line)))
    for one in watched:
        with contextlib.suppress(psutil.NoSuchProcess):
            for member in (*one.children(recursive=True), one):
                member.kill()


if __name__ == "__main__":
    watch()
