"""The GPUs of a report: two processes may share one, or each call its own device 0."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from bridge.analyze.names import files
from bridge.analyze.tracks import ID_BITS
from bridge.join.arrays import NONE, Ints, number
from bridge.join.attributed import Attributed
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
        return cls(place[used], _shown(joined, names, keys), [key[0] for key in keys])


def _shown(
    joined: Attributed,
    names: Mapping[tuple[int, int, int], str],
    keys: Sequence[tuple[int, int, int]],
) -> list[str]:
    """Return what each GPU is called: with its process where two would be called the same, with its file."""
    alike = Counter((key[0], names[key]) for key in keys)
    of_file = [f" in {name}" for name in files(joined.report)]
    shown = []
    for key in keys:  # a turn per GPU
        several = alike[key[0], names[key]] > 1 and key[1] != NONE
        process = f" of process {key[1] >> 24 & ID_BITS}" if several else ""
        shown.append(f"{names[key]}{process}{of_file[key[0]] if len(of_file) > 1 else ''}")
    return shown


def _listed(joined: Attributed) -> dict[tuple[int, ...], tuple[int, str]]:
    """Return number and name of the GPU by (report, process, device)."""
    devices = joined.report.devices
    keys = zip(*(devices[c].tolist() for c in KEY), strict=True)
    said = zip(devices["gpu"].tolist(), devices["name"].astype(str).tolist(), strict=True)
    return dict(zip(keys, said, strict=True))
