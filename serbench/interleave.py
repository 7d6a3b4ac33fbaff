"""Decides in which order things that are compared take their turns. It does not know what they are.

Measured one after the other, the second thing's figures hold the machine's drift. Here every group has each thing once,
and the groups' directions cancel a drift: A B  B A  B A  A B.
"""

from collections.abc import Sequence
from typing import Final, TypeVar

import numpy as np

Pass = TypeVar("Pass")

_BACKWARDS: Final = (False, True, True, False)
"""Directions of four groups. On drifting noise (an AR(1) process) this keeps paired intervals closer to their stated
confidence than A B  B A  A B  B A does, because the pairs' errors don't all correlate with the same sign."""


def balanced_order(things: int, groups: int, seed: int) -> list[list[int]]:
    """For each group the numbers 0 … things − 1 in the order of their turns.

    A new permutation is drawn (seeded) for every four groups, so that no thing always follows the same other one.
    """
    rng = np.random.default_rng(seed)
    order: list[list[int]] = []
    permutation: list[int] = []
    for group in range(groups):
        turn = group % len(_BACKWARDS)
        if turn == 0:
            permutation = rng.permutation(things).tolist()
        order.append(permutation[::-1] if _BACKWARDS[turn] else list(permutation))
    return order


def turns_of(things: int, *, warmup: int, repeats: int, seed: int) -> list[tuple[int, list[int]]]:
    """Each group's number and turns: warm-ups, which are below 0, then ``repeats`` in balanced order."""
    warming = [(group, list(range(things))) for group in range(-warmup, 0)]
    return warming + list(enumerate(balanced_order(things, repeats, seed)))


def whole_groups(passes: Sequence[Sequence[Pass]]) -> list[Sequence[Pass]]:
    """Each thing's passes, in order of group, up to the last group that has one of all things."""
    complete = min(map(len, passes))
    return [own[:complete] for own in passes]
