"""Which GPU each activity ran on.

Two processes may share a GPU, and device 0 of one process may be another GPU than device 0 of the
next.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from bridge.analyze.core.names import file_names
from bridge.importers import frames
from bridge.importers.capture import Capture
from bridge.join.arrays import NONE, Ints, each, number_groups
from bridge.join.attributed import AttributedCapture, once

KEY = ("report", "process", "device")


@dataclass(frozen=True)
class Devices:
    """The GPUs of a capture.

    ``gpu`` is the GPU of each activity, a position in ``names``. ``report`` is the file of each
    GPU, ``number`` its number in its machine, NONE if that is not recorded.
    """

    gpu: Ints
    names: list[str]
    report: list[int]
    number: list[int]

    @classmethod
    def of_report(cls, attributed: AttributedCapture) -> Devices:
        """Return the GPUs of a capture.

        A GPU is identified by its number where the capture has it, else by process and device.
        """
        return _devices(attributed)


@once
def _devices(attributed: AttributedCapture) -> Devices:
    columns = (attributed.capture.activities[c] for c in KEY)
    report, process, device = columns
    used, rows = number_groups(report, process, device)
    gpu_of = _gpus_by_device(attributed.capture)
    gpus = []
    for row in rows.tolist():  # one iteration per device of a process
        key = int(report[row]), int(process[row]), int(device[row])
        gpu_number, name = gpu_of.get(key, (NONE, ""))
        identity = (key[0], NONE, gpu_number) if gpu_number != NONE else key
        gpus.append((identity, _gpu_name(identity[2], name)))
    names = dict(gpus[::-1])  # a GPU of several processes has its first name
    keys = list(dict.fromkeys(key for key, _ in gpus))
    position = np.array([keys.index(key) for key, _ in gpus], np.int64)
    return Devices(
        gpu=each(lambda numbers: position[numbers], used),
        names=_device_names(attributed, names, keys),
        report=[key[0] for key in keys],
        number=[key[2] if key[1] == NONE else NONE for key in keys],
    )


def _device_names(
    attributed: AttributedCapture,
    names: Mapping[tuple[int, int, int], str],
    keys: Sequence[tuple[int, int, int]],
) -> list[str]:
    """Return distinct names of the GPUs: with the process or the file where needed.

    Processes of two hosts may have one number: then the second is called so.
    """
    occurrences = Counter((key[0], names[key]) for key in keys)
    of_file = [f" in {name}" for name in file_names(attributed.capture)]
    result: list[str] = []
    known: Counter[str] = Counter()
    for key in keys:  # one iteration per GPU
        is_ambiguous = occurrences[key[0], names[key]] > 1 and key[1] != NONE
        process = f" of process {frames.pid(key[1])}" if is_ambiguous else ""
        name = f"{names[key]}{process}{of_file[key[0]] if len(of_file) > 1 else ''}"
        known[name] += 1
        result.append(name if known[name] == 1 else f"{name} ({known[name]})")
    return result


def gpu_names(capture: Capture) -> dict[tuple[int, int, int], str]:
    """Return the name of the GPU, such as ``GPU 3 NVIDIA A100``, by (report, process, device).

    The number is that of the GPU in its machine where recorded, else that of the device in its
    process.
    """
    return {
        key: _gpu_name(number if number != NONE else key[2], name)
        for key, (number, name) in _gpus_by_device(capture).items()
    }


def _gpu_name(number: int, name: str) -> str:
    return f"GPU {number} {name}".rstrip()


def _gpus_by_device(capture: Capture) -> dict[tuple[int, int, int], tuple[int, str]]:
    """Return the number and the name of the GPU by (report, process, device)."""
    devices = capture.devices
    keys = zip(*(devices[c].tolist() for c in KEY), strict=True)
    gpus = zip(devices.gpu.tolist(), devices.name, strict=True)
    return dict(zip(keys, gpus, strict=True))
