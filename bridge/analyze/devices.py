"""The GPUs of a report: two processes may share one, or each call its own device 0."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from bridge.join.attributed import Attributed
from bridge.join.order import NONE, Ints, number
from importers import frames

KEY = ("report", "process", "device")


@dataclass(frozen=True)
class Devices:
    """``of`` is the device of each activity, by place in ``names``; ``report`` the file that each is of."""

    of: Ints
    names: list[str]
    report: list[int]

    @classmethod
    def of_report(cls, joined: Attributed) -> Devices:
        """Tell devices apart by the number of the GPU, where that is not recorded by process and device."""
        columns = (frames.ints(joined.report.activities, c) for c in KEY)
        report, process, device = columns
        used, rows = number(report, process, device)
        known = _listed(joined)
        gpus = []
        for row in rows.tolist():  # a turn per device of a process
            key = int(report[row]), int(process[row]), int(device[row])
            gpu, name = known.get(key, (NONE, ""))
            same = (key[0], NONE, gpu) if gpu != NONE else key
            gpus.append((same, f"GPU {same[2]} {name}".rstrip()))
        names = dict(gpus[::-1])  # of one GPU in several processes the first name
        keys = list(dict.fromkeys(key for key, _ in gpus))
        place = np.array([keys.index(key) for key, _ in gpus], np.int64)
        several = len(joined.report.source) > 1
        shown = [
            names[key] + (f" in {joined.report.source[key[0]]}" if several else "") for key in keys
        ]
        return cls(place[used], shown, [key[0] for key in keys])


def _listed(joined: Attributed) -> dict[tuple[int, ...], tuple[int, str]]:
    """Return number and name of the GPU by (report, process, device)."""
    devices = joined.report.devices
    keys = zip(*(devices[c].tolist() for c in KEY), strict=True)
    said = zip(devices["gpu"].tolist(), devices["name"].astype(str).tolist(), strict=True)
    return dict(zip(keys, said, strict=True))
