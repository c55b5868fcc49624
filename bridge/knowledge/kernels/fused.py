"""The ops that a compiler fused into a kernel, read from the name that it gave it.

PyTorch's Inductor writes the names of the source ops, sorted, with ``_`` between them: ``triton_poi_fused_add_mul_3``.
The invariant: what is returned, joined with ``_``, is what the name says.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from functools import cache
from importlib.resources import files

FUSED = re.compile(
    r"(?:\A|_)(?:triton_[a-z]{3}|cpp|pallas)_fused_(\w*?)_?\d+(?:_\d[\dcde]*)?\Z", re.ASCII
)
MOST_WORDS = 400
Ways = dict[
    int, tuple[tuple[int, int, int], int]
]  # start of the last op: cost, start of the one before


def source_ops(name: str) -> tuple[str, ...]:
    """Return the ops that the name of a kernel says it is made of; () for names that say nothing of it.

    Names of ops may hold ``_``: taken are the fewest that PyTorch knows, in the order that they are sorted in.
    What is no op of PyTorch stays in one piece.
    """
    found = FUSED.search(name[-8_192:])
    words = found[1].split("_") if found and found[1] else []
    return tuple(_ops(words)) if len(words) <= MOST_WORDS else ()


@cache
def known_ops() -> frozenset[str]:
    """Return the names of PyTorch's ops."""
    text = files("bridge.knowledge.kernels").joinpath("ops.txt").read_text(encoding="utf-8")
    return frozenset(name for line in text.splitlines() if line[:1] != "#" for name in line.split())


@cache
def _longest() -> int:
    return max(name.count("_") for name in known_ops()) + 1


def _ops(words: Sequence[str]) -> Iterator[str]:
    """Split words into the fewest ops, those that stand in order before others, unknown words only where needed."""
    ways: list[Ways] = [{0: ((0, 0, 0), 0)}]
    for end in range(1, len(words) + 1):
        ways.append({})
        for start in range(max(0, end - _longest()), end):
            known = "_".join(words[start:end]) in known_ops()
            if known or start == end - 1:
                ways[end][start] = _best(words, ways[start], start, end, unknown=not known)
    yield from _together(_walked(words, ways))


def _best(
    words: Sequence[str], before: Ways, start: int, end: int, *, unknown: bool
) -> tuple[tuple[int, int, int], int]:
    """Return the least cost of ending with these words, and where the op before them begins."""
    last = "_".join(words[start:end])
    return min(
        (
            (
                cost[0] + unknown,
                cost[1] + (start > 0 and _op(words, at, start) >= last),
                cost[2] + 1,
            ),
            at,
        )
        for at, (cost, _) in before.items()
    )


def _op(words: Sequence[str], start: int, end: int) -> str:
    return "_".join(words[start:end])


def _walked(words: Sequence[str], ways: Sequence[Ways]) -> list[str]:
    """Return the ops on the cheapest way, in order."""
    found: list[str] = []
    end = len(words)
    start = min(ways[end], key=lambda at: ways[end][at][0]) if end else 0
    while end:
        found.append(_op(words, start, end))
        start, end = ways[end][start][1], start
    return found[::-1]


def _together(ops: Sequence[str]) -> Iterator[str]:
    """Give the ops, unknown words that stand side by side as one."""
    unknown: list[str] = []
    for op in ops:
        if op in known_ops():
            yield from ["_".join(unknown)] if unknown else []
            unknown = []
            yield op
        else:
            unknown.append(op)
    yield from ["_".join(unknown)] if unknown else []
