"""Reads the name of a simulated model, ``sim:step=2ms:token=1us``. It does not know what a simulated model does."""

import math
import re
from typing import Final

from serbench_engine.errors import ModelError
from serbench_engine.models.config import SimConfig

_FORMAT: Final = "sim, sim:step=TIME or sim:step=TIME:token=TIME with times such as 800us, 2ms or 0.5s"
_UNITS_US: Final = {"us": 1.0, "µs": 1.0, "ms": 1e3, "s": 1e6}
_TIME: Final = re.compile(r"(\d+(?:\.\d*)?|\.\d+)(us|µs|ms|s)", re.ASCII)
_LONGEST_US: Final = 60e6


def is_simulated(name: str) -> bool:
    """Whether ``name`` asks for the simulated model."""
    return name == "sim" or name.startswith("sim:")


def parse_simulated(name: str) -> SimConfig:
    """Read the spec; what it does not name is 0.

    Raises:
        ModelError: an option, a time or a unit that there isn't, with the format.
    """
    times: dict[str, float] = {}
    for option in name.split(":")[1:]:
        key, _, value = option.partition("=")
        if key not in ("step", "token"):
            raise ModelError(f"{name}: the simulated model has no option {key!r}; write {_FORMAT}")
        if key in times:
            raise ModelError(f"{name}: {key} is given twice; write {_FORMAT}")
        times[key] = _microseconds(name, key, value)
    return SimConfig(step_us=times.get("step", 0.0), token_us=times.get("token", 0.0))


def _microseconds(name: str, key: str, value: str) -> float:
    found = _TIME.fullmatch(value)
    if found is None:
        raise ModelError(f"{name}: {key} is {value!r}, which is no time; write {_FORMAT}")
    time_us = float(found[1]) * _UNITS_US[found[2]]
    if not math.isfinite(time_us) or time_us > _LONGEST_US:
        raise ModelError(f"{name}: {key} is {value}; a simulated time is at most 60s")
    return time_us
