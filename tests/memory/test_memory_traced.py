"""Memory in traces: every curve is the replay of its events, in whatever dialect and format."""

from __future__ import annotations

import gzip
import json
from collections import defaultdict
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given

import bridge
from bridge.analyze.core.time_range import clock_window
from bridge.analyze.cost.memory import MemoryUsage
from bridge.analyze.draw.dialects import draw
from bridge.analyze.draw.timeline import Selection, parts, timeline
from bridge.analyze.draw.timeline.host import curve_name
from bridge.importers import frames
from memory.histories import histories
from memory.snapshots import snapshot, training
from memory.test_made import COLUMNS, filled, program, rows
from memory.test_snapshot import written

TRAINING = Path(__file__).parent / "data" / "training.pt.trace.json.gz"


def sampled(made) -> dict:
    """Return the samples of every curve by its group and name."""
    found = defaultdict(list)
    for s in made.counters:
        for row in s.rows.tolist():
            group = made.tracks[s.track[row]].group
            key = group.report, group.process, group.device, s.name.names[s.name.codes[row]]
            found[key].append((int(s.start[row]), int(s.args["value"][row])))
    return found


@pytest.mark.slow
@given(histories())
def test_curves_are_what_was_held(history):
    held = history.held
    found = sampled(timeline(held.attributed))
    table, groups = history.capture.memory, held.events.row[held.events.groups]
    kinds = [frames.MEMORY_KINDS[code] for code in table.kind.codes[groups].tolist()]
    count = 0
    for group, kind in enumerate(kinds):
        rows = np.flatnonzero(held.group == group)
        if not len(rows):
            continue
        report, process, device = (
            int(table[c][groups[group]]) for c in ("report", "process", "device")
        )
        where = report, process, device
        used = found[(*where, curve_name(kind, "used"))]
        expected = [
            (held.events.time[row], history.replay.used[held.events.row[row]]) for row in rows
        ]
        assert [v for _, v in used[1:]] == [v for _, v in expected]
        assert [t for t, _ in used[1:]] == [t for t, _ in expected]
        assert used[0][1] == held.base[group]
        reserved = found.get((*where, curve_name(kind, "reserved")), [])
        known = [int(v) for v in held.reserved[rows] if v != -1]
        assert [v for _, v in reserved] == known
        count += 1 + bool(known)
    assert len([key for key in found if "memory" in key[3]]) == count


@pytest.fixture
def exported(tmp_path):
    return filled(program(tmp_path / "made.sqlite"), COLUMNS["3.16.1"], rows(pool=True))


@pytest.mark.slow
def test_curves_lie_on_the_device_or_the_process(exported):
    made = timeline(bridge.load(exported).attributed)
    groups = {
        name: made.tracks[s.track[s.rows[0]]].group
        for s in made.counters
        if len(s)
        for name in s.name.names
    }
    assert groups["device memory used (bytes)"].device == 0
    assert groups["pinned memory used (bytes)"].device == 0
    of_torch = timeline(bridge.load(TRAINING).attributed)
    [used] = [s for s in of_torch.counters if "pageable memory used (bytes)" in s.name.names]
    assert of_torch.tracks[used.track[used.rows[0]]].group.device == -1
    assert len({group.pid for group in groups.values()}) == len(set(groups.values()))


@pytest.mark.slow
def test_a_part_of_a_trace_begins_with_what_was_held(exported):
    joined = bridge.load(exported).attributed
    held = MemoryUsage.of(joined)
    whole = sampled(timeline(joined))
    [key] = [k for k in whole if k[3] == "device memory used (bytes)"]
    first, last = (int(held.events.time[n]) + 1 - joined.capture.began for n in (1, 3))
    part = sampled(timeline(joined, Selection((clock_window(joined, first, last),))))[key]
    before = [v for t, v in whole[key] if t - joined.capture.began < first]
    inside = [v for t, v in whole[key] if first <= t - joined.capture.began < last]
    assert [v for _, v in part] == [before[-1], *inside]
    assert not timeline(joined, Selection(slim=True)).counters


@pytest.mark.slow
def test_many_events_keep_the_peak(tmp_path):
    device = training(steps=900)
    joined = bridge.load(written(tmp_path / "s.pickle", snapshot(device))).attributed
    [used] = [v for k, v in sampled(timeline(joined)).items() if "used" in k[3]]
    assert len(used) <= 2 * parts.BINS + 2 < len(joined.capture.memory)
    assert max(v for _, v in used) == device.peak
    assert used[-1][1] == device.used


def chrome(joined, path, **how) -> list[dict]:
    joined.export_trace(path, **how)
    data = path.read_bytes()
    return json.loads(gzip.decompress(data) if path.suffix == ".gz" else data)["traceEvents"]


@pytest.mark.parametrize(
    ("dialect", "device", "host"),
    [
        ("native", "device memory used (bytes)", "pinned memory used (bytes)"),
        ("mxnet", "Memory: gpu/0", "Memory: cpu_pinned/0"),
        ("megengine", "gpu0_alloc_mem", "pinned memory used (bytes)"),
        ("raf", "device memory used (bytes)", "pinned memory used (bytes)"),
    ],
)
def test_counters_in_every_dialect(dialect, device, host, exported, tmp_path):
    joined = bridge.load(exported)
    held = MemoryUsage.of(joined.attributed)
    events = [e for e in chrome(joined, tmp_path / "t.json", dialect=dialect) if e["ph"] == "C"]
    for name, kind in ((device, 2), (host, 1)):
        own = joined.capture.memory.kind.codes[held.events.row[held.events.groups]]
        [group] = np.flatnonzero(own == kind)
        used = held.used[held.group == group].tolist()
        assert [e["args"]["value"] for e in events if e["name"] == name][1:] == used


@pytest.mark.slow
def test_pytorchs_instants_are_read_back_as_they_were(tmp_path):
    joined = bridge.load(TRAINING)
    joined.export_trace(tmp_path / "t.json", dialect="torch")
    first, second = (
        MemoryUsage.of(j.attributed) for j in (joined, bridge.load(tmp_path / "t.json"))
    )
    assert len(first.events) == len(second.events) > 1000
    for column in ("time", "is_release"):
        assert np.array_equal(getattr(first.events, column), getattr(second.events, column))
    for column in ("used", "size", "base"):
        assert np.array_equal(getattr(first, column), getattr(second, column))
    said = joined.capture.memory.allocated[first.events.row]
    assert np.array_equal(said, first.used)
    one = next(
        e for e in chrome(joined, tmp_path / "u.json", dialect="torch") if e["name"] == "[memory]"
    )
    assert {
        "Bytes",
        "Addr",
        "Device Type",
        "Device Id",
        "Total Allocated",
        "Total Reserved",
    } == one["args"].keys()
    assert (one["args"]["Device Id"], one["args"]["Total Reserved"], one["ph"], one["s"]) == (
        -1,
        0,
        "i",
        "t",
    )


def test_pytorchs_totals_are_of_a_device_with_all_its_kinds(exported, tmp_path):
    """What is of several kinds on one device is one total there; a byte that is released keeps its sign."""
    events = filled(exported, COLUMNS["3.16.1"], [
        {"start": 1_700, "globalPid": rows(pool=False)[0]["globalPid"], "deviceId": 0, "address": 5, "bytes": 1,
         "memKind": 4, "memoryOperationType": op, "correlationId": 1} for op in (0, 1)
    ])  # fmt: skip
    joined = bridge.load(events)
    held = MemoryUsage.of(joined.attributed)
    shown = [
        e for e in chrome(joined, tmp_path / "t.json", dialect="torch") if e["name"] == "[memory]"
    ]
    assert sorted(e["args"]["Bytes"] for e in shown) == sorted(held.change.tolist())
    assert -1 in [e["args"]["Bytes"] for e in shown]
    process = joined.capture.memory.process[held.events.row].tolist()
    group = held.group.tolist()
    owner = {
        group[n]: process[n] for n in range(len(group))
    }  # P has no memory of the host, Q no other
    now = {g: int(held.base[g]) for g in owner}
    totals = []
    for n, g in enumerate(group):
        now[g] = int(held.used[n])
        totals.append(sum(v for other, v in now.items() if owner[other] == process[n]))
    assert len({g for g in owner if owner[g] == process[0]}) == 2
    shown.sort(key=lambda e: e["ts"])
    assert [e["args"]["Total Allocated"] for e in shown] == totals


@pytest.mark.slow
def test_no_memory_no_curves(tmp_path):
    joined = bridge.load(program(tmp_path / "made.sqlite"))
    for dialect in ("native", "torch", "mxnet"):
        made = draw(joined.attributed, dialect)
        assert not made.instants
        assert not [s for s in made.counters for name in s.name.names if "emory" in name]


@pytest.mark.slow
@pytest.mark.parametrize("name", ["t.pftrace", "t.json.gz"])
def test_perfetto_sees_every_value(name, tmp_path, trace_processor):
    joined = bridge.load(
        written(tmp_path / "s.pickle", snapshot(training(), training(seed=1, number=1)))
    )
    joined.export_trace(tmp_path / name)
    held = MemoryUsage.of(joined.attributed)
    found = trace_processor(tmp_path / name).query(
        "select t.name as name, t.id as track, c.value as value from counter c join track t on t.id = c.track_id"
        " where t.name like '%memory%' order by t.id, c.ts"
    )
    values = defaultdict(list)
    for row in found:
        values[row.name, row.track].append(int(row.value))
    used = sorted(v[1:] for (name, _), v in values.items() if name.startswith("device memory used"))
    reserved = sorted(
        v for (name, _), v in values.items() if name.startswith("device memory reserved")
    )
    groups = [np.flatnonzero(held.group == group) for group in (0, 1)]
    assert used == sorted(held.used[rows].tolist() for rows in groups)
    assert reserved == sorted(held.reserved[rows].tolist() for rows in groups)
