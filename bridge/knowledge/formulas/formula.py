"""A formula: how an op's FLOPs and bytes follow from its arguments, in words and as functions."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import NamedTuple

from bridge.knowledge.formulas.call import Call, Count, Counting, Outputs, unknown

VIEW = "view"  # the kind of ops that touch no data

Reads = Callable[[Call], Iterable[int]]  # the positions of the inputs that are read


class Formula(NamedTuple):
    """What is used for an op; not ``exact`` where a weight per element is a convention, or parts are left out."""

    kind: str
    text: str
    source: str
    exact: bool
    flops: Count
    outputs: Outputs = unknown  # the shapes that come out
    dtype: str = ""  # of the outputs; '': that of the floating inputs
    reads: Reads | None = None  # None: all inputs


Row = tuple[str, Formula]  # the names of ops, a space between them


def rows(
    kind: str,
    source: str,
    *listed: tuple[str, str, Counting],
    exact: bool = True,
    dtype: str = "",
    reads: Reads | None = None,
) -> tuple[Row, ...]:
    """Make rows of one kind: names, text and what counts, each."""
    return tuple(
        (names, Formula(kind, text, source, exact, *counting, dtype, reads))
        for names, text, counting in listed
    )
