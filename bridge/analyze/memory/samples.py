"""What samples of memory tell: of each device the peaks, with the op and the step in which they were seen.

Samples are counters of the domain `memory`: ``cuda:0 allocated``, ``cuda:0 reserved``, ``host resident``. Between
two samples nothing is known, so a peak is at least what is said.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np
import pandas as pd

from bridge.analyze.groups import counts, highest, ratio, texts
from bridge.analyze.memory.usage import NAMES, NO_OP, PID_BITS, open_on
from bridge.join.arrays import NONE, Flags, Ints, by, number
from bridge.join.attributed import Attributed
from importers import frames
from importers.frames import COUNTER

DOMAIN = "memory"
PID = 0xFFFFFF
RESERVED = "reserved"
USED = ("allocated", "resident", "in use")


@dataclass(frozen=True)
class Samples:
    """The samples of a report in order of process, device and time: used bytes, and reserved ones, -1 where none were told."""

    joined: Attributed
    row: Ints  # of `marks`: where used memory was told
    device: Ints  # code of `devices`
    devices: tuple[str, ...]
    used: Ints
    reserved: Ints

    @classmethod
    def of(cls, joined: Attributed) -> Samples:
        """Take them from a report; a sample of reserved memory goes with that of used memory just before it."""
        marks = joined.report.marks
        kind, device, devices = _kinds(joined)
        rows = np.flatnonzero(kind != NONE)
        keys = [frames.ints(marks, c)[rows] for c in ("report", "process", "thread")]
        order = rows[by(*keys, device[rows], frames.ints(marks, "time")[rows])]
        value, is_used = frames.ints(marks, "payload")[order], kind[order] == 0
        at = np.flatnonzero(is_used)
        after = np.minimum(at + 1, max(0, len(order) - 1))
        same = ~is_used[after] & (device[order][after] == device[order][at]) if len(at) else at
        reserved = np.where(same, value[after], NONE) if len(at) else at
        own = order[at]
        where = [frames.ints(marks, c)[own] for c in ("report", "process")]
        in_time = by(*where, device[own], frames.ints(marks, "time")[own])
        own, used, reserved = own[in_time], value[at][in_time], reserved[in_time]
        return cls(joined, own, device[own], devices, used, reserved)

    def __len__(self) -> int:
        return len(self.row)

    @cached_property
    def op(self) -> Ints:
        """The code of the op in which each sample was taken, NONE for none."""
        marks = self.joined.report.marks
        node = open_on(self.joined, marks, self.row, self.time)
        found: Ints = np.append(self.joined.node_op, NONE)[node]
        return found

    @cached_property
    def step(self) -> Ints:
        """The number of the step in which each sample was taken, NONE for none."""
        marks, iterations = self.joined.report.marks, self.joined.iterations
        report, process = (frames.ints(marks, c)[self.row] for c in ("report", "process"))
        at: Ints = np.append(iterations.number, NONE)[iterations.at(report, process, self.time)]
        return at

    @cached_property
    def time(self) -> Ints:
        """When each was taken, in ns of the report's clock."""
        return frames.ints(self.joined.report.marks, "time")[self.row]


def by_sample(samples: Samples) -> pd.DataFrame:
    """Return one row per sample, numbered within its device in order of time; reserved is -1 where no one says it."""
    _, first = number(*_places(samples))
    starts = np.sort(first) if len(first) else first
    since = (
        np.arange(len(samples))
        - starts[np.searchsorted(starts, np.arange(len(samples)), "right") - 1]
    )
    return pd.DataFrame(
        {
            "trace": since,
            "time_ns": samples.time - samples.joined.report.began,
            **_where(samples, np.arange(len(samples))),
            "op": _ops(samples, samples.op),
            "step": samples.step,
            "used_bytes": samples.used,
            "reserved_bytes": samples.reserved,
        }
    )


def by_op(samples: Samples) -> pd.DataFrame:
    """Return one row per op and device: how many samples, and the most used and reserved that they saw."""
    group, first = number(samples.op, *_places(samples))
    table = pd.DataFrame(
        {
            "op": _ops(samples, samples.op[first]),
            **_where(samples, first),
            "samples": counts(group, len(first)),
            "peak_bytes": highest(group, samples.used, len(first)),
            "peak_reserved_bytes": highest(group, samples.reserved, len(first)),
        }
    )
    return table.sort_values(["peak_bytes", "op"], ascending=[False, True], ignore_index=True)


def peaks(samples: Samples) -> pd.DataFrame:
    """Return one row per process and device, the highest peak first: the peak of used and of reserved memory.

    Each is its own maximum, the first of equal ones, with its time, op and step; fragmentation is the share of the
    peak reserved that was not used then.
    """
    group, first = number(*_places(samples))
    used, reserved = (
        _highest(group, level, len(first)) for level in (samples.used, samples.reserved)
    )
    told = samples.reserved[reserved] != NONE
    unused = 1 - ratio(samples.used[reserved], np.where(told, samples.reserved[reserved], 1))
    table = pd.DataFrame(
        {
            **_where(samples, first),
            "samples": counts(group, len(first)),
            "peak_bytes": samples.used[used],
            **_when(samples, "peak", used, np.ones(len(first), bool)),
            "peak_reserved_bytes": samples.reserved[reserved],
            **_when(samples, "reserved", reserved, told),
            "fragmentation": np.where(told, unused, NONE),
        }
    )
    return table.sort_values("peak_bytes", ascending=False, ignore_index=True, kind="stable")


def _highest(group: Ints, level: Ints, groups: int) -> Ints:
    """Return the first row of each group that has its greatest value."""
    order = by(group, -level)
    return order[np.searchsorted(group[order], np.arange(groups))]


def _places(samples: Samples) -> list[Ints]:
    marks = samples.joined.report.marks
    return [*(frames.ints(marks, c)[samples.row] for c in ("report", "process")), samples.device]


def _where(samples: Samples, rows: Ints) -> dict[str, Ints | NAMES]:
    process = frames.ints(samples.joined.report.marks, "process")[samples.row[rows]]
    names = texts([*samples.devices])
    return {"pid": process >> PID_BITS & PID, "device": names[samples.device[rows]]}


def _when(samples: Samples, what: str, rows: Ints, told: Flags) -> dict[str, Ints | NAMES]:
    time = samples.time[rows] - samples.joined.report.began
    return {
        f"{what}_ns": np.where(told, time, NONE),
        f"{what}_op": np.where(told, _ops(samples, samples.op[rows]), ""),
        f"{what}_step": np.where(told, samples.step[rows], NONE),
    }


def _ops(samples: Samples, op: Ints) -> NAMES:
    return texts([*samples.joined.ops, NO_OP])[op]


def _kinds(joined: Attributed) -> tuple[Ints, Ints, tuple[str, ...]]:
    """Return of each mark 0 (used), 1 (reserved) or NONE, and the code of its device; and the devices."""
    marks = joined.report.marks
    names = [_kind(name) for name in marks["name"].cat.categories]
    devices = tuple(sorted({device for kind, device in names if kind != NONE}))
    at = {device: code for code, device in enumerate(devices)}
    of_domain = np.array([*(n == DOMAIN for n in marks["domain_name"].cat.categories), False])
    name, domain = frames.codes(marks["name"]), frames.codes(marks["domain_name"])
    kind = np.array([*(kind for kind, _ in names), NONE], np.int64)[name]
    device = np.array([*(at.get(device, NONE) for _, device in names), NONE], np.int64)[name]
    return np.where(of_domain[domain], kind, NONE), device, devices


def _kind(name: str) -> tuple[int, str]:
    """Return what a counter's name says: 0 or 1 and the device, NONE and '' for another one."""
    text = name.removeprefix(COUNTER)
    for kind, words in enumerate((USED, (RESERVED,))):
        for word in words:
            if name.startswith(COUNTER) and text.endswith(f" {word}"):
                return kind, text.removesuffix(f" {word}")
    return NONE, ""
