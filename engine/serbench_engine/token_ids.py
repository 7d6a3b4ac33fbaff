"""Checks that what a user calls token ids are whole numbers. It does not know vocabularies, nor whose ids they are."""

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from serbench_engine.errors import RequestError


def whole_numbers(values: Sequence[int] | npt.NDArray[np.integer], whose: str) -> npt.NDArray[np.int64]:
    """``values`` as int64[n]; ``whose`` begins the message where they are none.

    Raises:
        RequestError: floats, booleans, texts, numbers beyond 64 bits, or an array of more than one dimension.
    """
    if isinstance(values, np.ndarray):
        if values.ndim != 1 or values.dtype.kind not in "iu":
            raise RequestError(
                f"{whose} token ids in an array of {values.dtype}, shape {values.shape}; they must be whole "
                "numbers in one dimension"
            )
        return values.astype(np.int64)
    wrong = {kind for kind in set(map(type, values)) if kind is bool or not issubclass(kind, int | np.integer)}
    if wrong:
        first = next(value for value in values if type(value) in wrong)
        raise RequestError(f"{whose} token id {first!r}; it must be a whole number")
    try:
        return np.asarray(values, dtype=np.int64)
    except OverflowError:
        raise RequestError(f"{whose} token id {max(values, key=abs)}; no vocabulary has so many") from None
