"""Keeps garbage collection honest while something is timed. It does not know what is timed.

Collection stays on, as in an engine in service: a codec that litters pays for it. What was there before is left alone,
so that nothing pays for what was measured earlier.
"""

import gc
from collections.abc import Callable, Iterator
from contextlib import contextmanager


@contextmanager
def swept(collect: Callable[[], object] = gc.collect) -> Iterator[None]:
    """Collect everything now; what survives is left alone by collections within the block."""
    collect()
    gc.freeze()
    try:
        yield
    finally:
        gc.unfreeze()
