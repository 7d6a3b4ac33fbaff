"""Estimates how long the rest of a sweep takes. It reads no clock and shows nothing.

Points differ in how long a pass takes, so passes are weighed by their own point's, known from its earlier repeats. What
comes on top (engines that start, warm-ups) is taken to go on as it did so far.
"""

from collections.abc import Mapping, Sequence


class TimeLeft:
    """``passes``: the points of the passes still to make. ``known``: wall times in s of passes of earlier sittings."""

    def __init__(self, passes: Sequence[int], known: Mapping[int, Sequence[float]]) -> None:
        self._left: dict[int, int] = {}
        for point in passes:
            self._left[point] = self._left.get(point, 0) + 1
        self._walls = {point: list(walls) for point, walls in known.items() if walls}
        self._measured_s = 0.0

    @property
    def passes(self) -> int:
        """How many are still to make."""
        return sum(self._left.values())

    def made(self, point: int, wall_s: float) -> None:
        """A pass was made and took so long."""
        self._left[point] -= 1
        self._walls.setdefault(point, []).append(wall_s)
        self._measured_s += wall_s

    def given_up(self, point: int) -> None:
        """No more passes of this point."""
        self._left.pop(point, None)

    def seconds(self, elapsed_s: float) -> float | None:
        """Time left after ``elapsed_s`` of this sitting; None before its first pass was made."""
        if self._measured_s <= 0:
            return None
        means = {point: sum(walls) / len(walls) for point, walls in self._walls.items()}
        unknown = sum(means.values()) / len(means)
        rest_s = sum(count * means.get(point, unknown) for point, count in self._left.items())
        return rest_s * elapsed_s / self._measured_s
