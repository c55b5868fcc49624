"""The numbers by which PyTorch's traces hold an op, its API calls and their work on devices together."""

from __future__ import annotations

import numpy as np

from bridge.join.attributed import Attributed
from bridge.join.autograd import inherited
from bridge.join.order import NONE, Flags, Ints, number
from importers import frames

EXTERNAL = "External id"  # of an op, from 1; what belongs to none has 0


def around_calls(joined: Attributed, annotated: Flags) -> Ints:
    """Return the external id of the innermost op around each API call; annotations are none."""
    found, nesting = joined.attribution, joined.attribution.nesting
    node = nesting.innermost(found.stack, frames.ints(joined.report.launches, "start"))
    own = np.where(annotated[nesting.range], NONE, nesting.range)
    return np.append(inherited(nesting, own), NONE)[node] + 1


def of_calls(joined: Attributed) -> Ints:
    """Return the correlation of each API call: its own, or a number of ours where processes share numbers."""
    own = frames.ints(joined.report.launches, "correlation")
    return own if _of_one_process(joined) else np.arange(1, len(own) + 1)


def of_activities(joined: Attributed, around: Ints) -> tuple[Ints, Ints]:
    """Return the external id and the correlation of each activity, those of its call; 0 and -1 without.

    ``around`` is the external id of each call.
    """
    launch = joined.attribution.launch
    correlation = np.append(of_calls(joined), NONE)[launch]
    if _of_one_process(joined):
        correlation = frames.ints(joined.report.activities, "correlation")
    return np.append(around, 0)[launch], correlation


def _of_one_process(joined: Attributed) -> bool:
    tables = (joined.report.launches, joined.report.activities)
    columns = (np.concatenate([frames.ints(t, c) for t in tables]) for c in ("report", "process"))
    return len(number(*columns)[1]) <= 1
