"""Analyse samples of memory: the peaks of each device, with the op and step of the sample.

Samples are counters of the domain `memory` such as ``cuda:0 allocated``, ``cuda:0 reserved`` and
``host resident``. Memory between two samples is unknown, so a peak is a lower bound.
"""

from __future__ import annotations

from functools import cached_property

import numpy as np

from bridge.analyze.core.groups import counts, highest, ratio, texts
from bridge.analyze.core.table import Table
from bridge.analyze.cost.memory.usage import NAMES, NO_OP, PID_BITS, innermost_open
from bridge.importers.arrays import lookup
from bridge.importers.frames import COUNTER
from bridge.importers.records import record
from bridge.join.arrays import NONE, Flags, Ints, number_groups, order_by
from bridge.join.attributed import AttributedCapture

DOMAIN = "memory"
PID = 0xFFFFFF
RESERVED, PROCESS = "reserved", "process"
USED = ("allocated", "resident", "in use")
USED_KIND, RESERVED_KIND, PROCESS_KIND = range(3)


@record
class Samples:
    """The samples of a capture by process, device and time: used and reserved bytes.

    ``process_bytes`` is what the process had on the GPU by NVML, driver and libraries included.
    Reserved bytes and those of the process are -1 where they were not sampled.
    """

    attributed: AttributedCapture
    row: Ints  # of `marks`, with used memory
    device: Ints  # code of `devices`
    devices: tuple[str, ...]
    used: Ints
    reserved: Ints
    process_bytes: Ints

    @classmethod
    def of(cls, attributed: AttributedCapture) -> Samples:
        """Return the samples of a capture.

        A sample of reserved memory, and of the process's, belongs to the sample of used memory just
        before it.
        """
        marks = attributed.capture.marks
        kind, device, devices = _parse_marks(attributed)
        rows = np.flatnonzero(kind != NONE)
        keys = [marks.report[rows], marks.process[rows], marks.thread[rows]]
        order = rows[order_by(*keys, device[rows], marks.time[rows])]
        value = marks.payload[order]
        used = np.flatnonzero(kind[order] == USED_KIND)
        reserved = _after(
            used, used + 1, kind=kind[order], device=device[order], wanted=RESERVED_KIND
        )
        next_place = np.where(reserved == NONE, used, reserved) + 1
        process = _after(
            used, next_place, kind=kind[order], device=device[order], wanted=PROCESS_KIND
        )
        used_rows = order[used]
        row_keys = [marks.report[used_rows], marks.process[used_rows]]
        by_time = order_by(*row_keys, device[used_rows], marks.time[used_rows])
        columns = [lookup(value, place[by_time]) for place in (used, reserved, process)]
        used_rows = used_rows[by_time]
        return cls(attributed, used_rows, device[used_rows], devices, *columns)

    @property
    def driver_bytes(self) -> Ints:
        """What the process has on the GPU beside its allocator: driver, context, libraries; -1 if unknown."""
        held = np.where(self.reserved == NONE, self.used, self.reserved)
        unknown = self.process_bytes == NONE
        result: Ints = np.where(unknown, NONE, np.maximum(self.process_bytes - held, 0))
        return result

    def __len__(self) -> int:
        return len(self.row)

    @cached_property
    def op(self) -> Ints:
        """The code of the op in which each sample was taken, NONE for none."""
        marks = self.attributed.capture.marks
        node = innermost_open(self.attributed, marks, self.row, self.time)
        result: Ints = lookup(self.attributed.node_op, node)
        return result

    @cached_property
    def step(self) -> Ints:
        """The number of the step in which each sample was taken, NONE for none."""
        marks, iterations = self.attributed.capture.marks, self.attributed.iterations
        report, process = marks.report[self.row], marks.process[self.row]
        at: Ints = lookup(iterations.number, iterations.at(report, process, self.time))
        return at

    @cached_property
    def time(self) -> Ints:
        """The time of each sample in ns, by the clock of its file."""
        return self.attributed.capture.marks.time[self.row]


def _after(used: Ints, place: Ints, kind: Ints, device: Ints, wanted: int) -> Ints:
    """Return the place after each sample of used memory if it holds a sample of a kind, else NONE."""
    padded_kind, padded_device = np.append(kind, NONE), np.append(device, NONE)
    fits = (padded_kind[place] == wanted) & (padded_device[place] == padded_device[used])
    return np.where(fits, place, NONE)


def by_sample(samples: Samples) -> Table:
    """Return one row per sample, numbered per device in time order; -1 is unknown."""
    _, first = number_groups(*_device_keys(samples))
    starts = np.sort(first) if len(first) else first
    since = (
        np.arange(len(samples))
        - starts[np.searchsorted(starts, np.arange(len(samples)), "right") - 1]
    )
    return Table(
        {
            "trace": since,
            "time_ns": samples.time - samples.attributed.capture.began,
            **_device_columns(samples, np.arange(len(samples))),
            "op": _op_names(samples, samples.op),
            "step": samples.step,
            "used_bytes": samples.used,
            "reserved_bytes": samples.reserved,
            "driver_bytes": samples.driver_bytes,
        }
    )


def samples_by_op(samples: Samples) -> Table:
    """Return one row per op and device: number of samples, maximum used and reserved bytes."""
    group, first = number_groups(samples.op, *_device_keys(samples))
    table = Table(
        {
            "op": _op_names(samples, samples.op[first]),
            **_device_columns(samples, first),
            "samples": counts(group, len(first)),
            "peak_bytes": highest(group, samples.used, len(first)),
            "peak_reserved_bytes": highest(group, samples.reserved, len(first)),
        }
    )
    return table.sort_values(["peak_bytes", "op"], ascending=[False, True])


def sample_peaks(samples: Samples) -> Table:
    """Return one row per process and device with the peaks of used and reserved memory.

    The highest peak comes first. Each peak is the first maximum of its own, with time, op and step.
    ``fragmentation`` is the share of the reserved peak that was unused then.
    """
    group, first = number_groups(*_device_keys(samples))
    used, reserved = (
        _highest(group, level, len(first)) for level in (samples.used, samples.reserved)
    )
    is_known = samples.reserved[reserved] != NONE
    unused = 1 - ratio(samples.used[reserved], np.where(is_known, samples.reserved[reserved], 1))
    table = Table(
        {
            **_device_columns(samples, first),
            "samples": counts(group, len(first)),
            "peak_bytes": samples.used[used],
            **_peak_columns(samples, "peak", used, np.ones(len(first), bool)),
            "peak_reserved_bytes": samples.reserved[reserved],
            **_peak_columns(samples, "reserved", reserved, is_known),
            "fragmentation": np.where(is_known, unused, NONE),
            "driver_bytes": highest(group, samples.driver_bytes, len(first)),
        }
    )
    return table.sort_values("peak_bytes", ascending=False)


def _highest(group: Ints, level: Ints, groups: int) -> Ints:
    """Return the first row of each group with its maximum."""
    order = order_by(group, -level)
    return order[np.searchsorted(group[order], np.arange(groups))]


def _device_keys(samples: Samples) -> list[Ints]:
    marks = samples.attributed.capture.marks
    return [marks.report[samples.row], marks.process[samples.row], samples.device]


def _device_columns(samples: Samples, rows: Ints) -> dict[str, Ints | NAMES]:
    process = samples.attributed.capture.marks.process[samples.row[rows]]
    names = texts([*samples.devices])
    return {"pid": process >> PID_BITS & PID, "device": names[samples.device[rows]]}


def _peak_columns(
    samples: Samples, prefix: str, rows: Ints, is_known: Flags
) -> dict[str, Ints | NAMES]:
    time = samples.time[rows] - samples.attributed.capture.began
    return {
        f"{prefix}_ns": np.where(is_known, time, NONE),
        f"{prefix}_op": np.where(is_known, _op_names(samples, samples.op[rows]), ""),
        f"{prefix}_step": np.where(is_known, samples.step[rows], NONE),
    }


def _op_names(samples: Samples, op: Ints) -> NAMES:
    return texts([*samples.attributed.ops, NO_OP])[op]


def _parse_marks(attributed: AttributedCapture) -> tuple[Ints, Ints, tuple[str, ...]]:
    """Return the kind of memory of each mark or NONE, and its device; then all devices."""
    marks = attributed.capture.marks
    names = [_parse_name(name) for name in marks.name.texts]
    devices = tuple(sorted({device for kind, device in names if kind != NONE}))
    code_of_device = {device: code for code, device in enumerate(devices)}
    name = marks.name.codes
    kind = np.array([*(kind for kind, _ in names), NONE], np.int64)[name]
    device = np.array([*(code_of_device.get(device, NONE) for _, device in names), NONE], np.int64)[
        name
    ]
    return np.where(marks.domain_name.among(DOMAIN), kind, NONE), device, devices


def _parse_name(name: str) -> tuple[int, str]:
    """Return kind and device in the name of a counter, NONE and '' for other counters."""
    text = name.removeprefix(COUNTER)
    for kind, words in enumerate((USED, (RESERVED,), (PROCESS,))):
        for word in words:
            if name.startswith(COUNTER) and text.endswith(f" {word}"):
                return kind, text.removesuffix(f" {word}")
    return NONE, ""
