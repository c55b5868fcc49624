"""The traces as chrome://tracing's viewer reads them: nothing lost, nothing moved, parents and arrows as they should be."""

from collections import Counter

import numpy as np
import pytest
import real_parts
from made_reports import Made, thread

import bridge
from bridge.analyze.draw.timeline import timeline
from bridge.importers import ReportError

pytestmark = [pytest.mark.slow, pytest.mark.usefixtures("names_as_recorded")]


MOST = 15_000  # rows of a report that the viewer loads in about a second
DEVICE = ("kernel", "memcpy", "memset", "graph")
# An arrow takes the arguments of both its slices, of which the last stay: theirs are untouched.
NO_LOSS = {"arg_merge_error"}


def loaded(path):
    try:
        joined = bridge.load(path)
    except ReportError:
        real_parts.skip_what_holds_no_profile(path)
    report = joined.capture
    rows = sum(map(len, (report.ranges, report.launches, report.activities)))
    if rows > MOST:
        pytest.skip(f"{rows} rows: the viewer takes long for more than {MOST}")
    return joined


def shown(catapult, joined, folder, name="t.json", complaints=(), **how):
    """Export a trace, and give what the viewer makes of it; it must complain of no loss but of these kinds."""
    joined.export_trace(folder / name, **how)
    model = catapult.open(folder / name)
    assert catapult.errors == []
    assert [kind for kind, _ in model.warnings if kind not in NO_LOSS] == [*complaints]
    return model


def begun(table, base, rows=slice(None)):
    """Times since the base, and lengths, as they are drawn: what ends before it starts has none."""
    start, end = table.start[rows], table.end[rows]
    return (start - base).tolist(), np.maximum(end - start, 0).tolist()


def drawn(joined):
    """Count the slices that the frames ask for: (category, name, start, length); steps and projections are not of these."""
    report, base = joined.capture, timeline(joined.attributed).base
    stacked = np.flatnonzero(report.ranges["kind"] == "push_pop")
    parts = (
        (["op"] * len(stacked), report.ranges["name"][stacked], begun(report.ranges, base, stacked)),
        (["api"] * len(report.launches), report.launches["name"], begun(report.launches, base)),
        (report.activities["kind"], report.activities["name"], begun(report.activities, base)),
    )  # fmt: skip
    found = Counter()
    for kind, name, (start, length) in parts:
        found.update(zip(kind, name, start, length, strict=True))
    marks = joined.capture.marks
    is_mark = ~marks.name.matching(lambda name: name.startswith("counter:"))
    times = (marks["time"][is_mark] - base).tolist()
    found.update(
        ("mark", name, t, 0) for name, t in zip(marks["name"][is_mark], times, strict=True)
    )
    return found


def arrows(joined):
    """Every arrow, by the start of both ends: from an op to its calls, from a call to what it launched."""
    found, report = joined.attributed.attribution, joined.capture
    base = timeline(joined.attributed).base
    ranges, calls, work = (
        begun(t, base)[0] for t in (report.ranges, report.launches, report.activities)
    )
    from_op, from_call = {}, Counter()
    for row, (call, node) in enumerate(
        zip(found.launch.tolist(), found.launched_in.tolist(), strict=True)
    ):
        if call >= 0 and work[row] >= calls[call]:  # it draws no arrow back in time
            from_call["api", calls[call], work[row]] += 1
        if call >= 0 and node >= 0:
            from_op[call] = ranges[int(found.nesting.range[node])]
    return from_call + Counter(("op", op, calls[call]) for call, op in from_op.items())


def check_parents(model):
    """Hold every parent against its definition: of the slices of the track that contain one, the last that begins.

    Of those with one interval it is the one before in the order of the file, which the viewer keeps.
    """
    of_track = {}
    for place, s in enumerate(model.slices):
        of_track.setdefault(s.track, []).append(place)
    for places in of_track.values():
        around = []
        for place in places:
            _, _, _, start, duration, parent, _ = model.slices[place]
            around = [p for p in around if ends(model.slices[p]) >= start]
            containing = [p for p in around if ends(model.slices[p]) >= start + duration]
            assert parent == (containing[-1] if containing else -1)
            around.append(place)


def ends(s):
    return s.start + s.duration


def check(model, joined):
    """Hold what the viewer read against the frames."""
    expected = drawn(joined)
    frames_of = {"op", "api", "mark", *DEVICE}
    found = Counter(
        (s.category, s.title, s.start, s.duration) for s in model.slices if s.category in frames_of
    )
    assert found == expected
    whole = timeline(joined.attributed)
    others = Counter(s.category for s in model.slices if s.category not in frames_of)
    assert others == {s.kind: len(s) for s in whole.slices if len(s) and s.kind not in frames_of}
    assert len(model.phases) == (~joined.capture.ranges.kind.among("push_pop")).sum()
    samples = Counter((c.process, c.name) for c in model.counters for _ in c.samples)
    assert samples.total() == sum(map(len, whole.counters))
    assert all(c.samples == sorted(c.samples, key=lambda s: s[0]) for c in model.counters)
    assert whole_span(model) == whole_span_of(joined, whole)
    slices = model.slices
    assert {*model.tracks} == {(t.group.name, t.name) for t in whole.tracks}
    assert model.unfinished == 0
    assert arrows(joined) == Counter(
        (slices[f.source].category, slices[f.source].start, slices[f.target].start)
        for f in model.flows
    )
    check_parents(model)


def whole_span(model):
    every = [*model.slices, *model.phases]
    return min((s.start for s in every), default=0), max(map(ends, every), default=0)


def whole_span_of(joined, whole):
    first = [s.start[s.rows] - whole.base for s in (*whole.all_slices(), whole.marks)]
    last = [(s.start + s.duration)[s.rows] - whole.base for s in (*whole.all_slices(), whole.marks)]
    return int(np.concatenate(first).min(initial=0)), int(np.concatenate(last).max(initial=0))


@pytest.mark.parametrize("path", real_parts.corpus_reports())
def test_real_reports_are_shown_whole(path, catapult, tmp_path):
    joined = loaded(path)
    check(shown(catapult, joined, tmp_path), joined)


NOTHING = (None, None, None)
NAMES = ['say "hi"', "back\\slash", "größe ✓ 🚀 𐀀 \U0010ffff", "</script><b>", "a/b, c = [1]"]


@pytest.fixture
def awkward(tmp_path):
    """Everything that viewers trip over: what crosses, what has no length, equal intervals, names, all kinds of marks."""
    made, host = Made(), {"thread": thread(7)}
    for n, name in enumerate(NAMES):
        made.annotation(59, 1000 + 200 * n, 1150 + 200 * n, text=name, **host)
    stacked = {
        "before the start": (-5000, 9000), "crosses": (3000, 5000), "is crossed": (4000, 6000),
        "no length": (7000, 7000), "none either": (7000, 7000), "same": (7100, 7300), "same again": (7100, 7300),
        "ends where the next begins": (7400, 7500), "begins there": (7500, 7600),
    }  # fmt: skip
    for name, (start, end) in stacked.items():
        made.annotation(59, start, end, text=name, domain=int(name == "is crossed"), **host)
    for name, start, end in (
        ("phase", 2000, 8000),
        ("phase", 2500, 9500),
        ("never ends", 2600, None),
    ):
        made.annotation(60, start, end, text=name, **host)
    for time in (1050, 4242, 7000, 7500):
        made.annotation(34, time, None, text="a mark", **host)
    for time, name, value in ((10, "n", 3), (20, "n", -1), (30, "n", 2**53), (40, "m", 0)):
        made.annotation(34, time, None, text=f"counter:{name}", payload=value, **host)
    for time, value in ((50, 0.5), (51, -2.25e-7)):
        made.annotation(34, time, None, text="counter:loss", number=value, **host)
    spans = (
        (3000, 4000),
        (3999, 4500),
        (3500, 3600),
        (4600, 4600),
        (4600, 4600),
        (4600, 4700),
        (5000, 4000),
    )
    for n, (start, end) in enumerate(spans):
        made.kernel(f"k{n}", 2000 + 10 * n, 7, start, end)
    made.kernel("of no call", -1, 7, 6000, 6001)
    made.kernel("of another process", 2100, 8, 6000, 6001)
    made.kernel("before its call", 6500, 7, 6400, 6450)
    return bridge.load(made.written(tmp_path / "awkward.sqlite"))


def test_what_viewers_trip_over_is_shown_whole(awkward, catapult, tmp_path):
    back_in_time = ["flow_slice_ordering_error"]  # as ever, no viewer draws that arrow
    model = shown(catapult, awkward, tmp_path, complaints=back_in_time)
    check(model, awkward)
    names = {s.title for s in model.slices} | {s.title for s in model.phases}
    assert {*NAMES, "phase", "never ends", "a mark"} <= names
    curves = {c.name: c.samples for c in model.counters if c.name in ("n", "m", "loss")}
    assert curves == {
        "n": [[5010, 3], [5020, -1], [5030, 2**53]],
        "m": [[5040, 0]],
        "loss": [[5050, 0.5], [5051, -2.25e-7]],
    }


@pytest.mark.parametrize("name", ["made", "nvfuser"])
def test_parents_are_those_that_perfetto_finds(
    name, awkward, request, catapult, trace_processor, tmp_path
):
    path = name != "made" and request.getfixturevalue("corpus") / "nsys" / f"{name}.sqlite"
    joined = bridge.load(path) if path else awkward
    joined.export_trace(tmp_path / "t.json")
    slices = catapult.open(tmp_path / "t.json").slices
    of = [(s.category, s.start, s.duration) for s in slices]  # Perfetto shows a backslash twice
    found = Counter(
        (*of[n], *(of[s.parent] if s.parent >= 0 else NOTHING)) for n, s in enumerate(slices)
    )
    rows = trace_processor(tmp_path / "t.json").query(
        "select s.category a, s.ts b, s.dur c, p.category d, p.ts e, p.dur f"
        " from slice s left join slice p on s.parent_id = p.id where s.category != 'phase'"
    )
    assert found == Counter(map(tuple, rows))


def test_what_is_compressed_is_the_same(awkward, catapult, tmp_path):
    plain, packed = (
        shown(catapult, awkward, tmp_path, name, ["flow_slice_ordering_error"])
        for name in ("t.json", "t.json.gz")
    )
    assert vars(plain) == vars(packed)


@pytest.mark.parametrize("dialect", ["torch", "raf", "mxnet", "megengine"])
def test_other_dialects_are_shown_whole(dialect, corpus, catapult, tmp_path):
    """Begins and ends are pairs, which the viewer says by no complaint and by nothing unfinished."""
    name = (
        "pytorch-forward" if dialect == "torch" or real_parts.NIGHT else "nvfuser"
    )  # a smaller one
    joined = bridge.load(corpus / "nsys" / f"{name}.sqlite")
    model = shown(catapult, joined, tmp_path, dialect=dialect)
    report, unit = joined.capture, 1_000 if dialect == "raf" else 1  # RAF's are whole microseconds
    stacked = report.ranges.take(report.ranges.kind == "push_pop")
    tables = stacked, report.launches, report.activities
    base = timeline(joined.attributed).base
    times = [time for table in tables for time in zip(*begun(table, base), strict=True)]
    expected = Counter((s // unit * unit, (s + length) // unit * unit) for s, length in times)
    assert model.unfinished == 0
    assert Counter((s.start, ends(s)) for s in model.slices) == expected
    if dialect in ("torch", "megengine"):
        from_call = sum(n for (kind, *_), n in arrows(joined).items() if kind == "api")
        assert len(model.flows) == from_call
    if dialect != "raf":
        check_parents(model)
