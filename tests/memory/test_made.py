"""Allocations in exports as nsys writes them, of several versions; a report with everything in it, by hand."""

from __future__ import annotations

import json
import re
import sqlite3
from collections import Counter
from contextlib import closing
from pathlib import Path
from xml.etree import ElementTree as ET

import made_reports as made
import numpy as np
import pytest
from click.testing import CliRunner
from read_once import reading_once

import bridge
from bridge import importers
from bridge.analyze.cost.memory import (
    MemoryUsage,
    alive_at_peak,
    by_allocation,
    by_event,
    by_op,
    flow,
    summary,
)
from bridge.cli import main
from bridge.importers import frames
from bridge.render.memory_plots import flow_svg

pytestmark = pytest.mark.slow


BARE = "start globalPid deviceId address bytes memKind memoryOperationType correlationId".split()
NEVER_NULL = {*BARE[:-1], "contextId", "pc"}
POOLS = (
    "localMemoryPoolAddress localMemoryPoolReleaseThreshold localMemoryPoolSize"
    " localMemoryPoolUtilizedSize importedMemoryPoolAddress importedMemoryPoolProcessId".split()
)
TABLE = "CUDA_GPU_MEMORY_USAGE_EVENTS"
COLUMNS = {  # by the version of the schema: an older one than is known, those of nsys 2022.4 and 2024.6
    "older": BARE,
    "3.0.0": [*BARE, "contextId", "pc", "name", *POOLS],
    "3.16.1": [*BARE, "contextId", "pc", "name", "streamId", *POOLS],
}
MIB = 1 << 20
P, Q = 100, 101


def program(path: Path) -> Path:
    """Write two processes: op outer (its own 4 MiB, inner's 8 MiB for a while), then one of each odd kind."""
    report = made.Made()
    for pid in (P, Q):
        report.names_of(pid)
        host = {"thread": made.thread(pid)}
        report.annotation(made.PUSH_POP, 1_000, 2_000, text="step", payload=0, **host)
        report.annotation(made.PUSH_POP, 1_100, 1_900, text="outer", **host)
        report.annotation(made.PUSH_POP, 1_300, 1_600, text="<inner> & 'co'", **host)
        for at in (1_150, 1_350, 1_550, 1_650, 1_750, 1_850, 2_500):
            report.kernel("k", at, pid, at + 10, at + 20)
    return report.written(path)


def rows(pool: bool) -> list[dict[str, int | str | None]]:
    """Return events of process P by hand, and Q's at the very same address."""
    a, b, c, d = (n * 256 * MIB for n in (1, 2, 3, 4))
    of_pool = {"localMemoryPoolAddress": 77, "localMemoryPoolSize": 32 * MIB} if pool else {}
    grown = {**of_pool, "localMemoryPoolSize": 64 * MIB} if pool else {}
    events = [  # time, call, address, MiB, release
        (1_155, 1, a, 4, 0, {}),  # outer
        (1_355, 2, b, 8, 0, of_pool),  # inner
        (1_555, 3, b, 8, 1, grown),  # inner releases it
        (1_655, 4, b, 2, 0, of_pool),  # the address anew, by outer
        (1_755, 5, c, 16, 1, {}),  # from before the capture
        (1_855, 6, d, 1, 0, {}),  # its release is lost …
        (2_505, 7, d, 3, 0, {}),  # … outside of all ops
    ]
    return [
        {
            "start": time, "globalPid": made.process(P), "deviceId": 0, "address": address, "bytes": size * MIB,
            "memKind": 2, "memoryOperationType": release, "correlationId": call, **more,
        }
        for time, call, address, size, release, more in events
    ] + [
        {
            "start": 1_556, "globalPid": made.process(Q), "deviceId": 0, "address": a, "bytes": MIB,
            "memKind": 1, "memoryOperationType": 0, "correlationId": 9,
        }
    ]  # fmt: skip


def filled(path: Path, columns: list[str], events) -> Path:
    """Put events into an export, into a table with these columns unless it has one."""
    with closing(sqlite3.connect(path)) as db:
        never = dict.fromkeys(NEVER_NULL, " NOT NULL")
        kinds = ", ".join(
            f'"{c}" {"TEXT" if c == "name" else "INTEGER"}{never.get(c, "")}' for c in columns
        )
        db.execute(f"CREATE TABLE IF NOT EXISTS {TABLE} ({kinds})")
        of = {n: bool(k) for _, n, _, k, _, _ in db.execute(f"PRAGMA table_info({TABLE})")}
        for event in events:
            row = {n: 0 for n, needed in of.items() if needed} | {
                k: v for k, v in event.items() if k in of
            }
            marks, names = ", ".join("?" * len(row)), ", ".join(f'"{n}"' for n in row)
            db.execute(f"INSERT INTO {TABLE} ({names}) VALUES ({marks})", list(row.values()))
        db.commit()
    return path


@pytest.fixture(params=list(COLUMNS))
def export(request, tmp_path):
    columns = COLUMNS[request.param]
    return filled(
        program(tmp_path / "made.sqlite"), columns, rows("pc" in columns)
    ), "pc" in columns


@pytest.fixture(scope="module")
def newest(tmp_path_factory):
    """Write it once; its commands read it once."""
    path = program(tmp_path_factory.mktemp("newest") / "made.sqlite")
    return filled(path, COLUMNS["3.16.1"], rows(pool=True))


def held_of(path) -> MemoryUsage:
    return MemoryUsage.of(bridge.load(path).attributed)


def test_a_program_by_hand(export):
    path, pools = export
    held = held_of(path)
    table = summary(held).to_pandas()
    ours, other = (table[table["pid"] == pid].iloc[0] for pid in (P, Q))
    assert (ours["before_bytes"], ours["peak_bytes"]) == (16 * MIB, 28 * MIB)
    assert (ours["peak_op"], ours["peak_step"]) == ("<inner> & 'co'", 0)
    assert ours["end_bytes"] == (4 + 2 + 3) * MIB
    # The pool's 64 MiB, and beside it 4 of outer and 16 from before.
    assert ours["peak_reserved_bytes"] == (84 * MIB if pools else -1)
    assert (other["memory"], other["peak_bytes"], other["device"]) == ("pinned", MIB, 0)
    ops = by_op(held).to_pandas().set_index(["op", "memory"])
    inner, outer = ops.loc[("<inner> & 'co'", "device")], ops.loc[("outer", "device")]
    assert (inner["allocated_bytes"], inner["released_bytes"], inner["peak_bytes"]) == (
        8 * MIB,
        8 * MIB,
        8 * MIB,
    )
    assert (outer["allocated_bytes"], outer["total_allocated_bytes"]) == (7 * MIB, 15 * MIB)
    assert (outer["released_bytes"], outer["left_bytes"]) == (16 * MIB, 6 * MIB)
    assert outer["peak_bytes"] == 12 * MIB
    assert ops.loc[("(no op)", "device"), "allocated_bytes"] == 3 * MIB
    states = Counter(by_allocation(held)["state"])
    assert dict(states) == {
        "alive at the end": 4, "released": 1, "before the capture": 1, "release not recorded": 1,
    }  # fmt: skip
    alive = alive_at_peak(held).to_pandas()
    alive = alive[alive["pid"] == P].set_index("op")["bytes"]
    assert dict(alive) == {
        "(before the capture)": 16 * MIB,
        "<inner> & 'co'": 8 * MIB,
        "outer": 4 * MIB,
    }


def test_it_is_read_only_when_asked_for(export):
    path, _ = export
    assert not len(importers.load(path, details=False).memory)
    assert not len(importers.load(path, details={"waits"}).memory)
    assert len(importers.load(path, details={"memory"}).memory) == 8


def test_what_is_no_allocation_is_left_out_and_no_time_is_the_calls(tmp_path):
    events = [dict(row, start=0) for row in rows(pool=False)]
    events[2]["memoryOperationType"] = 2
    path = filled(program(tmp_path / "made.sqlite"), COLUMNS["3.0.0"], events)
    table = importers.load(path).memory
    assert table["time"].tolist() == [1_150, 1_350, 1_650, 1_750, 1_850, 2_500, 1_350]
    assert set(table["operation"]) == {frames.ALLOCATE, frames.RELEASE}
    assert table["address"].dtype == np.int64


def test_a_report_without_the_table_says_what_to_do(tmp_path):
    path = program(tmp_path / "made.sqlite")
    shown = CliRunner().invoke(main, ["memory", str(path)])
    assert shown.exit_code == 1
    assert "--cuda-memory-usage=true" in shown.output
    assert "Traceback" not in shown.output


READ: dict[object, importers.Capture] = {}


@pytest.mark.parametrize("by", ["op", "allocation", "alive", "step", "trace", "summary"])
@pytest.mark.parametrize("form", ["table", "json", "csv", "md"])
def test_every_table_in_every_format(newest, by, form):
    with reading_once(READ):
        shown = CliRunner().invoke(main, ["memory", str(newest), "--by", by, "--format", form])
    assert shown.exit_code == 0, shown.output
    if form == "json":
        found = json.loads(shown.stdout)
        assert found["format"] == "bridge.memory/1"
        assert found["rows"]
    if form == "table":
        assert "peak 28.0 MiB" in shown.stdout


def test_some_time_is_counted_alone_and_totals_stay_the_wholes(newest):
    path = newest
    whole = by_event(held_of(path)).to_pandas().set_index("trace")
    part = by_event(
        MemoryUsage.of(bridge.load(path).within(range_name="<inner> & 'co'").attributed)
    ).to_pandas()
    assert part["bytes"].tolist() == [8 * MIB, 8 * MIB, MIB]
    assert part.set_index("trace").equals(whole.loc[part["trace"]])
    step = by_event(MemoryUsage.of(bridge.load(path).within(steps=(0, 0)).attributed))
    assert len(step) == len(whole) - 1  # the last is after the step
    late = CliRunner().invoke(
        main, ["memory", str(path), "--from", "1600ns", "--by", "trace", "--format", "csv"]
    )
    assert len(late.stdout.splitlines()) < len(whole)


# -- the drawing


def test_the_drawing_has_a_rectangle_for_each_allocation(newest, tmp_path):
    path = newest
    svg = tmp_path / "memory_flow.svg"
    shown = CliRunner().invoke(main, ["memory", str(path), "-o", str(svg)])
    assert shown.exit_code == 0, shown.output
    root = ET.fromstring(svg.read_text())
    space = "{http://www.w3.org/2000/svg}"
    titles = [t.text for t in root.findall(f".//{space}g/{space}rect/{space}title")]
    assert len(titles) == len(by_allocation(held_of(path))) == 7
    assert any(t.startswith("<inner> & 'co': 8.0 MiB at 0x20000000") for t in titles)
    assert "peak 28.0 MiB" in svg.read_text()
    again = CliRunner().invoke(
        main, ["memory", str(path), "--flow", str(svg), "--color", "lifetime"]
    )
    assert (again.exit_code, "--force" in again.output) == (1, True)


@pytest.fixture(scope="module")
def many(tmp_path_factory) -> MemoryUsage:
    """A hundred thousand allocations of one op, their lengths and sizes by a fixed rule."""
    path = program(tmp_path_factory.mktemp("many") / "made.sqlite")
    count = 100_000
    nth = np.arange(count)
    where = {"globalPid": made.process(P), "deviceId": 0, "memKind": 2, "correlationId": 1}
    rng = np.random.default_rng(5)
    ends = nth * 10 + rng.integers(1, 5_000, count)
    size = 512 << rng.integers(0, 12, count)
    address = (nth % 700) * (4 << 20)
    events = [
        dict(where, start=t, address=a, bytes=s, memoryOperationType=r)
        for t, a, s, r in [
            *zip(
                (nth * 10 + 10_000).tolist(),
                address.tolist(),
                size.tolist(),
                [0] * count,
                strict=True,
            ),
            *zip(
                (ends + 10_000).tolist(), address.tolist(), size.tolist(), [1] * count, strict=True
            ),
        ]
    ]
    return held_of(filled(path, BARE, events))


def test_a_hundred_thousand_allocations_are_drawn_small_ones_together(many):
    drawn = flow.flow(many)
    [panel] = drawn.panels
    lives = by_allocation(many)
    assert panel.tiles["count"].sum() == len(lives) > 90_000
    assert panel.tiles["bytes"].sum() == lives["bytes"].sum()
    assert len(panel.tiles) <= 2 * flow.MAX_RECTANGLES
    assert panel.tiles["high"].max() <= panel.height
    assert panel.peak_bytes == panel.curve["used"].max()
    text = flow_svg(drawn)
    assert len(text.encode()) < 10 << 20
    assert len(re.findall(r"<rect class=\"c", text)) < 2 * flow.MAX_RECTANGLES + 20
    assert f"{panel.grouped} least of them" in text
