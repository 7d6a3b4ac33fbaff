"""The least and the most of a column. It does not know what the numbers mean."""

from typing import Final

import numpy as np

from serbench_codecs.plan import Int32Array

FEW: Final = 24
"""Up to so many numbers Python looks at them one by one in less time than numpy needs to begin."""


def extent(values: Int32Array) -> tuple[int, int]:
    """The least and the most of ``values``, of which there is at least one."""
    if len(values) <= FEW:
        numbers = values.tolist()
        return min(numbers), max(numbers)
    return int(values.min()), int(values.max())


def all_below(values: Int32Array, limit: int) -> bool:
    """Whether all of ``values`` are in [0, limit)."""
    if len(values) <= FEW:
        numbers = values.tolist()
        return not numbers or bool(min(numbers) >= 0 and max(numbers) < limit)
    return int(values.view(np.uint32).max()) < limit  # what is negative is very large then
