"""What samples say of intervals, against definitions in plain loops over every nanosecond."""

from __future__ import annotations

from itertools import pairwise
from statistics import median
from types import SimpleNamespace
from typing import Any

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from bridge.analyze.cost.counters import by_counter, counter_columns
from bridge.analyze.cost.counters.figures import METRICS, PEAK
from bridge.analyze.cost.counters.samples import Series, project
from bridge.importers import frames
from bridge.join.arrays import unions

TIMES = st.lists(st.integers(-10, 40), max_size=12, unique=True).map(sorted)
VALUES = st.integers(0, 100)
SPANS = st.tuples(st.integers(-12, 42), st.integers(0, 9))


def column(rows: Any) -> np.ndarray:
    return np.array([*rows], np.int64)


def described(times: list[int], values: list[int]) -> dict[int, tuple[int, int]]:
    """Return for each nanosecond the number and the value of the sample that describes it."""
    lengths = [b - a for a, b in pairwise(times)]
    result = {}
    for number, (a, b) in enumerate(pairwise(times)):
        if b - a <= 2 * median(lengths):
            result |= dict.fromkeys(range(a, b), (number, values[number + 1]))
    return result


@st.composite
def samples(draw: Any) -> tuple[list[int], list[int]]:
    times = draw(TIMES)
    return times, draw(st.lists(VALUES, min_size=len(times), max_size=len(times)))


def expected(known: dict[int, tuple[int, int]], ran: set[int]) -> tuple[float, ...]:
    """Return sampled and touched time, mean and peak."""
    values = [known[t][1] for t in sorted(ran) if t in known]
    met = {known[t][0] for t in ran if t in known}
    touched = sum(number in met for number, _ in known.values())
    mean = sum(values) / len(values) if values else -1
    return len(values), touched, mean, max(values, default=-1)


@given(samples(), st.lists(st.tuples(SPANS, st.integers(0, 2)), max_size=9))
def test_totals_of_groups_of_intervals(sampled: Any, spans: list[Any]) -> None:
    times, values = sampled
    start = column(s[0][0] for s in spans)
    end = start + column(s[0][1] for s in spans)
    busy = unions(column(s[1] for s in spans), start, end)
    totals = project(Series.of(column(times), column(values)), *busy, 3)
    known = described(times, values)
    for group in range(3):
        ran = {t for (a, n), of in spans if of == group for t in range(a, a + n)}
        found = (totals.sampled, totals.touched, totals.mean, totals.peak)
        assert [c[group] for c in found] == [*expected(known, ran)]


def test_large_values_over_a_long_time_are_summed_as_floats() -> None:
    hour = 3_600 * 10**9
    series = Series.of(column([0, hour, 2 * hour]), column([0, 10**12, 3 * 10**12]))
    totals = project(series, column([0]), column([0]), column([2 * hour]), 1)
    assert totals.mean.tolist() == [2e12]
    assert totals.peak.tolist() == [3 * 10**12]


NAMES = ("SMs Active [Throughput %]", "PCIe RX Throughput", "SMs Active [Avg]")
NVLINK = (
    "NVLink RX Requests User Data [Throughput %]",
    "NVLink RX Responses User Data [Throughput %]",
)
ROW = st.tuples(
    SPANS, st.integers(0, 2), st.integers(-1, 2)
)  # when, on which device, of which group


def attributed_with(
    rows: list[Any], of_samples: dict[tuple[int, str], Any], reports: int = 1
) -> Any:
    """Return a capture of activities on devices 0 to 2, which are GPUs 5, 6 and unknown, and these samples."""
    start = column(r[0][0] for r in rows)
    kinds = frames.Names(np.zeros(len(rows), np.int64), frames.ACTIVITY_KINDS)
    device = column(r[1] for r in rows)
    where = {"process": device * 0, "device": device}
    activities = frames.Activities(where, start=start, kind=kinds)
    of = {
        "process": column([0, 0, 0]),
        "device": column([0, 1, 2]),
        "gpu": column([5, 6, -1]),
        "name": frames.Names.of(["A", "B", "C"]),
    }
    table = [
        (t, gpu, name, v)
        for (gpu, name), (times, values) in of_samples.items()
        for t, v in zip(times, values, strict=True)
    ][::-1]
    metrics = frames.GpuMetrics(
        time=column(r[0] for r in table),
        gpu=column(r[1] for r in table),
        metric=frames.Names.of([r[2] for r in table]),
        value=column(r[3] for r in table),
    )
    capture = SimpleNamespace(
        activities=activities,
        devices=frames.Devices(of),
        gpu_metrics=metrics,
        source=("r.sqlite",) * reports,
    )
    end = start + column(r[0][1] for r in rows)
    return SimpleNamespace(capture=capture, end=end, results={}, counted=np.ones(len(rows), bool))


@given(st.lists(ROW, max_size=9), samples(), samples(), samples())
def test_columns_of_rows_on_several_gpus(rows: list[Any], one: Any, two: Any, link: Any) -> None:
    of_samples = {(5, NAMES[0]): one, (6, NAMES[0]): two, (6, NAMES[1]): one, (5, NAMES[2]): two}
    of_samples |= {(5, name): link for name in NVLINK}
    attributed = attributed_with(rows, of_samples)
    kept = [n for n, row in enumerate(rows) if row[2] >= 0]
    found = counter_columns(attributed, column(kept), column(rows[n][2] for n in kept), 3)
    for group in range(3):
        ran = [
            {t for (a, n), on, of in rows if (on, of) == (device, group) for t in range(a, a + n)}
            for device in range(3)
        ]
        of_both = [expected(described(*s), ran[device]) for device, s in ((0, one), (1, two))]
        total = sum(e[0] for e in of_both)
        mean = sum(e[0] * e[2] for e in of_both) / total if total else -1
        assert abs(found["sm_active"][group] - mean) < 1e-9
        assert found["sm_active" + PEAK][group] == max(e[3] for e in of_both)
        pcie, nvlink = expected(described(*one), ran[1]), expected(described(*link), ran[0])
        assert abs(found["pcie_rx"][group] - pcie[2]) < 1e-9
        assert abs(found["nvlink_rx"][group] - (2 * nvlink[2] if nvlink[0] else -1)) < 1e-9
        of_columns = [(total, sum(e[1] for e in of_both)), nvlink[:2], pcie[:2]]
        most = max(of_columns, key=lambda c: c[0])
        assert found["sampled_ns"][group] == most[0]
        shares = {a / b if b else -1 for a, b in of_columns if a == most[0]}
        assert found["sample_share"][group] in shares
        for name in set(METRICS) - {"sm_active", "pcie_rx", "nvlink_rx"}:
            assert (found[name][group], found[name + PEAK][group]) == (-1, -1)


@given(st.lists(ROW, max_size=9), samples(), samples())
def test_the_table_of_counters(rows: list[Any], one: Any, two: Any) -> None:
    table = by_counter(attributed_with(rows, {(5, "b"): one, (5, "a"): two, (7, "a"): one}))
    spans = [(a, a + n) for (a, n), device, _ in rows if device == 0]
    of_samples = {"a": two, "b": one} if spans else {}
    names = [name for name in sorted(of_samples) if of_samples[name][0]]
    assert table["counter"].tolist() == names
    assert table["device"].tolist() == ["GPU 5 A"] * len(names)
    for row, name in zip(table.to_pandas().itertuples(), names, strict=True):
        known = described(*of_samples[name])
        whole = set(range(min(a for a, _ in spans), max(b for _, b in spans)))
        busy = {t for a, b in spans for t in range(a, b)}
        sampled, _, mean, peak = expected(known, whole)
        assert row.samples == len({known[t][0] for t in whole if t in known})
        assert (row.sampled_ns, row.mean, row.peak) == (sampled, mean, peak)
        assert row.busy_mean == expected(known, busy)[2]
