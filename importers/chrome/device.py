"""Device work of a trace as frames: `activities` and `devices`, as far as the producer tells."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

import numpy as np

from bridge.importers import frames
from bridge.importers.arrays import MISSING, Ints
from bridge.importers.chrome.events import Slices, distinct
from bridge.importers.chrome.producers import Expression, Producer
from bridge.importers.kineto.device import short_name
from bridge.importers.kineto.events import clean, integers
from bridge.importers.nsys.schema import COPY_KINDS, FILL
from bridge.importers.texts import unique_names

# Copies and memsets by their names, with the ends of a copy: MemcpyH2D, MEMCPYHtoD, HostToDevice.
COPY = re.compile(r"(?i)memcpy|^(host|device)to(host|device)$")
SET = re.compile(r"(?i)memset")
WAY = re.compile(r"(?i)(h|d|p|host|device|peer)(?:to|2)(h|d|p|host|device|peer)(?![a-z])")
ENDS = {"h": "Host", "d": "Device", "p": "Peer"}
UNKNOWN_COPY = "Unknown"
FIRST_DEVICE = 0  # stands for a device whose number the trace does not tell


def activities(
    work: Slices, producer: Producer, labels: Sequence[str], process: Ints, correlation: Ints
) -> frames.Activities:
    """Return the frame `activities`; ``labels`` are the names of process and thread of each slice."""
    columns = {
        "start": work.start,
        "end": work.end,
        "process": process,
        "device": np.maximum(_numbers_in(labels, producer.device), FIRST_DEVICE),
        "stream": _numbers_in(labels, producer.stream),
        "correlation": correlation,
        **{
            column: _argument(work, argument, expression)
            for column, (argument, expression) in producer.numbers.items()
        },
        **_named_columns(work),
    }
    return frames.Activities(columns)


def device_frame(activities: frames.Activities) -> frames.Devices:
    """Return the frame `devices`: a row per process and device that was used."""
    used = frames.used_devices(activities)
    process, device = activities.process[used], activities.device[used]
    name = frames.Names(np.zeros(len(used), np.int64), [""])
    return frames.Devices(process=process, device=device, gpu=device, name=name)


def _named_columns(work: Slices) -> dict[str, Any]:
    code, values = distinct([clean(name) for name in work.name])
    return named_columns(code, values, [kind_of(name) for name in values])


def named_columns(code: Ints, values: Sequence[str], kinds: Sequence[str]) -> dict[str, Any]:
    """Return the columns that the names of device work give, and their kinds: kind, direction and names.

    ``code`` is a number into names and kinds per row.
    """
    ways = [
        _way(name) if kind == frames.MEMCPY else ""
        for name, kind in zip(values, kinds, strict=True)
    ]
    short = [
        _short_name(name, kind, way) for name, kind, way in zip(values, kinds, ways, strict=True)
    ]
    full = [
        name if kind == frames.KERNEL else label
        for name, kind, label in zip(values, kinds, short, strict=True)
    ]
    numbers = {label: number for number, label in COPY_KINDS.items()}
    copy_kinds = np.array([numbers.get(way, MISSING) for way in ways] or [MISSING], np.int64)
    kind_codes = np.array([frames.ACTIVITY_KINDS.index(kind) for kind in kinds] or [0], np.int64)
    whole = frames.Names(*unique_names(code, full))
    return {
        "kind": frames.Names(kind_codes[code], frames.ACTIVITY_KINDS),
        "copy_kind": copy_kinds[code],
        "name": frames.Names(*unique_names(code, short)),
        "full_name": whole,
        "mangled": whole,
    }


def _short_name(name: str, kind: str, way: str) -> str:
    """Return the name of an activity in tables; ``way`` is the ends of a copy."""
    if kind == frames.KERNEL:
        return short_name(name)
    if kind == frames.GRAPH:
        return name
    return FILL if kind == frames.MEMSET else f"[CUDA memcpy {way}]"


def kind_of(name: str) -> str:
    """Return the kind of device work, by its name."""
    if SET.search(name):
        return frames.MEMSET
    return frames.MEMCPY if COPY.search(name) else frames.KERNEL


def _way(name: str) -> str:
    """Return the ends of a copy as nsys names them."""
    match = WAY.search(name)
    label = f"{ENDS[match[1][0].lower()]}-to-{ENDS[match[2][0].lower()]}" if match else ""
    return label if label in COPY_KINDS.values() else UNKNOWN_COPY


def _numbers_in(labels: Sequence[str], expression: Expression | None) -> Ints:
    """Return the number that an expression finds in each label, -1 where there is none."""
    code, values = distinct(labels)
    found = [expression.search(label) if expression else None for label in values]
    numbers = [match[1] if match else None for match in found]
    return integers([*numbers, None])[code]


def _argument(work: Slices, argument: str, expression: Expression) -> Ints:
    """Return the number that an expression finds in an argument of each slice, -1 for none."""
    texts = ["" if (value := args.get(argument)) is None else str(value) for args in work.args]
    return _numbers_in(texts, expression)
