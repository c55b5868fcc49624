"""Samples of hardware counters, which nsys calls GPU metrics."""

from __future__ import annotations

import numpy as np

from bridge.importers import frames
from bridge.importers.arrays import MISSING, Ints, positions, scatter
from bridge.importers.frames import key_codes
from bridge.importers.nsys.schema import GPU_BITS
from bridge.importers.sqlite_columns import Columns, ints_of, texts_of


def gpu_metrics(columns: Columns, names: Columns) -> frames.GpuMetrics:
    """Return the frame `gpu_metrics`: a row per sample of a metric.

    Samples without a value are left out.
    """
    time, value = ints_of(columns, "time"), ints_of(columns, "value")
    rows = np.flatnonzero(value >= 0)
    type_, metric = (frames.pick(ints_of(columns, c), rows) for c in ("type", "metric"))
    return frames.GpuMetrics(
        time=frames.pick(time, rows),
        gpu=type_ & GPU_BITS,
        metric=_names(type_, metric, names),
        value=frames.pick(value, rows),
    )


def _names(type_: Ints, metric: Ints, names: Columns) -> frames.Names:
    """Return the name of the metric of each sample; ``metric 7`` for one that has no name."""
    described = tuple(ints_of(names, c) for c in ("type", "metric"))
    known, own = key_codes(described, (type_, metric))
    texts = texts_of(names, "name").decode()
    keys = max(known.max(initial=MISSING), own.max(initial=MISSING)) + 1
    name_of = positions(known, keys)
    used, first = np.unique(own, return_index=True)
    text_of_key = [  # one iteration per metric of a GPU
        (texts[place] if place != MISSING else "") or f"metric {number}"
        for place, number in zip(name_of[used].tolist(), metric[first].tolist(), strict=True)
    ]
    names_of_key = frames.Names.of(text_of_key)
    code_of_key = scatter(names_of_key.codes, used, keys)
    return frames.Names(code_of_key[own], names_of_key.texts)
