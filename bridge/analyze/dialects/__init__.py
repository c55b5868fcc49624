"""The timeline as other profilers would have drawn it."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from bridge.analyze.dialects.paired import megengine, mxnet, raf
from bridge.analyze.dialects.torch import torch
from bridge.analyze.timeline import WHOLE, Selection, Timeline, of_ranks, timeline
from bridge.join.attributed import Attributed

NATIVE, TORCH = "native", "torch"
OTHERS: Mapping[str, Callable[[Attributed], Timeline]] = {
    TORCH: torch,
    "raf": raf,
    "mxnet": mxnet,
    "megengine": megengine,
}
DIALECTS = (NATIVE, *OTHERS)


def drawn(joined: Attributed, dialect: str = NATIVE, selection: Selection = WHOLE) -> Timeline:
    """Lay out what is selected of a report; raise ValueError for a dialect that is none."""
    if dialect not in DIALECTS:
        raise ValueError(f"no dialect {dialect!r}: one of {', '.join(DIALECTS)}")
    if dialect == NATIVE:
        return timeline(joined, selection)
    return selection.of(of_ranks(joined, OTHERS[dialect](joined), selection))
