"""What every API call is to whoever asks what the host did: a launch, a copy, a wait, a compilation, another."""

from __future__ import annotations

import numpy as np

from bridge.analyze.roles import (
    BLOCKING,
    COMPILING,
    COPYING,
    LAUNCHING,
    WAITING,
    calls_matching,
)
from bridge.join.arrays import NONE, Flags, Ints
from bridge.join.attributed import Attributed
from importers import frames

# What a thread may be in, those that tell more of an idle GPU last: of several open at once the last counts.
NOTHING, IN_OP, IN_LAUNCH, IN_API, IN_COPY, IN_BLOCKING, IN_SYNC, IN_COMPILER, IN_LOADER = range(9)
WAITS = (IN_BLOCKING, IN_SYNC)  # for the device
TO_HOST = 2  # a copy's direction, as nsys numbers them


def kinds(joined: Attributed) -> Ints:
    """Return what each API call is: one of `IN_LAUNCH` to `IN_COMPILER`."""
    kind = np.full(len(joined.report.launches), IN_API)
    for pattern, means in (
        (LAUNCHING, IN_LAUNCH),
        (COPYING, IN_COPY),
        (BLOCKING, IN_BLOCKING),
        (WAITING, IN_SYNC),
        (COMPILING, IN_COMPILER),
    ):
        kind[calls_matching(joined, pattern)] = means
    kind[(kind == IN_COPY) & _returned_late(joined)] = IN_BLOCKING
    return kind


def ends(joined: Attributed) -> Ints:
    """Return the end of each API call in ns; its start where the end makes no sense."""
    calls = joined.report.launches
    return np.maximum(frames.ints(calls, "end"), frames.ints(calls, "start"))


def _returned_late(joined: Attributed) -> Flags:
    """Tell which calls returned only after a copy to the host that they issued had ended.

    So do asynchronous copies to pageable memory.
    """
    launch = joined.attribution.launch
    to_host = frames.ints(joined.report.activities, "copy_kind") == TO_HOST
    copies = np.flatnonzero(to_host & (launch != NONE))
    late = copies[joined.end[copies] <= ends(joined)[launch[copies]]]
    found = np.zeros(len(joined.report.launches), bool)
    found[launch[late]] = True
    return found
