"""The active cycles of a session: which steps of a report have the ranges that a session adds."""

from __future__ import annotations

import numpy as np

from bridge.analyze.core.groups import counts
from bridge.analyze.core.time_range import Windows
from bridge.importers.frames import key_codes
from bridge.importers.records import record
from bridge.join.arrays import NONE, Flags
from bridge.join.attributed import AttributedCapture
from bridge.join.phases import SESSION_DOMAIN, SESSION_NAME, is_session

DOMAIN, NAME = SESSION_DOMAIN, SESSION_NAME


@record
class ActiveCycles:
    """The ``active`` ones of all ``steps``, and the ``ops`` that have calls in those alone.

    ``example`` is the one with most calls.
    """

    steps: int
    active: int
    ops: int
    example: str

    @classmethod
    def of(cls, attributed: AttributedCapture) -> ActiveCycles | None:
        """Return the cycles of a report that holds other steps, too; None if no op tells them apart.

        A part of the time is what a user selected: it has none.
        """
        if attributed.selection is not None:
            return None
        phases = is_session(attributed.capture)
        if not phases.any():  # most reports: their steps need not be found for this
            return None
        steps = attributed.iterations
        in_phase, is_active = _in_phases(attributed, phases)
        has_op = attributed.op != NONE
        size = len(attributed.ops)
        inside = counts(attributed.op[has_op & in_phase], size)
        outside = counts(attributed.op[has_op & ~in_phase], size)
        only_inside = np.where(outside == 0, inside, 0)
        if is_active.all() or not only_inside.any():
            return None
        example = attributed.ops[int(np.argmax(only_inside))]
        return cls(len(steps), int(is_active.sum()), int(np.count_nonzero(only_inside)), example)


def _in_phases(attributed: AttributedCapture, phases: Flags) -> tuple[Flags, Flags]:
    """Return whether each range, and whether each step, starts in a phase of its process."""
    ranges, steps = attributed.capture.ranges, attributed.iterations
    keys = [ranges.report, ranges.process]
    start, end = ranges.start, ranges.end
    owner, of_step = key_codes(tuple(keys), [steps.report, steps.process])
    windows = Windows.of(owner[phases], start[phases], end[phases])
    return windows.meet(owner, start, start), windows.meet(of_step, steps.start, steps.start)
