"""Curves of hardware counters, one per counter and GPU."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import numpy as np

from bridge.analyze.core.catalog.column import COLUMNS
from bridge.analyze.core.devices import Devices
from bridge.analyze.cost.counters.energy import sampled_energies
from bridge.analyze.cost.counters.figures import MHZ, series_of_devices
from bridge.analyze.cost.counters.samples import Series
from bridge.analyze.draw.timeline import parts
from bridge.analyze.draw.timeline.parts import Curve, Slices, Span
from bridge.analyze.draw.tracks import Tracks
from bridge.join.attributed import AttributedCapture

W_PER_MJ_PER_NS = 1_000_000
MOST = 4_000  # changes of a curve: a report has about ten of each GPU


def counter_curves(
    attributed: AttributedCapture,
    tracks: Tracks,
    span: Callable[[int], Span] = parts.all_time,
) -> list[Slices]:
    """Return the curves of the counters that have columns and of power, within a span of time of each file.

    A curve is drawn with the first process that uses the GPU. It is 0 where no sample describes
    the time; a counter that is 0 all the time has none.
    """
    sampled = [*_curves(attributed)]
    if not sampled:
        return []
    devices = Devices.of_report(attributed)
    code, homes = tracks.devices_of(attributed.capture.activities)
    drawn: dict[str, list[tuple[int, Curve]]] = {}
    for device, name, whole in sampled:
        home = int(homes[code[devices.gpu == device].min()])
        recorded = _recorded(attributed, devices.report[device], span)
        curve = parts.clip_curve(whole, recorded)
        if curve[1].any():
            drawn.setdefault(name, []).append((home, parts.thin_curve(*curve, MOST)))
    return [parts.curve_slices(name, curves) for name, curves in drawn.items()]


def _curves(attributed: AttributedCapture) -> Iterator[tuple[int, str, Curve]]:
    """Yield GPU, name and curve of all that is sampled."""
    for device, series_by_column in series_of_devices(attributed):
        for column, series in series_by_column.items():
            yield device, _name(column), _curve(series)
    for device, time, energy in sampled_energies(attributed):
        watts = np.rint(np.diff(energy) / np.diff(time) * W_PER_MJ_PER_NS).astype(np.int64)
        yield device, "power (W)", (time, np.append(watts, 0))


def _recorded(attributed: AttributedCapture, report: int, span: Callable[[int], Span]) -> Span:
    """Return the part of a span in which a file has other events: nsys samples before and after."""
    (first, last), (begin, end) = span(report), attributed.capture.facts[report].span
    return max(first, begin), min(last, end + 1)


def _name(column: str) -> str:
    heading = COLUMNS["@counters"].by_name[column].heading
    return heading if column == MHZ else f"{heading} (%)"


def _curve(series: Series) -> Curve:
    """Return the values from the begin of each sample on, and 0 after the last one before a gap."""
    ends = np.append(series.end[:-1] < series.begin[1:], True)[: len(series)]
    time = np.concatenate((series.begin, series.end[ends]))
    value = np.concatenate((series.value, np.zeros(np.count_nonzero(ends), np.int64)))
    order = np.argsort(time, kind="stable")
    time, value = time[order], value[order]
    is_change = np.append(True, value[1:] != value[:-1])[: len(value)]
    return time[is_change], value[is_change]
