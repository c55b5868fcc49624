"""Tables of one direction, per module, forward op, phase and wait; and what is said of unlawful reports."""

from collections import Counter
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from join.compare import keyed, only, same
from join.programs import CALL_IDS
from join.trainings import training, trainings
from real_parts import corpus_reports
from witness.attribution import Activity, Call, Range
from witness.training import WAYS, Wait

import bridge.report
from bridge.analyze.core.catalog import VIEWS
from bridge.analyze.core.catalog.lookup import DIRECTED
from bridge.report import Report

P = 7 << 24
MAIN, AUTOGRAD, OTHER = (P | number for number in (1, 2, 3))


# The sums that two tables with other activities and ranges may be added by.
ADDING = "calls kernels copies fills graphs gpu_self_ns cpu_self_ns count total_ns".split()


def joined_of(made, **how):
    return Report(made.attributed(**how))


def without(columns, table):
    """Leave columns out of a table with a dict per key."""
    return {k: {c: v for c, v in row.items() if c not in columns} for k, row in table.items()}


def counted(rows):
    return Counter(tuple(sorted(row.items())) for row in rows)


# -- one direction


@pytest.mark.slow
@given(made=trainings(nested=True))
def test_a_table_of_one_direction_is_that_of_its_ranges_and_activities(made):
    joined, profile = joined_of(made), made.profile()
    for way in WAYS:
        assert_of_one_way(joined, profile.one_way(way), way)


def assert_of_one_way(joined, truth, way):
    ops, kernels = (joined.by(view, direction=way) for view in ("op", "kernel"))
    same(without(["share"], keyed(ops, "op")), without(["share"], only(truth.by_op())))
    ours, true = keyed(kernels, "kernel"), only(truth.by_kernel())
    same(without(["share"], ours), without(["share"], true))
    # Shares are of the whole, whatever is counted: of all work, of all kernels.
    of_kernels = joined.by("kernel")["total_ns"].sum()
    assert_shares(ops, "gpu_self_ns", joined.totals["gpu_ns"])
    assert_shares(kernels, "total_ns", of_kernels)
    same(keyed(joined.by("memcpy", direction=way), "operation"), only(truth.by_memcpy()))
    for inclusive in (False, True):
        table = joined.by("op-kernel", direction=way, inclusive=inclusive)
        same(keyed(table, "op", "kernel"), truth.by_op_kernel(inclusive=inclusive))
    ranges = joined.by("range", direction=way).to_dict("records")
    assert counted(ranges) == counted(truth.by_range())


def assert_shares(table, part, whole):
    parts = [ns / whole if whole else 0 for ns in table[part].tolist()]
    assert table["share"].tolist() == parts


@pytest.mark.slow
@given(trainings())
def test_the_two_directions_are_the_whole(made):
    """Whatever crosses: each kernel, call and instant on the CPU is of one direction."""
    joined = joined_of(made)
    for view, keys in (("op", ["op"]), ("op-kernel", ["op", "kernel"])):
        parts = (figures(joined.by(view, direction=way), keys) for way in WAYS)
        assert sum(parts, Counter()) == figures(joined.by(view), keys)


def figures(table, keys):
    """Count what adds up, by the key of its row and its column; zeros left out."""
    columns = [column for column in ADDING if column in table]
    rows = table.set_index(keys)[columns].to_dict("index")
    return Counter({(key, c): n for key, row in rows.items() for c, n in row.items() if n})


def test_an_op_within_its_own_name_is_counted_in_its_direction():
    """A forward op around the backward pass does not swallow what has its name within that."""
    ranges = [opened(0, 30, "a"), opened(5, 20, "MmBackward0"), opened(6, 16, "a")]
    made = training(ranges, [called(1, 7)], [ran(1, 100, 110)])
    table = keyed(joined_of(made).by("op", direction="backward"), "op")
    assert table["a",]["gpu_self_ns"] == table["a",]["gpu_total_ns"] == 10
    assert table["a",]["gpu_busy_ns"] == 10
    assert table["a",]["cpu_self_ns"] == table["a",]["cpu_total_ns"] == 10
    inclusive = joined_of(made).by("op-kernel", inclusive=True, direction="backward")
    assert set(inclusive["op"]) == {"a", "MmBackward0"}


def test_a_range_that_crosses_out_of_the_backward_pass_is_of_one_direction():
    """It began in there, so its call and its time on the CPU are backward; what it launches after is not."""
    ranges = [opened(3, 7, "MmBackward0"), opened(4, 9, "a", domain=1)]
    made = training(ranges, [called(1, 5), called(2, 8)], [ran(1, 100, 110), ran(2, 200, 203)])
    tables = {way: keyed(joined_of(made).by("op", direction=way), "op") for way in WAYS}
    backward = tables["backward"]["a",]
    assert [backward[c] for c in ("calls", "gpu_self_ns", "cpu_self_ns")] == [1, 10, 5]
    assert backward["gpu_mean_ns"] == backward["gpu_max_ns"] == backward["gpu_total_ns"] == 10
    [(op, forward)] = tables["forward"].items()
    assert op == ("a",)
    assert [forward[c] for c in ("calls", "gpu_self_ns", "cpu_self_ns")] == [0, 3, 0]


def test_reports_share_no_clock():
    """What is busy in two reports at once is busy twice."""
    ranges = [opened(0, 9, "loss.backward", report=n) for n in (0, 1)]
    calls, kernels = zip(
        *[(called(1, 5, report=n), ran(1, 50, 60, report=n)) for n in (0, 1)], strict=True
    )
    joined = joined_of(training(ranges, calls, kernels))
    for way in ("both", "backward"):
        assert joined.by("op", direction=way)["gpu_busy_ns"].tolist() == [20]


def test_slices_of_one_call_are_one():
    ranges = [opened(at, at + 2, "module:a", payload=CALL_IDS[0]) for at in (0, 4, 8)]
    kernels = [ran(n, 10, 20) for n in (1, 2)]
    joined = joined_of(training(ranges, [called(1, 1), called(2, 5)], kernels))
    for view in ("module", "forward-op"):
        assert joined.by(view)[["calls", "gpu_self_ns"]].to_numpy().tolist()[0] == [1, 20]


@pytest.mark.slow
def test_only_some_views_have_a_direction():
    joined = joined_of(training([]))
    for view in VIEWS:
        for way in (*WAYS, "both"):
            if view in DIRECTED or way == "both":
                assert joined.by(view, direction=way).empty
            else:
                with pytest.raises(ValueError, match="no direction for view"):
                    joined.by(view, direction=way)
    with pytest.raises(ValueError, match="no direction 'up'"):
        joined.by("op", direction="up")
    with pytest.raises(ValueError, match="no table"):
        joined.by("directions")


# -- both directions together


@pytest.mark.slow
@given(trainings())
def test_by_module_and_by_forward_op(made):
    joined, truth = joined_of(made), made.profile()
    paths, ops = (joined.by(view) for view in ("module", "forward-op"))
    rows = only(truth.by_module())
    ours = without(["calls"], keyed(paths, "module"))
    assert {key for key, row in rows.items() if row["gpu_total_ns"]} <= ours.keys()
    nothing = truth.work([]) | {"gpu_total_ns": 0}  # a module in which nothing ran is listed too
    same(ours, {key: rows.get(key, nothing) for key in ours})
    rows = only(truth.by_forward_op())
    cpu = ["cpu_forward_ns", "cpu_backward_ns", "cpu_self_ns"]
    ours = without(["calls", *cpu], keyed(ops[ops["gpu_self_ns"] > 0], "op"))
    same(ours, {key: row for key, row in rows.items() if row["gpu_self_ns"]})
    assert (ops["cpu_forward_ns"] + ops["cpu_backward_ns"] == ops["cpu_self_ns"]).all()
    if not len(joined.capture.activities):
        assert ops["cpu_self_ns"].sum() == joined.by("op")["cpu_self_ns"].sum()
        assert (ops["cpu_self_ns"] > 0).all()
    calls = truth.profile.calls_by_op
    assert ops["calls"].tolist() == [len(calls[op]) for op in ops["op"]]
    for table in (paths, ops):
        assert table["gpu_self_ns"].sum() == joined.totals["attributed_ns"]
        both = table["gpu_forward_ns"] + table["gpu_backward_ns"]
        assert (both == table["gpu_self_ns"]).all()


@pytest.mark.slow
@given(trainings(phases=6))
def test_by_phase_and_by_wait(made):
    joined, truth = joined_of(made), made.profile()
    same(without(["open"], keyed(joined.by("phase"), "phase")), only(truth.by_phase()))
    same(keyed(joined.by("wait"), "op", "wait"), truth.by_wait(made.waits))


def opened(start, end, text, thread=MAIN, **more):
    return Range(
        **{
            "report": 0,
            "process": P,
            "thread": thread,
            "start": start,
            "end": end,
            "op": "",
            **more,
        }
    ), text


def called(correlation, start, thread=MAIN, **more):
    return Call(
        **{
            "report": 0,
            "process": P,
            "thread": thread,
            "correlation": correlation,
            "start": start,
            "end": start + 1,
            **more,
        }
    )


def ran(correlation, start, end, **more):
    return Activity(
        **{
            "report": 0,
            "process": P,
            "correlation": correlation,
            "start": start,
            "end": end,
            **more,
        }
    )


def test_modules_by_hand():
    """A step: two layers forward, and the second backward on a thread of its own."""
    ranges = [
        opened(0, 40, "module:net"),
        opened(1, 10, "module:net.0"),
        opened(2, 4, "aten::mm, seq = 1"),
        opened(11, 20, "nn.Module: head"),
        opened(12, 14, "aten::mm, seq = 2"),
        opened(50, 60, "MmBackward0, seq = 2", AUTOGRAD),
        opened(61, 69, "MmBackward0, seq = 9", AUTOGRAD),
    ]
    calls = [
        called(1, 3),
        called(2, 13),
        called(3, 55, AUTOGRAD),
        called(4, 62, AUTOGRAD),
        called(5, 30),
    ]
    times = (7, 100, 1_000, 10_000, 100_000)
    activities = [ran(n, 200, 200 + ns) for n, ns in enumerate(times, 1)]
    joined = joined_of(training(ranges, calls, activities))
    modules = joined.by("module").set_index("module")
    figures = modules[["gpu_forward_ns", "gpu_backward_ns", "gpu_self_ns", "gpu_total_ns", "calls"]]
    assert figures.T.to_dict("list") == {
        "net": [100_000, 0, 100_000, 101_107, 1],
        "net.0": [7, 0, 7, 7, 1],
        "net/head": [100, 1_000, 1_100, 1_100, 1],
        "(no module)": [0, 10_000, 10_000, 10_000, 0],
    }
    ops = joined.by("forward-op").set_index("op")[["gpu_forward_ns", "gpu_backward_ns", "calls"]]
    assert ops.T.to_dict("list") == {
        "module:net": [100_000, 0, 1],
        "aten::mm": [107, 1_000, 2],
        "MmBackward0": [0, 10_000, 2],
    }


def test_a_report_without_modules_takes_its_other_ranges_for_them():
    """Whatever another report has."""
    ranges = [opened(0, 9, "module:net"), opened(1, 8, "a")]
    other = [opened(0, 9, "a", report=1), opened(1, 8, "aten::mm", report=1)]
    numbered = opened(2, 7, "b", report=1), opened(3, 6, "b, seq = 1", report=1)
    calls = [called(1, 5, report=n) for n in (0, 1)]
    kernels = [ran(1, 50, 60, report=n) for n in (0, 1)]
    made = training([*ranges, *other, *numbered], calls, kernels)
    assert joined_of(made).op_kernels["module"].tolist() == ["net", "a"]


def test_work_counts_for_the_op_that_the_backward_pass_goes_back_to():
    """Forward work of an op within it too, so that both are of one op."""
    ranges = [
        opened(0, 20, "a"),
        opened(1, 10, "aten::mm, seq = 1"),
        opened(2, 9, "aten::t"),
        opened(50, 60, "MmBackward0, seq = 1", AUTOGRAD),
        opened(51, 59, "aten::t", AUTOGRAD),
    ]
    calls = [called(1, 5), called(2, 15), called(3, 55, AUTOGRAD)]
    kernels = [ran(n, 100, 100 + 10**n) for n in (1, 2, 3)]
    rows = joined_of(training(ranges, calls, kernels)).by("forward-op").set_index("op")
    assert rows[["gpu_forward_ns", "gpu_backward_ns"]].T.to_dict("list") == {
        "aten::mm": [10, 1_000],
        "a": [100, 0],
    }


def test_without_a_gpu_an_op_has_the_time_on_the_host_of_its_backward_pass():
    ranges = [
        opened(0, 20, "a"),
        opened(1, 10, "aten::mm, seq = 1"),
        opened(2, 9, "aten::t"),
        opened(50, 62, "MmBackward0, seq = 1", AUTOGRAD),
        opened(51, 59, "aten::t", AUTOGRAD),
        opened(70, 75, "aten::t"),
    ]
    joined = joined_of(training(ranges, [], []))
    rows = joined.by("forward-op").set_index("op")
    assert rows[["calls", "cpu_forward_ns", "cpu_backward_ns", "cpu_self_ns"]].T.to_dict(
        "list"
    ) == {
        "aten::mm": [1, 9, 12, 21],
        "a": [1, 11, 0, 11],
        "aten::t": [3, 5, 0, 5],
    }
    assert list(rows.index) == ["aten::mm", "a", "aten::t"]
    assert rows["cpu_self_ns"].sum() == joined.by("op")["cpu_self_ns"].sum()


def test_phases_by_hand():
    """A phase owns what is launched in it by any thread of its process; none owns what is invalid."""
    phase = {"phase": True}
    ranges = [
        opened(0, 10, "epoch", **phase),
        opened(5, 20, "epoch", OTHER, **phase),
        opened(1, 3, "epoch", OTHER, **phase),
        opened(8, 9, "save", **phase),
        opened(0, 50, "epoch", report=1, **phase),
        opened(0, 50, "epoch", 8 << 24 | 1, process=8 << 24, **phase),
        opened(0, 50, "a"),
    ]
    calls = [called(1, 0), called(2, 8, AUTOGRAD), called(3, 19), called(4, 20), called(5, 6)]
    activities = [ran(n, 100 + n, 110 + n) for n in range(1, 5)] + [ran(5, -7, 0)]
    calls.append(called(1, 49, report=1))
    activities.append(ran(1, 100, 110, report=1))
    rows = joined_of(training(ranges, calls, activities)).by("phase").set_index("phase")
    columns = ["ranges", "open", "activities", "gpu_ns", "gpu_busy_ns", "wall_ns"]
    assert rows[columns].T.to_dict("list") == {
        "epoch": [5, 0, 5, 40, 22, 120],
        "save": [1, 0, 1, 10, 10, 1],
    }


def test_a_phase_that_never_ended_is_said_to_be_open():
    made = training([opened(0, 10, "epoch", phase=True), opened(0, 20, "epoch", phase=True)])
    report = made.capture()
    ranges = report.ranges.replace(open=np.array([False, True]))
    report = replace(report, ranges=ranges)
    [row] = bridge.report.join(report).by("phase").to_dict("records")
    assert (row["ranges"], row["open"], row["wall_ns"]) == (2, 1, 20)


def test_a_wait_is_of_the_op_that_was_open_where_it_was_called():
    calls = [called(1, 3), called(2, 15)]
    waits = [
        Wait(0, P, 1, 3, 9, "stream"),
        Wait(0, P, 1, 3, 4, "stream"),
        Wait(0, P, 1, 5, 5, "event"),
        Wait(0, P, 2, 5, 6, "stream"),
        Wait(0, P, 3, 5, 7, "context"),
        Wait(1, P, 1, 5, 5, "unknown"),
    ]
    made = training([opened(0, 10, "a"), opened(2, 5, "b")], calls, [], waits)
    table = joined_of(made).by("wait")
    assert table[["op", "wait", "count", "total_ns", "max_ns"]].to_numpy().tolist() == [
        ["b", "stream", 2, 7, 6],
        ["(no op)", "context", 1, 2, 2],
        ["(no op)", "stream", 1, 1, 1],
        ["(no op)", "unknown", 1, 0, 0],
        ["b", "event", 1, 0, 0],
    ]


# -- what no sound capture holds

LAWFUL = (
    [opened(0, 40, "a"), opened(5, 20, "b"), opened(5, 5, "c")],
    [called(1, 6)],
    [ran(1, 50, 60)],
)


def warned(ranges=(), calls=(), activities=()):
    """Return what is said of a lawful report with these rows more."""
    made = training([*LAWFUL[0], *ranges], [*LAWFUL[1], *calls], [*LAWFUL[2], *activities])
    return joined_of(made).warnings


def test_nothing_is_said_of_a_lawful_report():
    assert warned() == ()
    assert joined_of(training([])).warnings == ()


@pytest.mark.parametrize(
    ("rows", "expected"),
    [
        (
            {"ranges": [opened(-5, -2, "d"), opened(-1, 0, "e")]},
            "one: 2 ranges begin before the session does: kept, at times below 0 (first: #3 d, -5 to -2 ns)",
        ),
        (
            {"calls": [called(2, 7), called(3, -4)]},
            "one: 1 launches begin before the session does: kept, at times below 0 (first: #2 cudaLaunch, -4 to -3 ns)",
        ),
        (
            {"activities": [ran(1, -4, 3)]},
            "one: 1 activities begin before the session does: kept, at times below 0 (first: #1 k, -4 to 3 ns)",
        ),
        (
            {"ranges": [opened(30, 25, "d"), opened(31, 3, "e"), opened(7, 7, "f")]},
            "one: 2 ranges end before they start or at a time that no capture has: ignored, so they own nothing (first: #3 d, 30 to 25 ns)",
        ),
        (
            {"calls": [called(2, 7, end=6)]},
            "one: 1 launches end before they start or at a time that no capture has: kept (first: #1 cudaLaunch, 7 to 6 ns)",
        ),
        (
            {"activities": [ran(1, 9, 8), ran(1, 3, 3), ran(1, 0, 0)]},
            "one: 2 activities end before they start, at 0 or at a time that no capture has: counted with 0 ns (first: #1 k, 9 to 8 ns)",
        ),
        (
            {"calls": [called(1, 6), called(1, 8), called(0, 8), called(0, 9)]},
            "one: 2 launches have the process and correlation id of an earlier one: the earliest owns what they issued (first: #1 cudaLaunch, 6 to 7 ns)",
        ),
        (
            {"calls": [called(1, 2)]},
            "one: 1 launches have the process and correlation id of an earlier one: the earliest owns what they issued (first: #0 cudaLaunch, 6 to 7 ns)",
        ),
    ],
    ids="early-ranges early-calls early-activities ended-ranges ended-calls invalid repeated earliest".split(),
)
def test_what_is_unlawful_is_counted_and_shown(rows, expected):
    assert warned(**rows) == (expected,)


def crossings(*ranges):
    return [line for line in warned(ranges) if "cross" in line]


@pytest.mark.slow
def test_ranges_cross_only_within_their_thread_and_domain():
    [line] = crossings(opened(10, 30, "d"))
    assert line.startswith("one: 1 ranges cross another of their thread and domain: ")
    assert line.endswith("(first: #3 d, 10 to 30 ns)")
    assert crossings(opened(10, 30, "d", domain=1)) == []
    assert crossings(opened(10, 30, "d", thread=OTHER)) == []
    assert crossings(opened(10, 30, "d", report=1)) == []
    assert crossings(opened(10, 30, "d", phase=True)) == []
    assert crossings(opened(10, 20, "d"), opened(20, 30, "e")) == []
    both = opened(4, 7, "d", domain=1), opened(6, 9, "e", domain=1)
    [line] = crossings(*both)  # whatever cuts them in other domains
    assert "1 ranges" in line
    assert "#4 e" in line


def test_each_range_that_crosses_is_counted():
    """Where it begins in another that crosses too, and ends in that one, as well."""
    [line] = crossings(opened(10, 30, "d"), opened(12, 25, "e"))
    assert line.startswith("one: 2 ranges cross")


@pytest.mark.slow
@given(trainings())
def test_unlawful_rows_are_counted_report_by_report(made):
    said = Counter()
    for line in joined_of(made).warnings:
        source, _, what = line.partition(": ")
        number, frame, rest = what.split(" ", 2)
        said[source, frame, rest.split(":")[0]] = int(number)
    assert said == unlawful(made.program)


def unlawful(program):
    """Count what is unlawful, row against row."""
    ranges, calls, activities = program.ranges, program.calls, program.activities
    broken = [
        (one.report, frame, "begin before the session does")
        for frame, rows in (("ranges", ranges), ("launches", calls), ("activities", activities))
        for one in rows
        if one.start < 0
    ]
    invalid = [one for one in activities if one.end < one.start or one.end == 0]
    crossing = [one for one in ranges if any(_crosses(one, other) for other in ranges)]
    again = [calls[row] for row in range(len(calls)) if _is_again(calls, row)]
    for rows, frame, what in (
        (invalid, "activities", "end before they start, at 0 or at a time that no capture has"),
        (crossing, "ranges", "cross another of their thread and domain"),
        (again, "launches", "have the process and correlation id of an earlier one"),
    ):
        broken += [(one.report, frame, what) for one in rows]
    return Counter((("one", "other")[report], *what) for report, *what in broken)


def _is_again(calls, row):
    one = calls[row]
    key = one.report, one.process, one.correlation
    same_key = [at for at, c in enumerate(calls) if (c.report, c.process, c.correlation) == key]
    earliest = min(same_key, key=lambda at: (calls[at].start, at))
    return one.correlation > 0 and row != earliest


def _crosses(one, other):
    """Tell whether a range begins in another of its thread and domain and ends after that."""
    where = "report", "thread", "domain"
    together = all(getattr(one, c) == getattr(other, c) for c in where)
    stacked = not one.phase and not other.phase
    return together and stacked and other.start < one.start < other.end < one.end


EMPTY = ("failed-export", "no-kernels-osrt")  # they hold no profile


@pytest.mark.slow
@pytest.mark.parametrize("path", [of for of in corpus_reports() if of.id not in EMPTY])
def test_real_reports_are_lawful(path):
    assert bridge.report.load(path).warnings == ()
