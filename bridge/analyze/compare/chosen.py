"""What is chosen of two reports compared: the same steps of both, and rows whose figures are known."""

from __future__ import annotations

import numpy as np
import pandas as pd

from bridge.analyze.compare.stepwise import UNKNOWN
from bridge.analyze.filters import COMPARE, column_named, matching, parsed
from bridge.join.attributed import Attributed
from bridge.join.order import NONE

MAY_BE_UNKNOWN = (*UNKNOWN, "ratio")
OF_SIZE = frozenset(COMPARE) - {"=", "!="}


def of_known(rows: pd.DataFrame, conditions: str) -> pd.DataFrame:
    """Return the rows of a comparison that meet conditions; an unknown ratio or p is neither small nor large.

    Raises ValueError for what cannot be read.
    """
    told = parsed(conditions)
    for one in told:
        column = column_named(rows, one.column)
        if column in MAY_BE_UNKNOWN and one.how in OF_SIZE:
            rows = rows[rows[column] != NONE]
    return matching(rows, told)


def same_steps(before: Attributed, after: Attributed, first: int, last: int) -> None:
    """Refuse steps, from ``first`` to ``last``, of which a process on one side has others than those on the other.

    Raises ValueError, in words for the user.
    """
    sides = [_numbers(side, first, last) for side in (before, after)]
    if sides[0] == sides[1]:
        return
    said = [", ".join(sorted(map(_listed, side))) for side in sides]
    common = set.intersection(*map(set, sides[0] | sides[1]))
    more = f"; all have {min(common)}..{max(common)}" if common else ""
    raise ValueError(
        f"not the same steps of {first}..{last} on both sides:"
        f" {said[0]} before, {said[1]} after, by process{more}"
    )


def _numbers(side: Attributed, first: int, last: int) -> set[tuple[int, ...]]:
    """Return which of some steps the processes have: the same ones once, however many processes have them."""
    steps = side.iterations
    of_each = (np.sort(steps.number[start:end]) for start, end in steps.by_process())
    return {tuple(of[(of >= first) & (of <= last)].tolist()) for of in of_each}


def _listed(numbers: tuple[int, ...]) -> str:
    """Return numbers of steps for people."""
    if not numbers:
        return "none"
    whole = len(numbers) == numbers[-1] - numbers[0] + 1
    return f"{numbers[0]}..{numbers[-1]}" + ("" if whole else f" ({len(numbers)} steps)")
