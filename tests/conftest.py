"""Sets up what every test relies on: the thread environment, hypothesis, and data from outside of the repository.

It knows no codec, model or workload; fixtures over those live beside their tests.
"""

from pathlib import Path

import pytest
from hypothesis import settings

# Before anything imports torch: it sets OMP_WAIT_POLICY, which OpenMP reads only once.
import serbench_engine  # noqa: F401

ROOT = Path(__file__).resolve().parents[1]

# No deadline: a busy machine is no failure. The blob in a failure's message reproduces it.
settings.register_profile("serbench", deadline=None, print_blob=True)
settings.load_profile("serbench")


@pytest.fixture(scope="session")
def shared_data() -> Path:
    """The folder of real data beside the repository, ``../shared/data``; tests that need it are skipped without it."""
    folders = [ROOT.parent / "shared" / "data", ROOT / "shared" / "data"]
    for folder in folders:
        if folder.is_dir():
            return folder
    pytest.skip(f"no shared data: neither {folders[0]} nor {folders[1]} is a folder")
