"""Which activity each wait of the host, or of a stream, waited for.

The name of the API call says what it waits for, since the kind in the record of a wait is wrong in
exports of several versions of nsys. The record says which stream and which event.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from itertools import pairwise

import numpy as np

from bridge.analyze.core.kinds import calls_matching
from bridge.analyze.run.causes.host_timeline import IN_BLOCKING, IN_SYNC, call_states
from bridge.analyze.run.critical.order import device_order, freed_after, queue_waits, staged_after
from bridge.analyze.run.critical.work import Work
from bridge.importers.arrays import lookup
from bridge.importers.frames import key_codes
from bridge.importers.records import record
from bridge.join.arrays import NONE, Flags, Ints, order_by, run_edges, search_groups

STREAM_WAIT = re.compile(r"cu(?:da)?StreamWaitEvent")
EVENT_SYNC = re.compile(r"cu(?:da)?EventSynchronize")
NARROW_SYNC = re.compile(r"cu(?:da)?(?:Stream|Event)Synchronize")  # others wait for a device
PROCESS = ("report", "process")
CONTEXT = (*PROCESS, "context")
STREAM = (*CONTEXT, "stream")
EVENT = (*PROCESS, "event")
MAX_STEPS = 64  # back from the activity that ended last to one that was issued in time
KEY = ("report", "process", "correlation")


@record
class _Groups:
    """Activities in groups, each with a time by which it was issued."""

    work: Work
    group: Ints

    def last_of(self, group: Ints, issued_before: Ints) -> Ints:
        """Return the activity of each group, of those issued before a time, that ended last, or NONE."""
        work = self.work
        order = order_by(self.group, work.issued, work.rank)
        by_end = np.empty(len(order), np.int64)
        by_end[order_by(work.end, work.rank)] = np.arange(len(order))
        latest = np.maximum.accumulate(self.group[order] * len(order) + by_end[order])
        place = search_groups(
            self.group[order], work.issued[order], group, issued_before, side="left"
        )
        latest = lookup(latest, place - 1)
        of_group = (place > 0) & (latest // max(1, len(order)) == group)
        of_rank = np.empty(len(order), np.int64)
        of_rank[by_end] = np.arange(len(order))
        return np.where(of_group, lookup(of_rank, latest % max(1, len(order))), NONE)

    def last_ended(
        self, group: Ints, issued_before: Ints, ended_by: Ints, not_lane: Ints | None = None
    ) -> Ints:
        """Return the activity of each group that ended last by a time and was issued before another.

        ``not_lane`` is a lane that does not count. NONE if none of the last `MAX_STEPS` qualifies.
        """
        work = self.work
        order = order_by(self.group, work.end, work.rank)
        ordered = np.append(self.group[order], NONE)
        place = search_groups(self.group[order], work.end[order], group, ended_by, side="right") - 1
        result = np.full(len(group), NONE)
        pending = np.arange(len(group))
        for _ in range(MAX_STEPS):
            pending = pending[(place[pending] >= 0) & (ordered[place[pending]] == group[pending])]
            activity = order[place[pending]]
            fits = work.issued[activity] < issued_before[pending]
            if not_lane is not None:
                fits &= work.lane[activity] != not_lane[pending]
            result[pending[fits]] = activity[fits]
            pending = pending[~fits]
            place[pending] -= 1
            if not len(pending):
                break
        return result


Pairs = tuple[Ints, Ints]


@dataclass(frozen=True)
class Waits:
    """What waits wait for; activities are places in `Work`.

    ``waits`` is whether each API call waits for the device. A row of ``call`` and ``released`` is an
    API call that did not return before the activity had ended, or with ``by_start`` had begun; rows are
    sorted by call and time. A row of ``activity`` and ``awaited`` is an activity that could not begin on its
    stream before another one had ended: ``by_rule`` of the default stream or of copy engines, else for an event.
    """

    waits: Flags
    call: Ints
    released: Ints
    by_start: Flags
    activity: Ints
    awaited: Ints
    by_rule: Flags

    def times(self, work: Work) -> Ints:
        """Return when each awaited activity had ended, or begun."""
        return np.where(self.by_start, work.start[self.released], work.end[self.released])

    @classmethod
    def of(cls, work: Work) -> Waits:
        states = call_states(work.attributed)
        waits = np.isin(states, (IN_SYNC, IN_BLOCKING))
        waits[work.polls.first] = True
        stream_waits = np.flatnonzero(calls_matching(work.attributed, STREAM_WAIT))
        nothing = np.empty(0, np.int64)
        if not len(work.row):
            flags = np.empty(0, bool)
            return cls(
                waits=waits,
                call=nothing,
                released=nothing,
                by_start=flags,
                activity=nothing,
                awaited=nothing,
                by_rule=flags,
            )
        records = _Records.of(work)
        blocking = np.flatnonzero((states == IN_BLOCKING) & work.issues)
        is_narrow = calls_matching(work.attributed, NARROW_SYNC)
        is_narrow[work.polls.first] = True
        syncs = (states == IN_SYNC) & ~work.polls.inner
        syncs[work.polls.first] = True
        pairs = (
            (blocking, _own_last(work)[blocking]) if len(blocking) else (nothing, nothing),
            staged_after(work, blocking),
            _of_streams(work, records, np.flatnonzero(syncs & is_narrow)),
            _of_devices(work, records, np.flatnonzero(syncs & ~is_narrow)),
            freed_after(work),
        )
        call, released = (np.concatenate(column) for column in zip(*pairs, strict=True))
        has_ended = (released != NONE) & (lookup(work.end, released, 0) < work.call_end[call])
        call, released = call[has_ended], released[has_ended]
        queued, begun = queue_waits(work)
        by_start = np.repeat([False, True], [len(call), len(queued)])
        call, released = np.concatenate((call, queued)), np.concatenate((released, begun))
        time = np.where(by_start, work.start[released], work.end[released])
        order = order_by(call, time, work.rank[released])
        of_streams, ruled = _stream_waits(work, records, stream_waits), device_order(work)
        activity, awaited = (np.concatenate(c) for c in zip(of_streams, ruled, strict=True))
        by_rule = np.repeat([False, True], [len(of_streams[0]), len(ruled[0])])
        return cls(
            waits=waits,
            call=call[order],
            released=released[order],
            by_start=by_start[order],
            activity=activity,
            awaited=awaited,
            by_rule=by_rule,
        )


def _own_last(work: Work) -> Ints:
    """Return the activity of each API call that ended last, or NONE."""
    result = np.full(len(work.call_start), NONE)
    order = order_by(work.end, work.rank)
    order = order[work.launch[order] != NONE]
    result[work.launch[order]] = order  # the last assignment stays
    return result


@record
class _Records:
    """The records of waits and events: codes of streams and events, and the record of each call."""

    of_call: Ints  # a row of the frame `waits`, or NONE
    stream: Ints  # codes per row; NONE where it is not recorded
    context: Ints
    event: Ints
    work_stream: Ints  # codes per activity
    work_context: Ints
    record: Ints  # rows that record an event, by event and time
    record_time: Ints

    @classmethod
    def of(cls, work: Work) -> _Records:
        attributed, waits = work.attributed, work.attributed.capture.waits
        columns = {c: waits[c] for c in {*STREAM, *EVENT}}
        of_work = {c: work.column(c) for c in STREAM}
        context, work_context = key_codes(
            [columns[c] for c in CONTEXT], [of_work[c] for c in CONTEXT]
        )
        stream, work_stream = key_codes([columns[c] for c in STREAM], [of_work[c] for c in STREAM])
        (event,) = key_codes([columns[c] for c in EVENT])
        call = attributed.calls_of(*(waits[c] for c in KEY))
        is_record = waits.kind.among("event_record")
        of_call = np.full(len(work.call_start), NONE)
        rows = np.flatnonzero(~is_record & (call != NONE))
        of_call[call[rows]] = rows
        of_call[work.polls.first] = of_call[work.polls.last]
        record = np.flatnonzero(is_record & (call != NONE) & (columns["event"] != NONE))
        record = record[order_by(event[record], work.call_start[call[record]])]
        return cls(
            of_call=of_call,
            stream=np.where(columns["stream"] == NONE, NONE, stream),
            context=np.where(columns["context"] == NONE, NONE, context),
            event=np.where(columns["event"] == NONE, NONE, event),
            work_stream=work_stream,
            work_context=work_context,
            record=record,
            record_time=work.call_start[call[record]],
        )

    def field(self, values: Ints, call: Ints) -> Ints:
        """Return the value of the record of each API call, NONE where there is none."""
        return lookup(values, self.of_call[call])

    def recorded(self, event: Ints, before: Ints) -> tuple[Ints, Ints]:
        """Return stream and time at which each event was last recorded before a time, or NONE."""
        place = search_groups(
            self.event[self.record], self.record_time, event, before, side="right"
        )
        row = lookup(self.record, place - 1)
        is_known = (event != NONE) & (place > 0) & (lookup(self.event, row) == event)
        stream = np.where(is_known, lookup(self.stream, row), NONE)
        return stream, np.where(is_known, lookup(self.record_time, place - 1, 0), NONE)


def _of_streams(work: Work, records: _Records, call: Ints) -> Pairs:
    """Return API calls that wait for a stream or an event, and the activity that each waits for."""
    if not len(call):
        return call, call
    start, end = work.call_start[call], work.call_end[call]
    process, work_process = _processes(work)
    on_event = calls_matching(work.attributed, EVENT_SYNC)
    on_event[work.polls.first] = True
    on_event = on_event[call]
    event_stream, recorded = records.recorded(
        np.where(on_event, records.field(records.event, call), NONE), start
    )
    stream = np.where(on_event, event_stream, records.field(records.stream, call))
    until = np.where(event_stream != NONE, recorded, start)
    result = np.full(len(call), NONE)
    rows = np.flatnonzero(stream != NONE)
    result[rows] = _Groups(work, records.work_stream).last_of(stream[rows], until[rows])
    is_late = (result != NONE) & (lookup(work.end, result, 0) >= end)
    rows = np.flatnonzero((stream == NONE) | is_late)
    by_process = _Groups(work, work_process)
    result[rows] = by_process.last_ended(process[call[rows]], start[rows], end[rows] - 1)
    return call, result


def _of_devices(work: Work, records: _Records, call: Ints) -> Pairs:
    """Return API calls that wait for a device, and the last activity of each of its streams.

    Without a record of the wait, the call waits for all streams of its process. An activity that an
    earlier call of the thread has waited for is left out.
    """
    if not len(call):
        return call, call
    process, work_process = _processes(work)
    context = records.field(records.context, call)
    stack = work.attributed.attribution.stack[call]
    order = order_by(stack, work.call_start[call])
    call, context, stack = call[order], context[order], stack[order]
    edges = run_edges(work.lane)
    pairs: list[Pairs] = []
    for first, last in pairwise(edges.tolist()):  # one iteration per lane
        waits = np.where(
            context == NONE,
            process[call] == work_process[first],
            context == records.work_context[first],
        )
        rows = np.flatnonzero(waits)
        by_issue = first + order_by(work.issued[first:last])
        place = np.searchsorted(work.issued[by_issue], work.call_start[call[rows]], side="left")
        latest = lookup(_latest_ends(work.end[by_issue], work.rank[by_issue]), place - 1, 0)
        has_ended = (place > 0) & (work.end[by_issue[latest]] < work.call_end[call[rows]])
        rows, activity = rows[has_ended], by_issue[latest[has_ended]]
        is_new = np.ones(len(rows), bool)
        is_new[1:] = (activity[1:] != activity[:-1]) | (stack[rows[1:]] != stack[rows[:-1]])
        pairs.append((call[rows[is_new]], activity[is_new]))
    calls, activities = (np.concatenate(column) for column in zip(*pairs, strict=True))
    return calls, activities


def _latest_ends(end: Ints, rank: Ints) -> Ints:
    """Return the position of the latest end so far, of equal ones that of the highest rank."""
    order = order_by(end, rank)
    by_end = np.empty(len(order), np.int64)
    by_end[order] = np.arange(len(order))
    result: Ints = order[np.maximum.accumulate(by_end)]
    return result


def _processes(work: Work) -> tuple[Ints, Ints]:
    """Return a code for the process of each API call, and of each activity."""
    calls = work.attributed.capture.launches
    process, work_process = key_codes(
        [calls[c] for c in PROCESS], [work.column(c) for c in PROCESS]
    )
    return process, work_process


def _stream_waits(work: Work, records: _Records, call: Ints) -> tuple[Ints, Ints]:
    """Return the activities that waited for another stream, and what each of them waited for.

    ``call`` are the API calls that make a stream wait for an event.
    """
    if not len(call):
        return call, call
    stream, start = records.field(records.stream, call), work.call_start[call]
    call, stream, start = (c[stream != NONE] for c in (call, stream, start))
    order = order_by(records.work_stream, work.issued, work.rank)
    codes = records.work_stream[order]
    place = search_groups(codes, work.issued[order], stream, start, side="left")
    first = lookup(order, place)
    is_next = (first != NONE) & (lookup(records.work_stream, first) == stream)
    call, start, first = call[is_next], start[is_next], first[is_next]
    event_stream, recorded = records.recorded(records.field(records.event, call), start)
    awaited = np.full(len(call), NONE)
    known = event_stream != NONE
    awaited[known] = _Groups(work, records.work_stream).last_of(
        event_stream[known], recorded[known]
    )
    _, process = _processes(work)
    unknown = np.flatnonzero(~known)
    of_process = _Groups(work, process)
    awaited[unknown] = of_process.last_ended(
        process[first[unknown]],
        start[unknown],
        work.start[first[unknown]],
        work.lane[first[unknown]],
    )
    fits = (awaited != NONE) & (work.lane[awaited] != work.lane[first])
    fits &= (work.end[awaited] <= work.start[first]) & (work.rank[awaited] < work.rank[first])
    return first[fits], awaited[fits]
