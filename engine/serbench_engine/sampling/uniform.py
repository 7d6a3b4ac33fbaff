"""Random numbers as a pure function of (seed, index): no state, so no batch mate and no preemption can change them.

It does not know what is drawn with them.
"""

import numpy as np
import numpy.typing as npt

UInt64Array = npt.NDArray[np.uint64]

_GOLDEN = np.uint64(0x9E3779B97F4A7C15)


def uniforms(seeds: UInt64Array, indices: npt.NDArray[np.integer]) -> npt.NDArray[np.float64]:
    """One number in [0, 1) for each (seed, index): multiples of 2^-53.

    ``seeds`` uint64[n]; ``indices`` int[n], at least 0. Two rounds of the splitmix64 finalizer (Steele, Lea and Flood
    2014): the first one keeps neighbouring seeds from being shifted copies of each other.
    """
    state = _mix(seeds.astype(np.uint64) + _GOLDEN) + indices.astype(np.uint64) * _GOLDEN
    return (_mix(state + _GOLDEN) >> np.uint64(11)).astype(np.float64) * 2.0**-53


def _mix(z: UInt64Array) -> UInt64Array:
    z = (z ^ (z >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    z = (z ^ (z >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return z ^ (z >> np.uint64(31))
