"""The columns of counters of any table: what the samples say of the time in which each row's work ran."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping

import numpy as np

from bridge.analyze.core.devices import Devices
from bridge.analyze.core.groups import Floats
from bridge.analyze.cost.counters.samples import Sampled, Series, Totals, project, series_of
from bridge.join.arrays import NONE, Ints, unions
from bridge.join.attributed import AttributedCapture

MHZ = "gpc_clock"  # the counter in MHz; all others are in per cent of the most that is possible
_DATA = ("requests protocol", "requests user", "responses protocol", "responses user")
# Columns, with the names of nsys for the metric in lower case and without the unit; several that occur add up.
METRICS: Mapping[str, tuple[str, ...]] = {
    "sm_active": ("sms active", "sm active"),
    "tensor_active": ("tensor active",),
    "dram_read": ("dram read bandwidth", "dram read throughput"),
    "dram_write": ("dram write bandwidth", "dram write throughput"),
    "pcie_rx": ("pcie rx throughput",),
    "pcie_tx": ("pcie tx throughput",),
    "nvlink_rx": tuple(f"nvlink rx {kind} data" for kind in _DATA),
    "nvlink_tx": tuple(f"nvlink tx {kind} data" for kind in _DATA),
    MHZ: ("gpc clock frequency",),
    "sm_issue": ("sm issue",),
    "warps_in_flight": ("compute warps in flight",),
}
PEAK = "_peak"
SAMPLED = ("sampled_ns", "sample_share")
NAME = re.compile(r"(?P<name>[^\[]*?)\s*(?:\[(?P<unit>.*)\])?")


def counter_columns(
    attributed: AttributedCapture, rows: Ints, group: Ints, groups: int
) -> dict[str, Ints | Floats]:
    """Return the mean and the peak of each counter while the activities of each group ran.

    ``rows`` are activities, ``group`` is the group of each. Of several GPUs each counts by its
    time; -1 stands for a group without samples.
    """
    parts: dict[str, list[Totals]] = {column: [] for column in METRICS}
    for device, series in series_of_devices(attributed):
        of_device = np.flatnonzero(Devices.of_report(attributed).gpu[rows] == device)
        start = attributed.capture.activities.start[rows[of_device]]
        busy = unions(group[of_device], start, attributed.end[rows[of_device]])
        for column, samples in series.items():
            parts[column].append(project(samples, *busy, groups))
    totals = {column: Totals.combined(of_column, groups) for column, of_column in parts.items()}
    most, share = _sampled(totals, groups)
    return {
        **{column: of.mean for column, of in totals.items()},
        **{column + PEAK: of.peak for column, of in totals.items()},
        **dict(zip(SAMPLED, (most, share), strict=True)),
    }


def _sampled(totals: Mapping[str, Totals], groups: int) -> tuple[Ints, Floats]:
    """Return the sampled time of the counter that has most of it, and its part of its samples."""
    sampled = np.stack([of.sampled for of in totals.values()])
    touched = np.stack([of.touched for of in totals.values()])
    most = sampled.argmax(axis=0), np.arange(groups)
    share = np.full(groups, float(NONE))
    np.divide(sampled[most], touched[most], out=share, where=sampled[most] > 0)
    return sampled[most], share


def series_of_devices(attributed: AttributedCapture) -> Iterator[tuple[int, dict[str, Series]]]:
    """Yield each GPU with samples, a position in `Devices`, and its series by column."""
    devices, sampled = Devices.of_report(attributed), Sampled.of(attributed)
    for device, key in enumerate(zip(devices.report, devices.number, strict=True)):
        found = sampled.find(*key)
        numbers = {
            column: [found[metric] for metric in metrics if metric in found]
            for column, metrics in _metrics(sampled.names).items()
        }
        series = {c: series_of(attributed, of) for c, of in numbers.items() if of}
        if series:
            yield device, series


def _metrics(names: list[str]) -> dict[str, list[int]]:
    """Return the metrics of each column, positions in ``names``.

    A name may end with a unit in brackets, which is then that of the column.
    """
    result: dict[str, list[int]] = {column: [] for column in METRICS}
    for metric, text in enumerate(names):
        found = NAME.fullmatch(text.casefold())
        name, unit = (found["name"].strip(), found["unit"]) if found else ("", None)
        for column, wanted in METRICS.items():
            is_unit = unit is None or ("mhz" if column == MHZ else "%") in unit
            if name in wanted and is_unit:
                result[column].append(metric)
    return result
