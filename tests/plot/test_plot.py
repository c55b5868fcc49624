"""`bridge plot`: what is drawn is what is true, in every format, the same bytes each time, and without a display."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections import Counter
from pathlib import Path

import made_reports
import numpy as np
import pytest
from command import assert_misused, assert_refused, bridge, done, inside
from hypothesis import given
from join.trainings import trainings
from made_reports import MARK, PUSH_POP, Made, thread
from real_parts import NIGHT

from bridge.analyze.draw.plots import PARTS, breakdown, durations, over_time
from bridge.render.plot.page import short, time
from bridge.report import load

pytestmark = pytest.mark.slow

matplotlib = pytest.importorskip("matplotlib", reason="matplotlib is not installed")

KINDS = ("breakdown", "timeline", "memory", "roofline", "histogram")
BEGIN = {".svg": b"<?xml", ".png": b"\x89PNG", ".pdf": b"%PDF"}


@pytest.fixture
def all_kinds(folder):
    """Give a report with something for every kind of picture, and names that could harm one."""
    made, host = Made(), {"thread": thread(100)}
    made.names_of(100)
    made.annotation(75, 1, None, text="memory", domain=9, **host)
    for step in range(3):
        t = 1_000 + step * 10_000
        made.annotation(PUSH_POP, t, t + 9_000, text=f"step {step}", **host)
        for nth, name in enumerate(("mm", "$a_1$ <b> & \u4e2d")):
            said = json.dumps({"flops": 10**6, "bytes": 10**3 * (nth + 1)})
            at = t + 100 + nth * 1_000
            made.annotation(PUSH_POP, at, at + 500, text=name, json=said, **host)
            made.kernel(f"{name} kernel", at + 10, 100, at + 100, at + 400 + nth * 100)
        made.annotation(MARK, t, None, text="counter:resident", domain=9, payload=2**30, **host)
    return made.written(folder / "made.sqlite")


def drawn(report, kind, suffix=".svg", *more):
    output = report.parent / f"{kind}{suffix}"
    done("plot", report, "--kind", kind, "-o", output, "--force", *more)
    return output.read_bytes()


@pytest.mark.parametrize("kind", KINDS)
def test_every_kind_in_every_format_the_same_each_time(all_kinds, kind):
    """On changes PDF is tried with one kind: what it has of its own, fonts and dates, takes a second a picture."""
    for suffix, begin in BEGIN.items():
        if suffix == ".pdf" and not NIGHT and kind != "breakdown":
            continue
        first = drawn(all_kinds, kind, suffix)
        assert first.startswith(begin)
        assert drawn(all_kinds, kind, suffix) == first


def test_the_same_in_another_process_with_another_style_and_no_display(all_kinds, tmp_path):
    """One process draws all kinds, for its start takes longer than they do."""
    (tmp_path / "matplotlibrc").write_text("font.size: 20\nbackend: tkagg\naxes.grid: True\n")
    gone = {"DISPLAY", "WAYLAND_DISPLAY"}
    environment = {k: v for k, v in os.environ.items() if k not in gone}
    program = (
        "import sys; from bridge.cli import main\n"
        "for kind in sys.argv[2:]:\n"
        "    main(['plot', sys.argv[1], '--kind', kind, '-o', f'other-{kind}.svg'], standalone_mode=False)\n"
    )
    subprocess.run(
        [sys.executable, "-c", program, str(all_kinds), *KINDS],
        env=environment | {"MATPLOTLIBRC": str(tmp_path), "PYTHONHASHSEED": "7"},
        check=True,
        capture_output=True,
        timeout=60,
    )
    for kind in KINDS:
        assert Path(f"other-{kind}.svg").read_bytes() == drawn(all_kinds, kind), kind


def test_names_are_written_as_they_are(all_kinds):
    text = drawn(all_kinds, "breakdown").decode()
    assert "<!-- mm -->" in text
    assert "<!-- $a_1$ &lt;b&gt; &amp; 中 -->" in text or "$a_1$ <b> & 中" in text
    assert "mathdefault" not in drawn(all_kinds, "roofline").decode()
    assert "mathdefault" not in drawn(all_kinds, "histogram").decode()


def test_size_and_top_are_as_asked_for(all_kinds):
    from matplotlib.image import imread

    drawn(all_kinds, "breakdown", ".png", "--width", "3", "--height", "2")
    assert imread(all_kinds.parent / "breakdown.png").shape[:2] == (400, 600)
    assert "1 other op -->" in drawn(all_kinds, "breakdown", ".svg", "--top", "1").decode()


def test_roofs_are_drawn_where_they_are_said(all_kinds):
    text = drawn(
        all_kinds, "roofline", ".svg", "--peak-tflops", "312", "--peak-gbs", "1555"
    ).decode()
    assert "312 TFLOP/s, 1555 GB/s" in text
    assert "TFLOP/s, 1555" not in drawn(all_kinds, "roofline").decode()


def test_what_was_not_recorded_is_said(folder):
    plain = made_reports.small(folder / "plain.sqlite")
    for kind, words in (
        ("memory", ["plain.sqlite", "profile_memory=True"]),
        ("roofline", ["plain.sqlite", "with_flops=True"]),
    ):
        assert_refused(bridge("plot", plain, "--kind", kind, "-o", "x.svg"), *words)
    bare = made_reports.small(folder / "bare.sqlite", without="kernels copies fills graphs")
    for kind in ("breakdown", "timeline", "histogram"):
        assert_refused(bridge("plot", bare, "--kind", kind, "-o", "x.svg"), "bare.sqlite")
    refused = bridge("plot", plain, "--kind", "histogram", "--op", "none*", "-o", "x.svg")
    assert_refused(refused, "in none*")
    assert inside(folder) == ["bare.sqlite", "plain.sqlite"]


def test_misuse_is_said(all_kinds):
    assert_misused(bridge("plot", all_kinds), "-o ops.svg")
    assert_misused(bridge("plot", all_kinds, "-o", "x.jpg"), ".svg, .png, .pdf")
    assert_misused(bridge("plot", all_kinds, "-o", "x.svg", "--op", "mm"), "--kind histogram")
    assert_misused(bridge("plot", all_kinds, "-o", "x.svg", "--peak-gbs", "1"), "--kind roofline")
    done("plot", all_kinds, "-o", "x.svg")
    assert_refused(bridge("plot", all_kinds, "-o", "x.svg"), "x.svg", "--force")


def test_without_matplotlib_one_line_says_what_to_install(all_kinds, monkeypatch):
    monkeypatch.setattr("bridge.render.plot.find_spec", lambda name: None)
    assert_refused(bridge("plot", all_kinds, "-o", "x.svg"), "pip install 'nsight-bridge[plot]'")


def test_only_the_room_of_plots_imports_matplotlib():
    program = (
        "import sys, bridge.cli.plot, bridge.analyze.draw.plots; print('matplotlib' in sys.modules)"
    )
    ran = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True
    )
    assert ran.stdout == "False\n"


# -- what is drawn, against the records


@given(trainings())
def test_bars_are_the_times_of_ops_and_reasons(made):
    truth, profile = made.profile(), made.program.profile()
    parts = {"memcpy": 2, "memset": 3, "graph": 4}
    times: Counter = Counter()
    for row, (one, found) in enumerate(zip(profile.activities, profile.found, strict=True)):
        name = found.reason.replace("_", " ") or profile.ranges[found.range].op
        part = parts.get(one.kind, int(truth.way(row) == "backward"))
        times[bool(found.reason), name, part] += profile.time(row)
    joined = made.attributed()
    shown = breakdown(joined, 50)
    ops = len(shown.names) - shown.reasons
    assert (
        Counter(
            {
                (row >= ops, name, part): int(shown.parts[row, part])
                for row, name in enumerate(shown.names)
                for part in range(len(PARTS))
                if shown.parts[row, part]
            }
        )
        == +times
    )
    totals = shown.parts.sum(axis=1)[:ops].tolist()
    assert totals == sorted(totals, reverse=True)
    few = breakdown(joined, 1)
    assert few.parts.sum() == shown.parts.sum()
    assert few.reasons == shown.reasons
    assert len(few.names) - few.reasons == min(ops, 2)


@given(trainings())
def test_lanes_are_filled_while_their_stream_works(made):
    joined = made.attributed()
    found = over_time(joined, 2)
    assert found.left == 0
    activities = joined.capture.activities
    first = int(activities["start"].min()) if len(activities) else 0
    kept = zip(activities["start"].tolist(), joined.end.tolist(), strict=True)
    working = {t - first for start, end in kept for t in range(start, end)}
    assert found.width_ns == 1  # these programs are shorter than there are bins
    filled = found.shares.sum(axis=(0, 1)) > 0
    assert {*np.flatnonzero(filled).tolist()} == working
    assert found.shares.sum(axis=1).max(initial=0) <= 1 + 1e-9


def test_overlaps_share_a_bin_and_the_rest_is_one_group(all_kinds):
    found = over_time(load(all_kinds).attributed, 1)
    assert found.groups == ["$a_1$ <b> & 中", "other ops", "no op"]
    assert found.lanes == ["GPU 0, stream 7"]
    assert len(found.steps) == 3 - 1  # the first began before any work
    spent = (found.shares.sum(axis=(0, 2)) * found.width_ns).round().tolist()
    assert spent == [1_200, 900, 0]


@given(trainings())
def test_durations_are_counted_in_the_bin_that_holds_them(made):
    profile = made.program.profile()
    found = durations(made.attributed(), 50)
    times = {name: [] for name in found.names}
    for row, one in enumerate(profile.activities):
        if profile.time(row) > 0:
            times[one.name].append(profile.time(row))
    for row, name in enumerate(found.names):
        assert found.total_ns[row] == sum(times[name])
        low, high = found.edges_ns[:-1] * (1 - 1e-9), found.edges_ns[1:] * (1 + 1e-9)
        assert found.counts[row].sum() == len(times[name])
        for nth, number in enumerate(found.counts[row].tolist()):
            assert number <= sum(low[nth] <= ns <= high[nth] for ns in times[name])


def test_durations_of_some_ops_alone(all_kinds):
    joined = load(all_kinds).attributed
    (name,) = durations(joined, 8, "mm").names
    assert name.startswith("mm kernel")
    assert len(durations(joined, 8).names) == 2
    (name,) = durations(joined, 1).names
    assert name.startswith("$a_1$ <b> & 中 kernel")


def test_times_and_names_are_short():
    assert [time(ns) for ns in (0, 7, 1_500, 2_000_000, 3.2e9)] == [
        "0 ns", "7 ns", "1.5 µs", "2 ms", "3.2 s",
    ]  # fmt: skip
    assert short("a" * 40) == "a" * 40
    assert short("begin" + "x" * 60 + "end") == "beginxxxxxxxxxxxxxxxxxxxxx…xxxxxxxxxxend"
    assert len(short("x" * 99, 20)) == 20
