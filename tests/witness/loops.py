"""Repetitions of a sequence, found by trying every begin and every length: the definition, with plain loops."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

MIN_INSTANCES = 3


def repetitions(names: Sequence[str]) -> list[tuple[int, int, int]]:
    """Return the outermost repetitions: begin, length of an instance, number of whole instances.

    A repetition is a part in which every name is that of one length before. Of all with three instances
    the one that spans most comes first, of those the shortest period; others follow outside of it.
    """
    found = []
    for length in range(1, len(names) // MIN_INSTANCES + 1):
        begin = 0
        while begin + length < len(names):
            end = begin + length
            while end < len(names) and names[end] == names[end - length]:
                end += 1
            if end - begin >= MIN_INSTANCES * length:
                found.append((begin, length, (end - begin) // length, end))
            begin = max(begin + 1, end - length + 1)
    found.sort(key=lambda one: (-(one[3] - one[0]), one[1]))
    chosen: list[tuple[int, int, int, int]] = []
    for one in found:
        if all(one[3] <= other[0] or other[3] <= one[0] for other in chosen):
            chosen.append(one)
    return sorted((begin, length, count) for begin, length, count, _ in chosen)


def agreement(one: Sequence[str], other: Sequence[str]) -> float:
    """Return the Jaccard index of two multisets."""
    a, b = Counter(one), Counter(other)
    return (a & b).total() / max(1, (a | b).total())
