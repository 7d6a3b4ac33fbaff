"""A child's side of the conversation: answers each line of JSON on stdin with one, until there are no more.

It does not know what is asked, and imports nothing but the standard library: it also runs in the peers' environments.
"""

import json
import os
import sys
from collections.abc import Callable
from typing import Any, TypeAlias

Answering: TypeAlias = Callable[[dict[str, Any]], dict[str, Any]]


def serve(prepare: Callable[[], Answering]) -> None:
    """Prepare, then answer every question; what libraries print goes to stderr. A failure ends the process with its
    traceback.
    """
    with os.fdopen(os.dup(1), "w") as replies:
        os.dup2(2, 1)
        answer = prepare()
        for line in sys.stdin:
            replies.write(json.dumps(answer(json.loads(line))) + "\n")
            replies.flush()


def option(name: str) -> bool:
    """Whether ``--name`` stands on the command line."""
    return f"--{name}" in sys.argv[1:]
