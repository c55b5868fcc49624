"""Arrows of a Perfetto trace: an op's to each of its API calls, a call's to each activity it launched.

Fields of protos/perfetto/trace/track_event/track_event.proto. A flow id that several slices have makes a
chain of them. To make a star, all but the first name it as a ``LegacyEvent.bind_id`` that flows in: that
leaves the flow open where it began. An arrow to what begins before the slice it comes from is not drawn.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from bridge.analyze.timeline import Arrows
from bridge.analyze.timeline.parts import DEVICE
from bridge.render.packets import (
    FIXED64,
    MISSING,
    Fixed,
    Integers,
    Ints,
    Message,
    Piece,
    Words,
    integer,
    of,
    tag,
)

LEGACY_EVENT, FLOW_IDS = 6, 47  # fields of TrackEvent
BIND_ID, FLOW_DIRECTION = 8, 13  # fields of LegacyEvent
FLOW_IN = 1


def flows(arrows: Arrows) -> Mapping[str, list[Piece]]:
    """Return what the slices of each kind say of the arrows that leave and reach them."""
    rows, calls, ops = arrows.rows, len(arrows.calls.start), len(arrows.ops.start)
    call, op = arrows.call[rows], arrows.op[rows]
    from_op = op != MISSING
    call_number, op_number = 1 + call, 1 + calls + op  # apart from each other, and never 0
    from_call = _flow(calls, call, call_number)
    to_activity = _flow(len(arrows.call), rows, call_number)
    out_of_op = _flow(ops, op[from_op], op_number[from_op])
    to_call = _flow(calls, call[from_op], op_number[from_op])
    return {
        "op": [_leaves(out_of_op)],
        "api": [_leaves(from_call), _reaches(to_call)],
        **{kind: [_reaches(to_activity)] for kind in DEVICE},
    }


def _flow(count: int, rows: Ints, number: Ints) -> Ints:
    """Return a flow's number per row of a frame, MISSING where there is none."""
    flow = np.full(count, MISSING)
    flow[rows] = number
    return flow


def _leaves(flow: Ints) -> Piece:
    return Words(tag(FLOW_IDS, FIXED64), of(flow))


def _reaches(flow: Ints) -> Piece:
    incoming = Fixed(integer(FLOW_DIRECTION, FLOW_IN))
    return Message(LEGACY_EVENT, [Integers(tag(BIND_ID), of(flow)), incoming], strict=True)
