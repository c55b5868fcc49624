"""What the timeline adds to the frames, held against plain definitions: projections, curves, windows, selections."""

import gzip
from collections import defaultdict

import made_reports
import numpy as np
import pandas as pd
import pytest
import real_parts
from advice.story import US, Story
from hypothesis import given
from hypothesis import strategies as st
from join.programs import attributed, programs
from made_reports import MARK

import bridge
from bridge.analyze.core.time_range import Windows, clock_window, range_windows, step_windows
from bridge.analyze.draw.timeline import Selection, parts, timeline
from bridge.importers import ReportError, frames

spans = st.lists(st.tuples(st.integers(0, 60), st.integers(0, 12)), min_size=1, max_size=25)


def kind_of(made, kind):
    return next(s for s in made.slices if s.kind == kind)


def columns(pairs):
    start = np.array([a for a, _ in pairs], np.int64)
    return start, start + np.array([length for _, length in pairs], np.int64)


# -- projections


def projected(joined):
    """Walk up from every activity: per range and stream, first start, last end, how many."""
    found = joined.attribution
    table = joined.capture.activities
    on = {c: table[c].tolist() for c in ("report", "process", "device", "context", "stream")}
    inside = defaultdict(list)
    for row, node in enumerate(joined.node.tolist()):
        where = tuple(of[row] for of in on.values())
        interval = int(table.start[row]), int(joined.end[row])
        around = node
        while around != -1:
            inside[around, where].append(interval)
            around = int(found.nesting.parent[around])
    name = joined.capture.ranges.name.tolist()
    return sorted(
        (name[found.nesting.range[node]], min(a for a, _ in of), max(b for _, b in of), len(of))
        for (node, _), of in inside.items()
        if len(of) > 1
    )


def drawn_projections(joined):
    s = kind_of(timeline(joined), "projection")
    return sorted(
        (s.name.names[s.name.codes[r]], int(s.start[r]), int(s.start[r] + s.duration[r]), int(s.args["activities"][r]))
        for r in s.rows
    )  # fmt: skip


@pytest.mark.slow
@given(programs())
def test_ranges_are_projected_on_each_stream_they_have_work_on(program):
    joined = attributed(program)
    assert drawn_projections(joined) == projected(joined)


@pytest.mark.slow
@pytest.mark.parametrize("path", real_parts.corpus_reports())
def test_projections_of_real_reports(path):
    try:
        joined = bridge.load(path).attributed
    except ReportError:
        real_parts.skip_what_holds_no_profile(path)
    assert drawn_projections(joined) == projected(joined)


# -- curves


def at(curve, instant):
    """The value of a curve at a time, None before its first."""
    before = [
        value for time, value in zip(*map(np.ndarray.tolist, curve), strict=True) if time <= instant
    ]
    return before[-1] if before else None


@pytest.mark.slow
@given(spans)
def test_the_level_is_how_many_are_open(pairs):
    start, end = columns(pairs)
    curve = parts.open_counts(start, end)
    for instant in range(-1, 75):
        is_open = sum(a <= instant < b for a, b in zip(start.tolist(), end.tolist(), strict=True))
        assert (at(curve, instant) or 0) == is_open
    assert (np.diff(curve[0]) > 0).all()


@pytest.mark.slow
@given(spans, st.lists(st.integers(-5, 80), min_size=2, max_size=9))
def test_time_in_bins_is_exact(pairs, edges):
    start, end = columns(sorted(pairs))
    edges = np.array(sorted(edges), np.int64)
    ran = {t for a, b in zip(start.tolist(), end.tolist(), strict=True) for t in range(a, b)}
    expected = [
        sum(t in ran for t in range(a, b))
        for a, b in zip(edges[:-1].tolist(), edges[1:].tolist(), strict=True)
    ]
    assert parts.busy_times(start, end, edges).tolist() == expected


def test_the_busy_share_of_a_kernel_in_the_middle():
    time, share = parts.busy_share(np.array([0, 4_000]), np.array([1_000, 8_000]))
    assert time.tolist() == [*range(0, 8_000, 1_000), 8_000]
    assert share.tolist() == [100, 0, 0, 0, 100, 100, 100, 100, 0]


def test_a_long_curve_keeps_its_peaks_and_its_levels(monkeypatch):
    monkeypatch.setattr(parts, "MAX_CHANGES", 50)
    monkeypatch.setattr(parts, "BINS", 10)
    random = np.random.default_rng(7)
    time = np.cumsum(random.integers(1, 5, 1000))
    value = np.abs(np.cumsum(random.integers(-1, 2, 1000)))
    when, what = parts.thin_curve(time, value)
    assert len(when) <= 2 * 10
    assert (np.diff(when) > 0).all()
    assert what.max() == value.max()
    assert set(zip(when[1::2].tolist(), what[1::2].tolist(), strict=True)) <= set(
        zip(time.tolist(), value.tolist(), strict=True)
    )
    assert (when[-1], what[-1]) == (time[-1], value[-1])
    short = parts.thin_curve(time[:50], value[:50])
    assert short[0] is not None
    assert short[1].tolist() == value[:50].tolist()


@pytest.mark.slow
def test_curves_of_a_real_report(corpus):
    joined = bridge.load(corpus / "nsys" / "cupy-power-iteration.sqlite").attributed
    drawn = {s.name.names[0]: s for s in timeline(joined).counters if len(s)}
    assert list(drawn) == [parts.CONCURRENCY, parts.QUEUE, parts.BUSY, parts.LATENCY]
    table, launches = joined.capture.activities, joined.capture.launches
    start, end = table.start, joined.end
    running = drawn[parts.CONCURRENCY]
    curve = running.start, running.args["value"]
    for instant in start[::97].tolist():
        assert at(curve, instant) == int(((start <= instant) & (instant < end)).sum())
    latency = drawn[parts.LATENCY].args["value"]
    launch = joined.attribution.launch
    late = start[launch != -1] - launches.start[launch[launch != -1]]
    assert sorted(latency.tolist()) == sorted(late.tolist())
    # NVIDIA's totals go from the start of the call to the end of the kernel, or of the call where that
    # is later; they are rounded to 0.1 ns.
    with gzip.open(corpus / "expected" / "cupy-power-iteration" / "cuda_kern_exec_sum.csv.gz") as f:
        theirs = pd.read_csv(f)
    is_kernel = table.kind.among(frames.KERNEL) & (launch != -1)
    call_end = launches.end[launch]
    after_the_kernel = np.maximum(call_end - end, 0)[is_kernel].sum()
    ours = latency[np.isin(drawn[parts.LATENCY].start, start[is_kernel])].sum() + after_the_kernel
    total = ((theirs["TAvg:dur_ns"] - theirs["KAvg:dur_ns"]) * theirs["Count"]).sum()
    assert abs(ours - total) <= 0.1 * theirs["Count"].sum()


def test_arguments_of_kernels_and_copies_have_the_names_of_profilers(tmp_path):
    path = made_reports.small(tmp_path / "small.sqlite")
    drawn = timeline(bridge.load(path).attributed)
    kernels = kind_of(drawn, "kernel")
    names = "grid, block, registers per thread, static shared memory (bytes), dynamic shared memory (bytes)"
    assert [*kernels.args] == ["op", "path", "reason", "correlation", *names.split(", ")]
    texts = {
        name: {kernels.args[name].names[code] for code in kernels.args[name].codes[kernels.rows]}
        for name in ("grid", "block")
    }
    assert texts == {"grid": {"8x2x1"}, "block": {"128x1x1"}}
    copies = kind_of(drawn, "memcpy")
    assert [*copies.args][4:] == ["bytes", "source memory kind", "destination memory kind"]


def test_a_curve_begins_with_the_value_it_had_before():
    curve = np.array([10, 20, 30]), np.array([1, 2, 0])
    at_25 = parts.clip_curve(curve, (25, 100))
    assert [c.tolist() for c in at_25] == [[25, 30], [2, 0]]
    assert [c.tolist() for c in parts.clip_curve(curve, (20, 25))] == [[20], [2]]
    assert [c.tolist() for c in parts.clip_curve(curve, (22, 25))] == [[22], [2]]
    assert [c.tolist() for c in parts.clip_curve(curve, (0, 15))] == [[10], [1]]


# -- windows

windows = st.lists(
    st.tuples(st.integers(0, 2), st.integers(0, 40), st.integers(1, 6)), min_size=1, max_size=8
)


@pytest.mark.slow
@given(
    windows,
    st.lists(st.tuples(st.integers(0, 2), st.integers(-3, 50), st.integers(0, 9)), min_size=1),
)
def test_intervals_that_meet_a_window(given_windows, intervals):
    report, start, length = (np.array(c, np.int64) for c in zip(*given_windows, strict=True))
    made = Windows.of(report, start, start + length)
    of, begin, lasts = (np.array(c, np.int64) for c in zip(*intervals, strict=True))
    inside = {(r, t) for r, a, n in given_windows for t in range(a, a + n)}
    expected = [any((r, t) in inside for t in range(a, a + max(n, 1))) for r, a, n in intervals]
    assert made.meet(of, begin, begin + lasts).tolist() == expected
    for a in range(1, len(made.report)):
        assert made.report[a] > made.report[a - 1] or made.start[a] > made.end[a - 1]


@pytest.fixture(scope="module")
def training(corpus):
    return bridge.load(corpus / "nsys" / "mnist-training.sqlite").attributed


def rows_of(made, *kinds):
    return {(s.kind, int(r)) for s in made.slices if s.kind in kinds for r in s.rows}


DEVICE = ("kernel", "memcpy", "memset", "graph")


@pytest.mark.slow
def test_a_step_comes_with_all_that_it_launched(training):
    made = timeline(training, Selection((step_windows(training, 3, 4),)))
    assert [
        s.name.names[s.name.codes[r]] for s in made.slices if s.kind == "step" for r in s.rows
    ] == ["step 3", "step 4"]
    shown = {row for _, row in rows_of(made, *DEVICE)}
    launched = np.flatnonzero((training.activity_step == 3) | (training.activity_step == 4))
    assert set(launched.tolist()) <= shown
    assert len(shown) < 2 * len(launched)
    ops = kind_of(made, "op")
    assert ops.start[ops.rows].min() == training.steps.start[3]  # the epoch around it is cut
    assert len(made.arrows.rows)
    calls = kind_of(made, "api")
    assert set(made.arrows.call[made.arrows.rows].tolist()) <= set(calls.rows.tolist())
    [running] = (s for s in made.counters if s.name.names == [parts.CONCURRENCY])
    assert running.start[running.rows].size


def test_a_window_of_the_clock(training):
    base = training.capture.facts[0].span[0]
    first, last = 5_000_000_000, 5_300_000_000
    made = timeline(training, Selection((clock_window(training, first, last),)))
    start, end = training.capture.activities.start - base, training.end - base
    expected = np.flatnonzero((start < last) & ((end > first) | (start >= first)))
    assert {row for _, row in rows_of(made, *DEVICE)} == set(expected.tolist())


def test_a_window_of_the_clock_has_its_marks(tmp_path):
    story = Story()
    story.kernel(us=100)  # called at 0
    for us in (14, 15, 29, 30):
        story.annotation(MARK, us * US, None, text="mark")
    joined = story.load(tmp_path).attributed
    made = timeline(joined, Selection((clock_window(joined, 15 * US, 30 * US),)))
    times = joined.capture.marks.time[made.marks.rows]
    assert times.tolist() == [15 * US, 29 * US]


def test_a_range_by_name(training):
    made = timeline(training, Selection((range_windows(training, "Batch 1?"),)))
    ops = kind_of(made, "op")
    names = {ops.name.names[ops.name.codes[r]] for r in ops.rows}
    assert {f"Batch {n}" for n in range(10, 20)} <= names
    assert "Batch 5" not in names


@pytest.mark.parametrize(
    ("asked", "answer"),
    [
        (lambda j: step_windows(j, 60, 70), "the report has 0 to 58"),
        (lambda j: range_windows(j, "nothing*"), "no range 'nothing\\*'"),
        (lambda j: clock_window(j, 5, 5), "ends before it starts"),
    ],
)
def test_windows_of_nothing_are_refused(training, asked, answer):
    with pytest.raises(ValueError, match=answer):
        asked(training)


def test_a_window_that_is_far_away_holds_nothing(training):
    made = timeline(training, Selection((clock_window(training, 2**62, 2**63),)))
    assert not any(len(s) for s in made.all_slices())


@pytest.mark.slow
def test_a_report_without_steps_says_what_they_are(corpus):
    joined = bridge.load(corpus / "nsys" / "vector-add.sqlite").attributed
    with pytest.raises(ValueError, match="no steps in the report"):
        step_windows(joined, 0, 1)


# -- selections


def test_a_slim_timeline_has_no_calls_and_says_op_and_reason_alone(training):
    made = timeline(training, Selection(slim=True))
    assert {s.kind for s in made.slices} == {"step", "op", *DEVICE}
    assert set(kind_of(made, "kernel").args) == {"op", "reason"}
    assert not made.counters
    assert not len(made.arrows.rows)
    assert not len(made.phases)
    assert not len(made.marks)
    assert rows_of(made, *DEVICE) == rows_of(timeline(training), *DEVICE)


@pytest.mark.slow
@pytest.mark.parametrize("most", [1, 500, 10_000, 10**6])
def test_the_longest_slices_are_kept(training, most):
    whole, made = timeline(training), timeline(training, Selection(max_slices=most))
    lengths = np.sort(np.concatenate([s.duration[s.rows] for s in whole.all_slices()]))
    kept = np.sort(np.concatenate([s.duration[s.rows] for s in made.all_slices()]))
    assert kept.tolist() == lengths[-most:].tolist()
    assert made.left_out == max(0, len(lengths) - most)
    drawn = rows_of(made, *DEVICE)
    assert {row for _, row in drawn} >= set(made.arrows.rows.tolist())


def test_nothing_selected_is_everything(training):
    whole, made = timeline(training), timeline(training, Selection(max_slices=10**9))
    assert [len(s) for s in whole.slices] == [len(s) for s in made.slices]
    assert whole.arrows.rows.tolist() == made.arrows.rows.tolist()
    assert whole.arrows.op.tolist() == made.arrows.op.tolist()
