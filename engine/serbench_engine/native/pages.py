"""Memory in large pages, as tensors: for what a step reads from end to end or all over. It does not know what that is.

With small pages of 4 KiB, finding where they are costs a CPU up to a quarter of the time that reading them takes.
"""

import contextlib
import mmap

import torch
from torch import Tensor


def zeros_in_large_pages(numbers: int, dtype: torch.dtype) -> Tensor:
    """So many zeros, one-dimensional, in memory that the system hands over when it is first written."""
    memory = mmap.mmap(-1, max(1, numbers) * dtype.itemsize, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
    with contextlib.suppress(OSError):  # a kernel that has none
        memory.madvise(mmap.MADV_HUGEPAGE)
    return torch.frombuffer(memory, dtype=dtype)[:numbers]
