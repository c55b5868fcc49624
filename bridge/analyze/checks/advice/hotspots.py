"""Rules about where a busy GPU works: one kernel that takes most time, copies while nothing computes."""

from __future__ import annotations

import re

import numpy as np

from bridge.analyze.checks.advice import rule
from bridge.analyze.checks.advice.facts import Evidence
from bridge.analyze.checks.advice.rule import NSIGHT_BRIDGE, Finding
from bridge.analyze.checks.check import Check
from bridge.analyze.core import no_timeline
from bridge.analyze.core.groups import sums
from bridge.analyze.run import interventions
from bridge.analyze.run.critical.retiming import Change
from bridge.importers import frames
from bridge.join.arrays import NONE, Flags, Ints, busy_time

MIN_HOTSPOT = 0.25  # of the time of all work of a GPU, that a kernel takes
MAIN_HOTSPOT = 0.5  # of it, from which on nothing matters more if the GPU is busy
BUSY = 0.85  # of the time from its first work to its last
MIN_HOTSPOT_OF_SPAN = 0.1  # of the run
MIN_COPIES = 0.5  # of the time in which a GPU works
MIN_COPIES_OF_SPAN = 0.05


def kernel_hotspot(evidence: Evidence) -> Finding | None:
    """Find the kernel that takes most time of a GPU."""
    code = evidence.attributed.activity_name.codes
    kernels = np.flatnonzero(evidence.computing & (code != NONE))
    if not len(kernels):
        return None
    name, gpu = code[kernels], evidence.devices.gpu[kernels]
    size, gpus = int(name.max()) + 1, len(evidence.devices.names)
    spent = sums(gpu * size + name, evidence.time[kernels], gpus * size).reshape(-1, size)
    device, main = (int(place) for place in np.unravel_index(spent.argmax(), spent.shape))
    whole = int(evidence.time[evidence.counted & (evidence.devices.gpu == device)].sum())
    timed = no_timeline.has_timeline(evidence.capture)
    if spent[device, main] < max(
        (MIN_HOTSPOT if timed else MAIN_HOTSPOT) * whole, MIN_HOTSPOT_OF_SPAN * evidence.wall_ns
    ):
        return None
    is_main = not timed or (
        spent[device, main] >= MAIN_HOTSPOT * whole and _is_busy(evidence, device)
    )
    rows = kernels[name == main]
    short = evidence.capture.activities.name[rows[0]]
    figures = {
        "pattern": re.escape(short),
        "kernel": str(evidence.attributed.activity_name.texts[main]),
        "launches": int((evidence.devices.gpu[rows] == device).sum()),
        "kernel_ns": int(spent[device, main]),
        "time_share": int(spent[device, main]) / max(1, whole),
    }
    table = rule.activity_table(evidence, rows)
    if not evidence.has_graph:
        return Finding(figures, table, int(spent[device, main]), is_named=is_main)
    limit = _without(evidence, rows)
    return Finding(figures, table, limit=limit, is_named=is_main, is_open=not is_main)


def _is_busy(evidence: Evidence, device: int) -> bool:
    """Return whether a GPU works for most of the time from its first work to its last."""
    gpu = evidence.gpus[evidence.gpus["device"] == evidence.devices.names[device]].row(0)
    return bool(gpu["busy_ns"] >= BUSY * gpu["span_ns"])


def _without(evidence: Evidence, rows: Ints) -> Change:
    """Return the change that some activities take no time."""
    selected = np.zeros(len(evidence.time), bool)
    selected[rows] = True
    return interventions.faster_work(
        evidence.run, interventions.work_places(evidence.run, selected), 0.0
    )


def copies_alone(evidence: Evidence) -> Finding | None:
    """Find GPUs that mostly copy, while no kernel runs."""
    copies = evidence.is_kind(frames.MEMCPY)
    others = evidence.counted & ~copies
    busy, computing = _busy(evidence, evidence.counted), _busy(evidence, others)
    alone = busy - computing
    if not len(alone):
        return None
    device = int(alone.argmax())
    if alone[device] <= max(MIN_COPIES * busy[device], MIN_COPIES_OF_SPAN * evidence.span_ns):
        return None
    rows = np.flatnonzero(copies)
    direction = evidence.capture.activities.copy_kind[rows]
    by_direction = np.bincount(np.maximum(direction, 0), evidence.time[rows])
    table = rule.activity_table(evidence, rows)
    main = int(by_direction.argmax())
    figures = {
        "device": evidence.devices.names[device],
        "alone_ns": int(alone[device]),
        "busy_share": alone[device] / busy[device],
        "direction": DIRECTIONS.get(main, "other"),
        "direction_share": by_direction[main] / by_direction.sum(),
    }
    if not evidence.has_graph:
        return Finding(figures, table, int(alone[device]))
    change = interventions.hidden(evidence.run, copies)
    return Finding(figures, table, change=change, limit=_without(evidence, rows), is_named=True)


DIRECTIONS = {1: "host-to-device", 2: "device-to-host", 8: "device-to-device", 10: "peer-to-peer"}


def _busy(evidence: Evidence, selected: Flags) -> Ints:
    """Return for how long any of some activities ran on each GPU."""
    rows = np.flatnonzero(selected)
    start = evidence.capture.activities.start[rows]
    size = len(evidence.devices.names)
    return busy_time(evidence.devices.gpu[rows], start, evidence.attributed.end[rows], size)


RULES = (
    Check(
        name="kernel-hotspot",
        title="One kernel takes much of a GPU's time",
        when=f"a kernel takes at least {MIN_HOTSPOT:.0%} of the time of all work of a GPU ({MAIN_HOTSPOT:.0%} without a timeline), and {MIN_HOTSPOT_OF_SPAN:.0%} of the run",
        text="the kernel {kernel} takes {kernel_ns} in {launches} launches, {time_share} of the time of all work",
        remedy="look into this kernel: ncu --set full --kernel-name regex:{pattern} -o FILE PROGRAM, then bridge advise REPORT --ncu FILE.ncu-rep",
        source=NSIGHT_BRIDGE,
        needs=("kernels",),
        find=kernel_hotspot,
        timeline=False,
    ),
    Check(
        name="memcpy-bound",
        title="The GPU mostly copies, while no kernel runs",
        when=f"copies run alone for more than {MIN_COPIES:.0%} of the time in which a GPU works, and {MIN_COPIES_OF_SPAN:.0%} of that from its first work to its last",
        text="copies run alone on {device} for {alone_ns}, {busy_share} of the time in which it works; {direction_share} of copy time is {direction}",
        remedy="keep data on the GPU; copy on a separate stream from pinned memory, while kernels run (prefetch the next part)",
        estimate="the run with copies beside kernels, as long as there are kernels",
        source=NSIGHT_BRIDGE,
        needs=("work",),
        find=copies_alone,
    ),
)
