"""Makes the C library keep the memory of freed tensors for the next ones. It knows no tensors.

By default it gives large pieces back to the system and asks for them again, in every layer of every step: the system
then clears page after page, for a prompt of SmolLM2 twenty thousand of them a step.
"""

import ctypes
from typing import Final

_M_TRIM_THRESHOLD: Final = -1
_M_MMAP_THRESHOLD: Final = -3
_LARGEST_MMAP_THRESHOLD: Final = 32 << 20  # glibc takes no more


def keep_freed_memory() -> None:
    """Tell glibc so, for the whole process; where there is another C library nothing changes."""
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None)
    if mallopt is not None:
        mallopt(_M_MMAP_THRESHOLD, _LARGEST_MMAP_THRESHOLD)
        mallopt(_M_TRIM_THRESHOLD, 1 << 30)
