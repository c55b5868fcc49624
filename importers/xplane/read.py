"""Read a profile of JAX or TensorFlow (an XSpace) into a `Capture`; see docs/formats/xplane.md."""

from __future__ import annotations

import logging
import os
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import numpy as np

from bridge.importers import frames
from bridge.importers.arrays import MISSING, Ints
from bridge.importers.capture import MAX_SPAN_NS, UNREAD, Capture, Facts, Reader
from bridge.importers.errors import NotAReport, NothingRecorded
from bridge.importers.kineto.device import UniqueValues
from bridge.importers.kineto.events import NS_PER_US
from bridge.importers.nsys.tables import JSON, Details, has_detail
from bridge.importers.wire import LARGEST, DamagedMessageError, Wire
from bridge.importers.xplane.device import activities, devices, work_of
from bridge.importers.xplane.hlo import Programs
from bridge.importers.xplane.host import CORRELATION, Host, Places
from bridge.importers.xplane.ops import Ops
from bridge.importers.xplane.space import Part, Space

LOG = logging.getLogger("bridge.importers")

SUFFIX = ".xplane.pb"
HEAD = 64  # bytes that tell a file of another name
PLANE = b"\x0a"  # the tag of a plane, with which a space begins
MARKS = (b"/host:", b"/device:", b"Task Environment")  # in the names of the first plane
HOST = "/host:"
NOT_EVENTS = ("/host:metadata", "/host:__ScopeRangeCallStack__", "/host:tfstreamz")
STARTED = "profile_start_time"  # stat of a plane: the time since the epoch at which times are 0
PRODUCT = "XLA profiler"
MOST_WARNINGS, LONGEST_WARNING = 10, 300  # lines, and characters of one
EPOCH = 10**17  # a time above it is one since the Unix epoch
DAMAGED = "cut off or damaged; copy it again, or profile again"


def is_xplane(path: Path) -> bool:
    """Return whether a file is an XSpace, by its name or its first bytes."""
    if path.name.endswith(SUFFIX):
        return True
    with path.open("rb") as file:
        head = file.read(HEAD)
    return head.startswith(PLANE) and any(mark in head for mark in MARKS)


def read(path: Path, details: Details = True) -> Capture:
    """Read a profile; raises a `ReportError` if it is damaged or nothing was recorded."""
    name = os.fsencode(path.name).decode(errors="replace")
    if path.stat().st_size > LARGEST:
        raise NotAReport(f"{name}: larger than 2 GiB, which no profile of this format is")
    try:
        space = Space.of(Wire.of(path))
        programs = Programs(space)
    except DamagedMessageError as error:
        raise NotAReport(f"{name}: {DAMAGED}") from error
    LOG.debug(
        "%s: %d planes, %d events, %d stats",
        name,
        len(space.planes),
        len(space.events),
        len(space.stats),
    )
    return _capture(name, space, programs, with_json=has_detail(details, JSON))


def _capture(name: str, space: Space, programs: Programs, *, with_json: bool) -> Capture:
    if not len(space.events):
        raise NothingRecorded(f"{name}: no events; did the profiled part run anything?")
    space, zero = _from_zero(space)
    on_host = space.planes.matching(
        lambda plane: plane.startswith(HOST) and plane not in NOT_EVENTS
    )
    host_part = Part.of(space, np.flatnonzero(on_host[space.events.plane]))
    work, unread = work_of(space)
    ops = Ops.of([host_part, work], programs)
    places = Places.of(space)
    host = Host.of(host_part, ops.numbers[0], ops.ops, places)
    launches, launched = host.launches(), _op_by_call(work, ops.numbers[1])
    ranges, texts = host.ranges(launches, launched, with_json=with_json)
    activity_frame = activities(space, work, places.process)
    tables = [table for table in (ranges, launches, activity_frame) if len(table)]
    if not tables:
        raise NothingRecorded(f"{name}: no events of the host, and no work of a GPU")
    facts = Facts(
        product=PRODUCT,
        schema="",
        span=(min(int(t.start.min()) for t in tables), max(int(t.end.max()) for t in tables)),
        warnings=tuple(_warnings(name, space, activity_frame, unread)),
        epoch_ns=_epoch(space, zero),
        metadata={"host": space.hosts[0]} if space.hosts else {},
        beside={UNREAD: unread} if unread else {},
    )
    return Capture(
        source=(name,),
        facts=(facts,),
        ranges=ranges,
        launches=launches,
        activities=activity_frame,
        marks=host.marks(),
        threads=places.threads(space, np.unique(host_part.events.line)),
        processes=frames.Processes(process=np.array([places.process]), name=frames.Names.of([""])),
        devices=devices(space, activity_frame),
        texts=texts,
    )


def _from_zero(space: Space) -> tuple[Space, int]:
    """Return the profile with times from one µs before its first event, and that time."""
    zero = int(space.events.start.min()) - NS_PER_US
    start, end = space.events.start - zero, space.events.end - zero
    return replace(space, events=space.events.replace(start=start, end=end)), zero


def _epoch(space: Space, zero: int) -> int:
    """Return the time since the epoch at which times are 0, in ns; -1 if the file does not tell it.

    Times of events are counted from the start of the profiler, which the file tells, or from the epoch.
    """
    if zero > EPOCH:
        return zero
    started = int(space.plane_stats.integers(STARTED, len(space.planes)).max(initial=MISSING))
    return started + zero if EPOCH < started < MAX_SPAN_NS else MISSING


def _op_by_call(work: Part, op: Ints) -> UniqueValues:
    """Map correlation ids to the op that all work of the call is of; a call of a graph may have several."""
    correlation = work.integers(CORRELATION)
    rows = np.flatnonzero(correlation != MISSING)
    return UniqueValues(correlation[rows], op[rows])


def _warnings(name: str, space: Space, activities: frames.Activities, unread: int) -> Iterator[str]:
    if unread and not len(activities):
        yield f"{name}: no work of GPUs; the {unread} events of other devices are not read"
    elif not len(activities):
        yield f"{name}: no kernels, memcpys or memsets: host times alone"
    if space.broken:
        yield f"{name}: {space.broken} events left out: without a name or a possible time, or sums of several"
    if not space.hosts:
        yield f"{name}: it ends without the name of its host, which the profiler writes last: it may be cut off"
    for warning in space.warnings[:MOST_WARNINGS]:
        yield f"{name}: the profiler says: {' '.join(warning.split())[:LONGEST_WARNING]}"


READER = Reader("xplane", is_xplane, read)
