"""The table of counters: every metric that was sampled, of each GPU."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from bridge.analyze.core.devices import Devices
from bridge.analyze.core.table import Table
from bridge.analyze.cost.counters.samples import Sampled, Series, project, series_of
from bridge.join.arrays import Ints, unions
from bridge.join.attributed import AttributedCapture


def by_counter(attributed: AttributedCapture) -> Table:
    """Return one row per GPU with work and metric, by GPU and name.

    Samples count from the start of the GPU's first activity to the end of its last one, in the
    selected time. ``busy_mean`` is of the time in which any of its activities ran. Means and peaks
    are -1 where no sample describes the time.
    """
    devices, sampled = Devices.of_report(attributed), Sampled.of(attributed)
    counted = np.flatnonzero(attributed.counted)
    rows = []
    for device, key in enumerate(zip(devices.report, devices.number, strict=True)):
        work = counted[devices.gpu[counted] == device]
        series = {sampled.names[m]: n for m, n in sampled.find(*key).items()} if len(work) else {}
        for name in sorted(series):  # one iteration per metric of a GPU
            figures = _figures(attributed, series_of(attributed, [series[name]]), work)
            rows.append({"device": devices.names[device], "counter": name, **figures})
    return Table(
        {name: np.array([row[name] for row in rows], kind) for name, kind in _COLUMNS.items()}
    )


_COLUMNS: Mapping[str, type] = {
    **dict.fromkeys(("device", "counter"), object),
    **dict.fromkeys(("samples", "interval_ns", "sampled_ns"), np.int64),
    **dict.fromkeys(("mean", "busy_mean", "peak"), float),
}


def _figures(attributed: AttributedCapture, series: Series, work: Ints) -> dict[str, float]:
    start, end = attributed.capture.activities.start[work], attributed.end[work]
    first, last = start.min(keepdims=True), end.max(keepdims=True)
    one, busy = np.zeros(1, np.int64), unions(np.zeros(len(work), np.int64), start, end)
    whole, running = (
        project(series, one, start=first, end=last, groups=1),
        project(series, *busy, 1),
    )
    met = (series.end > first) & (series.begin < last) & (last > first)
    return {
        "samples": int(np.count_nonzero(met)),
        "interval_ns": round(series.interval_ns),
        "sampled_ns": int(whole.sampled[0]),
        "mean": float(whole.mean[0]),
        "busy_mean": float(running.mean[0]),
        "peak": int(whole.peak[0]),
    }
