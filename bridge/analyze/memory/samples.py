"""Analyse samples of memory: the peaks of each device, with the op and step of the sample.

Samples are counters of the domain `memory` such as ``cuda:0 allocated``, ``cuda:0 reserved`` and
``host resident``. Memory between two samples is unknown, so a peak is a lower bound.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np
import pandas as pd

from bridge.analyze.groups import counts, highest, ratio, texts
from bridge.analyze.memory.usage import NAMES, NO_OP, PID_BITS, innermost_open
from bridge.join.arrays import NONE, Flags, Ints, number_groups, order_by
from bridge.join.attributed import AttributedCapture
from importers import frames
from importers.frames import COUNTER

DOMAIN = "memory"
PID = 0xFFFFFF
RESERVED = "reserved"
USED = ("allocated", "resident", "in use")


@dataclass(frozen=True)
class Samples:
    """The samples of a capture by process, device and time: used and reserved bytes.

    Reserved bytes are -1 where they were not sampled.
    """

    attributed: AttributedCapture
    row: Ints  # of `marks`, with used memory
    device: Ints  # code of `devices`
    devices: tuple[str, ...]
    used: Ints
    reserved: Ints

    @classmethod
    def of(cls, attributed: AttributedCapture) -> Samples:
        """Return the samples of a capture.

        A sample of reserved memory belongs to the sample of used memory just before it.
        """
        marks = attributed.capture.marks
        kind, device, devices = _parse_marks(attributed)
        rows = np.flatnonzero(kind != NONE)
        keys = [frames.ints(marks, c)[rows] for c in ("report", "process", "thread")]
        order = rows[order_by(*keys, device[rows], frames.ints(marks, "time")[rows])]
        value, is_used = frames.ints(marks, "payload")[order], kind[order] == 0
        used_positions = np.flatnonzero(is_used)
        next_position = np.minimum(used_positions + 1, max(0, len(order) - 1))
        has_reserved = (
            ~is_used[next_position]
            & (device[order][next_position] == device[order][used_positions])
            if len(used_positions)
            else used_positions
        )
        reserved = (
            np.where(has_reserved, value[next_position], NONE)
            if len(used_positions)
            else used_positions
        )
        used_rows = order[used_positions]
        row_keys = [frames.ints(marks, c)[used_rows] for c in ("report", "process")]
        sorted_order = order_by(*row_keys, device[used_rows], frames.ints(marks, "time")[used_rows])
        used_rows, used, reserved = (
            used_rows[sorted_order],
            value[used_positions][sorted_order],
            reserved[sorted_order],
        )
        return cls(attributed, used_rows, device[used_rows], devices, used, reserved)

    def __len__(self) -> int:
        return len(self.row)

    @cached_property
    def op(self) -> Ints:
        """The code of the op in which each sample was taken, NONE for none."""
        marks = self.attributed.capture.marks
        node = innermost_open(self.attributed, marks, self.row, self.time)
        result: Ints = np.append(self.attributed.node_op, NONE)[node]
        return result

    @cached_property
    def step(self) -> Ints:
        """The number of the step in which each sample was taken, NONE for none."""
        marks, iterations = self.attributed.capture.marks, self.attributed.iterations
        report, process = (frames.ints(marks, c)[self.row] for c in ("report", "process"))
        at: Ints = np.append(iterations.number, NONE)[iterations.at(report, process, self.time)]
        return at

    @cached_property
    def time(self) -> Ints:
        """The time of each sample in ns, by the clock of its file."""
        return frames.ints(self.attributed.capture.marks, "time")[self.row]


def by_sample(samples: Samples) -> pd.DataFrame:
    """Return one row per sample, numbered per device in time order; -1 is unknown."""
    _, first = number_groups(*_device_keys(samples))
    starts = np.sort(first) if len(first) else first
    since = (
        np.arange(len(samples))
        - starts[np.searchsorted(starts, np.arange(len(samples)), "right") - 1]
    )
    return pd.DataFrame(
        {
            "trace": since,
            "time_ns": samples.time - samples.attributed.capture.began,
            **_device_columns(samples, np.arange(len(samples))),
            "op": _op_names(samples, samples.op),
            "step": samples.step,
            "used_bytes": samples.used,
            "reserved_bytes": samples.reserved,
        }
    )


def samples_by_op(samples: Samples) -> pd.DataFrame:
    """Return one row per op and device: number of samples, maximum used and reserved bytes."""
    group, first = number_groups(samples.op, *_device_keys(samples))
    table = pd.DataFrame(
        {
            "op": _op_names(samples, samples.op[first]),
            **_device_columns(samples, first),
            "samples": counts(group, len(first)),
            "peak_bytes": highest(group, samples.used, len(first)),
            "peak_reserved_bytes": highest(group, samples.reserved, len(first)),
        }
    )
    return table.sort_values(["peak_bytes", "op"], ascending=[False, True], ignore_index=True)


def sample_peaks(samples: Samples) -> pd.DataFrame:
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
    table = pd.DataFrame(
        {
            **_device_columns(samples, first),
            "samples": counts(group, len(first)),
            "peak_bytes": samples.used[used],
            **_peak_columns(samples, "peak", used, np.ones(len(first), bool)),
            "peak_reserved_bytes": samples.reserved[reserved],
            **_peak_columns(samples, "reserved", reserved, is_known),
            "fragmentation": np.where(is_known, unused, NONE),
        }
    )
    return table.sort_values("peak_bytes", ascending=False, ignore_index=True, kind="stable")


def _highest(group: Ints, level: Ints, groups: int) -> Ints:
    """Return the first row of each group with its maximum."""
    order = order_by(group, -level)
    return order[np.searchsorted(group[order], np.arange(groups))]


def _device_keys(samples: Samples) -> list[Ints]:
    marks = samples.attributed.capture.marks
    return [*(frames.ints(marks, c)[samples.row] for c in ("report", "process")), samples.device]


def _device_columns(samples: Samples, rows: Ints) -> dict[str, Ints | NAMES]:
    process = frames.ints(samples.attributed.capture.marks, "process")[samples.row[rows]]
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
    """Return of each mark 0 (used), 1 (reserved) or NONE, and its device; then all devices."""
    marks = attributed.capture.marks
    names = [_parse_name(name) for name in marks["name"].cat.categories]
    devices = tuple(sorted({device for kind, device in names if kind != NONE}))
    code_of_device = {device: code for code, device in enumerate(devices)}
    is_memory_domain = np.array(
        [*(n == DOMAIN for n in marks["domain_name"].cat.categories), False]
    )
    name, domain = frames.codes(marks["name"]), frames.codes(marks["domain_name"])
    kind = np.array([*(kind for kind, _ in names), NONE], np.int64)[name]
    device = np.array([*(code_of_device.get(device, NONE) for _, device in names), NONE], np.int64)[
        name
    ]
    return np.where(is_memory_domain[domain], kind, NONE), device, devices


def _parse_name(name: str) -> tuple[int, str]:
    """Return kind and device in the name of a counter, NONE and '' for other counters."""
    text = name.removeprefix(COUNTER)
    for kind, words in enumerate((USED, (RESERVED,))):
        for word in words:
            if name.startswith(COUNTER) and text.endswith(f" {word}"):
                return kind, text.removesuffix(f" {word}")
    return NONE, ""
