"""serbench_engine: an LLM inference engine that is given its codec and its transport.

Importing it imports no torch: ``LLM`` and ``SamplingParams`` are looked up when they are first used.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any, Final

from serbench_engine.threads import set_thread_environment

if TYPE_CHECKING:
    from serbench_engine.llm import LLM
    from serbench_engine.request import SamplingParams

__all__ = ["LLM", "SamplingParams"]

_HOMES: Final = {"LLM": "serbench_engine.llm", "SamplingParams": "serbench_engine.request"}

set_thread_environment()  # here, since whatever imports torch for this engine imports this package before


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}; it offers {', '.join(__all__)}")
    return getattr(import_module(_HOMES[name]), name)
