"""What a page shows, held against definitions that look at one row after the other."""

from __future__ import annotations

import json
import sys
from collections import defaultdict
from functools import cache

import made_pages
import made_reports
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from bridge.analyze.core.totals import totals
from bridge.analyze.draw.overview import comparison, overview
from bridge.analyze.draw.overview.axis import Bins, largest_mask
from bridge.analyze.draw.overview.operators import operators
from bridge.analyze.draw.overview.timeline import timeline_columns
from bridge.join.arrays import unions
from bridge.knowledge.kernels import readable_names
from bridge.report import load

# The package's functions bear the names of these modules.
operators_module = sys.modules[operators.__module__]
windowed_module = sys.modules[timeline_columns.__module__]

# All but one that has neither activities nor ranges: it has no timeline.
DRAWN = (
    "mnist-training",
    "pytorch-2gpu-before",
    "pytorch-2gpu-window",
    "cupy-power-iteration",
    "two-processes",
    "no-kernels-api",
)
NAMES = (*DRAWN, "no-kernels-empty")


@cache
def read(path):
    return load(path).attributed


@cache
def shown(path):
    """Give the overview of a report, made once for all that read it and change nothing."""
    return overview(read(path))


@pytest.fixture(params=NAMES)
def path(request, corpus):
    return corpus / "nsys" / f"{request.param}.sqlite"


@pytest.fixture
def joined(path):
    return read(path)


@pytest.fixture(params=[*DRAWN, "made"])
def drawn_path(request, two_steps):
    """Give a profile of the corpus, or a made report, which has every reason in it."""
    if request.param == "made":
        return two_steps
    return request.getfixturevalue("corpus") / "nsys" / f"{request.param}.sqlite"


@pytest.fixture
def drawn(drawn_path):
    return read(drawn_path)


# -- bins

intervals = st.lists(
    st.tuples(st.integers(0, 3), st.integers(0, 200), st.integers(0, 90)), max_size=40
)


def columns(rows):
    table = np.array(rows, np.int64).reshape(-1, 3)
    return table[:, 0], table[:, 1], table[:, 1] + table[:, 2]


@pytest.mark.slow
@given(intervals, st.integers(1, 60))
def test_spreading_keeps_every_nanosecond_in_its_bin(rows, width):
    _, start, end = columns(rows)
    bins = Bins(0, width, -(-300 // width))
    row, place, length = bins.spread(start, end)
    found = defaultdict(int)
    for r, b, n in zip(row.tolist(), place.tolist(), length.tolist(), strict=True):
        found[r, b] += n
    truth = defaultdict(int)
    for r, (a, z) in enumerate(zip(start.tolist(), end.tolist(), strict=True)):
        for moment in range(a, z):
            truth[r, moment // width] += 1
    assert {key: n for key, n in found.items() if n} == truth
    empty = {r for r, n in zip(row.tolist(), length.tolist(), strict=True) if not n}
    assert not any(end[r] > start[r] for r in empty)
    assert set(row.tolist()) == set(range(len(rows)))  # what has no length has its piece too


@pytest.mark.slow
@given(intervals)
def test_unions_are_the_moments_at_which_anything_is_open(rows):
    group, start, end = columns(rows)
    found = unions(group, start, end)
    truth = {(g, m) for g, a, z in zip(group, start, end, strict=True) for m in range(a, z)}
    covered = [(g, m) for g, a, z in zip(*found, strict=True) for m in range(a, z)]
    assert sorted(covered) == sorted(truth)


@given(st.lists(st.integers(0, 5), max_size=30), st.integers(0, 10))
def test_the_largest_are_chosen(values, most):
    chosen = largest_mask(np.array(values, np.int64), most)
    in_order = sorted(range(len(values)), key=lambda row: (-values[row], row))
    assert np.flatnonzero(chosen).tolist() == sorted(in_order[:most])  # of equal ones the first
    assert (
        sorted(np.array(values, np.int64)[chosen].tolist())
        == sorted(values)[max(0, len(values) - most) :]
    )


# -- whole reports


@pytest.mark.slow
def test_it_is_json_of_whole_numbers_that_javascript_can_hold(path):
    text = json.dumps(shown(path), allow_nan=False)
    numbers = []
    json.loads(text, parse_int=lambda digits: numbers.append(int(digits)))
    assert max(map(abs, numbers)) < 1 << 53


@pytest.mark.slow
def test_operators_add_up_to_all_gpu_time(path, joined):
    found = shown(path)["operators"]
    whole = totals(joined)
    if found is None:
        assert not len(joined.capture.activities)
        return
    assert sum(found["gpu_self_ns"]) == whole["gpu_ns"]
    assert sum(found["work"]["total_ns"]) == whole["gpu_ns"]
    assert sum(found["work"]["count"]) == whole["activities"]
    under = defaultdict(int)
    for of, ns in zip(found["work"]["of"], found["work"]["total_ns"], strict=True):
        under[of] += ns
    assert all(under[row] == own for row, own in enumerate(found["gpu_self_ns"]))


@pytest.mark.slow
def test_work_is_that_of_each_op_one_by_one(drawn_path, drawn):
    result = shown(drawn_path)
    table, names = result["operators"], result["names"]
    truth = defaultdict(list)
    reasons = drawn.attribution.reason
    words = ("", "no_launch", "no_range", "ambiguous", "invalid_time")
    activities = drawn.capture.activities
    called = zip(*(activities[c].tolist() for c in ("kind", "name", "full_name")), strict=True)
    for row, (kind, name, full) in enumerate(called):
        shown_name = readable_names([(name, full)])[0] if kind == "kernel" else name
        op = drawn.activity_op[row]
        owner = drawn.ops[op] if op >= 0 else words[reasons[row]]
        truth[owner, shown_name].append(int(drawn.duration[row]))
    work = table["work"]
    found = {
        (names[table["name"][of]], names[name]): (count, total, longest)
        for of, name, count, total, longest in zip(
            work["of"], work["name"], work["count"], work["total_ns"], work["max_ns"], strict=True
        )
    }
    assert found == {key: (len(t), sum(t), max(t)) for key, t in truth.items()}


@pytest.mark.slow
def test_utilisation_is_the_union_of_each_device_and_kind(path, joined):
    result = shown(path)
    found = result["utilisation"]
    if found is None:  # next to nothing ran: no share of it is shown
        assert not result["figures"]["devices"]
        work = joined.capture.activities
        assert sum(work["end"] - work["start"]) < 10_000
        return
    for device, figures in zip(found["devices"], result["figures"]["devices"], strict=True):
        assert sum(device["series"]["any"]) == figures["busy_ns"]
        assert max(device["series"]["any"]) <= found["bin_ns"]
        kinds = [series for kind, series in device["series"].items() if kind != "any"]
        for apart in zip(device["series"]["any"], *kinds, strict=True):
            assert all(part <= apart[0] for part in apart[1:])
            assert not kinds or sum(apart[1:]) >= apart[0]


@pytest.mark.slow
def test_utilisation_bins_one_by_one(tmp_path):
    made = made_reports.Made()
    made.names_of(100)
    work = [
        ("gemm", 0, 400),
        ("ncclDevKernel_AllReduce", 300, 700),
        ("gemm", 650, 1_000),
        ("gemm", 900, 950),
    ]
    for name, start, end in work:
        made.kernel(name, 1, 100, start + 10, end + 10)
    found = overview(load(made.written(tmp_path / "r.sqlite")).attributed)["utilisation"]
    origin, width = 1, found["bin_ns"]
    truth = {
        kind: [0] * len(found["devices"][0]["series"]["any"])
        for kind in ("any", "compute", "communication")
    }
    for moment in range(10, 1_010):
        running = [name for name, start, end in work if start + 10 <= moment < end + 10]
        place = (moment - origin) // width
        truth["any"][place] += bool(running)
        truth["compute"][place] += "gemm" in running
        truth["communication"][place] += any(name.startswith("nccl") for name in running)
    assert found["devices"][0]["series"] == truth


# -- the timeline


def drawn_time(found):
    slices, bins = found["slices"], found["bins"]
    time, count = defaultdict(int), defaultdict(int)
    for row, length in zip(slices["row"], slices["length"], strict=True):
        time[row] += length
        count[row] += 1
    for row, busy in zip(bins["row"], bins["busy"], strict=True):
        time[row] += busy
    return time, count


@pytest.mark.slow
def test_the_timeline_keeps_the_time_of_every_stream(drawn_path, drawn):
    result = shown(drawn_path)["timeline"]
    time, _ = drawn_time(result)
    streams = [n for n, row in enumerate(result["rows"]) if row["kind"] == "stream"]
    lengths = drawn.capture.activities.end - drawn.capture.activities.start
    assert sum(time[n] for n in streams) == int(np.maximum(lengths, 0).sum())
    ranges = drawn.capture.ranges
    stacked = ranges.take(ranges.kind == "push_pop")
    of_ops = sum(time[n] for n, row in enumerate(result["rows"]) if row["kind"] == "ops")
    assert of_ops == int(np.maximum(stacked["end"] - stacked["start"], 0).sum())


@pytest.mark.slow
def test_few_rows_and_slices_keep_all_time(drawn_path, drawn, monkeypatch):
    monkeypatch.setattr(windowed_module, "MAX_ROWS", 3)
    monkeypatch.setattr(windowed_module, "MAX_SLICES", 20)
    monkeypatch.setattr(windowed_module, "MIN_SLICES_PER_ROW", 2)
    few = overview(drawn)["timeline"]
    monkeypatch.undo()
    whole = shown(drawn_path)["timeline"]
    assert len(few["rows"]) <= 4
    assert len(few["slices"]["row"]) <= 20 + 2 * 4
    assert sum(drawn_time(few)[0].values()) == sum(drawn_time(whole)[0].values())
    number = lambda found: found["merged"] + len(found["slices"]["row"])  # noqa: E731
    assert number(few) == number(whole)


@pytest.mark.slow
@pytest.mark.parametrize("block", [1 << 18, 7])
def test_bins_hold_what_is_not_listed_one_by_one(tmp_path, monkeypatch, block):
    made = made_reports.Made()
    made.names_of(100)
    lengths = np.random.default_rng(1).integers(1, 60, 300).tolist()
    at, spans = 100, []
    for length in lengths:
        made.kernel("k", 1, 100, at, at + length)
        spans.append((at, at + length))
        at += length + 7
    monkeypatch.setattr(windowed_module, "BLOCK", block)
    monkeypatch.setattr(windowed_module, "MAX_SLICES", 30)
    monkeypatch.setattr(windowed_module, "MIN_SLICES_PER_ROW", 5)
    monkeypatch.setattr(windowed_module, "MAX_BINS", 100)
    found = overview(load(made.written(tmp_path / "r.sqlite")).attributed)["timeline"]
    row = next(n for n, one in enumerate(found["rows"]) if one["kind"] == "stream")
    slices = found["slices"]
    listed = {
        (start + 1, start + 1 + length)
        for of, start, length in zip(slices["row"], slices["start"], slices["length"], strict=True)
        if of == row
    }
    assert len(listed) == 30
    assert min(b - a for a, b in listed) >= max(b - a for a, b in set(spans) - listed)
    truth = defaultdict(int)
    for a, b in set(spans) - listed:
        for moment in range(a, b):
            truth[(moment - 1) // found["bin_ns"]] += 1
    bins = found["bins"]
    assert dict(zip(bins["bin"], bins["busy"], strict=True)) == truth


@pytest.mark.slow
def test_slices_of_a_row_do_not_overlap(drawn_path):
    found = shown(drawn_path)["timeline"]
    last = {}
    slices = found["slices"]
    for row, start, length in zip(slices["row"], slices["start"], slices["length"], strict=True):
        assert start >= last.get(row, 0)
        last[row] = start + length


@pytest.mark.slow
def test_a_report_of_nothing_but_calls_has_no_panels(corpus):
    found = overview(load(corpus / "nsys" / "no-kernels-empty.sqlite").attributed)
    names = ("operators", "icicle", "timeline", "utilisation", "memory", "roofline")
    assert not [name for name in names if found[name] is not None]


# -- the icicle


@pytest.mark.slow
@pytest.mark.parametrize("which", ["merged", "by_step"])
def test_the_icicle_is_exact_and_bounded(which, drawn_path, drawn):
    whole = shown(drawn_path)["icicle"]
    found = {"unit": whole["unit"], **whole[which]} if whole[which] else None
    if which == "by_step":
        assert (found is not None) == (0 < whole["steps"] <= operators_module.MAX_STEPS)
    if found is None:
        return
    parent, value = found["parent"], found["value"]
    assert all(above < row for row, above in enumerate(parent))
    under = defaultdict(int)
    for above, ns in zip(parent, value, strict=True):
        under[above] += ns
    leaves = set(range(len(parent))) - set(under)
    assert all(under[row] <= value[row] for row in under if row >= 0)
    if found["unit"] == "gpu":
        assert under[-1] == totals(drawn)["gpu_ns"]
        assert sum(value[leaf] for leaf in leaves) == under[-1]
    others = [ns for ns, level in zip(value, found["level"], strict=True) if level != "other"]
    assert min(others) * 1_000 >= under[-1]
    if which == "merged":  # at most the frame of work that is in a step only, per parent
        steps = [
            above for above, level in zip(parent, found["level"], strict=True) if level == "step"
        ]
        assert len(steps) == len(set(steps))


# -- caps

WORK = ("of", "name", "total_ns", "count")


@pytest.mark.slow
def test_ops_and_kernels_beyond_the_limits_are_summed_up(corpus, monkeypatch):
    joined = load(corpus / "nsys" / "mnist-training.sqlite").attributed
    monkeypatch.setattr(operators_module, "MAX_OPS", 5)
    monkeypatch.setattr(operators_module, "MAX_KERNELS", 8)
    result = overview(joined)
    found, names = result["operators"], result["names"]
    assert found["kind"] == ["op"] * 5 + ["other"]
    assert names[found["name"][5]].endswith("more ops")
    assert sum(found["gpu_self_ns"]) == totals(joined)["gpu_ns"]
    work = found["work"]
    assert sum(work["total_ns"]) == totals(joined)["gpu_ns"]
    listed = defaultdict(list)
    for of, name, *told in zip(*(work[key] for key in WORK), strict=True):
        listed[of, names[name] == "more names"].append(tuple(told))
    monkeypatch.setattr(operators_module, "MAX_KERNELS", 10**6)
    whole = overview(joined)["operators"]["work"]
    every = sorted(
        zip(*(whole[key] for key in ("of", *WORK[2:])), strict=True), key=lambda row: -row[1]
    )
    assert every[7][1] > every[8][1]  # so that the eight largest are no matter of choice
    truth, rest = defaultdict(list), defaultdict(lambda: (0, 0))
    for of, total, count in every[:8]:
        truth[of, False].append((total, count))
    for of, total, count in every[8:]:
        rest[of] = (rest[of][0] + total, rest[of][1] + count)
    assert listed == truth | {(of, True): [told] for of, told in rest.items()}


@pytest.mark.slow
def test_the_full_name_is_that_with_most_time(tmp_path):
    made = made_reports.Made()
    made.names_of(100)
    for at, (full, length) in enumerate(
        (("f<int>", 30), ("f<float>", 20), ("f<float>", 20), ("f", 5))
    ):
        made.kernel("f", 10 + 100 * at, 100, 20 + 100 * at, 20 + 100 * at + length)
        made.tables["kernels"][-1]["full_name"] = made.string(full)
    made.kernel("g", 610, 100, 620, 621)
    made.tables["kernels"][-1]["full_name"] = made.string("g")
    made.kernel("h", 710, 100, 720, 722)
    made.tables["kernels"][-1]["full_name"] = made.string("h" * 1_001)
    result = overview(load(made.written(tmp_path / "r.sqlite")).attributed)
    work, names = result["operators"]["work"], [*result["names"], None]
    told = {names[name]: names[full] for name, full in zip(work["name"], work["full"], strict=True)}
    (long,) = readable_names([("h", "h" * 1_001)])
    assert told == {"f": "f<float> (and 2 more)", "g": None, long: "h" * 1_000 + "…"}


# -- memory and roofline


@pytest.mark.slow
@given(st.lists(st.tuples(st.integers(1, 10**6), st.integers(0, 1 << 40)), min_size=2, max_size=30))
def test_memory_keeps_every_sample_of_few(tmp_path_factory, samples):
    path = made_pages.memory(tmp_path_factory.mktemp("made") / "memory.sqlite", samples)
    found = overview(load(path).attributed)["memory"]
    truth = {
        name: sorted(samples[at::2])
        for at, name in enumerate(("cuda:0 allocated", "host resident"))
    }
    base = min([10, *(when for when, _ in samples)])
    for series in found["series"]:
        read = sorted(
            (when + base, value)
            for when, value in zip(series["time"], series["value"], strict=True)
        )
        assert read == truth[series["name"]]
        assert series["time"] == sorted(series["time"])
    assert len(found["series"]) == 2


@pytest.mark.slow
def test_memory_of_many_samples_keeps_the_extremes(tmp_path):
    values = np.random.default_rng(2).integers(0, 1 << 36, 20_000)
    samples = [(1_000 + 10 * at, int(value)) for at, value in enumerate(values)]
    found = overview(load(made_pages.memory(tmp_path / "m.sqlite", samples)).attributed)["memory"]
    for at, name in enumerate(("cuda:0 allocated", "host resident")):
        [series] = [one for one in found["series"] if one["name"] == name]
        assert len(series["value"]) <= 2 * 400 + 2
        assert max(series["value"]) == max(values[at::2])
        assert min(series["value"]) == min(values[at::2])


@pytest.mark.slow
def test_values_that_are_no_numbers_are_passed_over(tmp_path):
    made = made_reports.Made()
    made.names_of(100)
    where = {"thread": made_reports.thread(100), "text": "counter:memory"}
    told = ("Infinity", "NaN", "1e999", "[" * 100_000, '"x"', "null", "2.5", "{")
    for at, text in enumerate(told):
        made.annotation(made_reports.MARK, 10 + at, None, json=text, **where)
        op = {"text": "op", "json": f'{{"flops": {text}, "bytes": 1}}'}
        made.annotation(
            made_reports.PUSH_POP, 100 + 10 * at, 109 + 10 * at, thread=where["thread"], **op
        )
        made.kernel("k", 101 + 10 * at, 100, 300 + at, 301 + at)
    found = overview(load(made.written(tmp_path / "odd.sqlite")).attributed)
    assert json.dumps(found, allow_nan=False)
    assert 2.5 in found["memory"]["series"][0]["value"]
    assert found["roofline"]["flops"] == [2.0]


@pytest.mark.slow
def test_a_report_of_one_moment(tmp_path):
    made = made_reports.Made()
    made.names_of(100)
    made.kernel("k", -1, 100, 50, 50)
    found = overview(load(made.written(tmp_path / "moment.sqlite")).attributed)
    assert found["timeline"]["length_ns"] == 1
    assert found["operators"]["gpu_self_ns"] == [0]


@pytest.mark.slow
def test_a_report_without_such_counters_has_no_memory(path):
    assert shown(path)["memory"] is None
    assert shown(path)["roofline"] is None


@pytest.mark.slow
def test_roofline_counts_calls_that_are_known_and_ran(tmp_path):
    result = overview(load(made_pages.calls(tmp_path / "c.sqlite")).attributed)
    found = result["roofline"]
    assert [result["names"][op] for op in found["op"]] == ["mm"]
    # calls 1 (two slices: 100 and 50 ns) and 4 (two kernels of 100 ns); 2 tells nothing, 3 never ran
    assert {key: value for key, value in found.items() if key != "op"} == {
        "flops": [7_000.0],
        "bytes": [350.0],
        "gpu_ns": [350],
        "calls": [2],
        "left": [2],
        "roofs": [],
    }


# -- two reports


@pytest.mark.slow
def test_a_comparison_matches_by_name(corpus):
    a, b = (
        overview(load(corpus / "nsys" / f"pytorch-2gpu-{name}.sqlite").attributed)
        for name in ("before", "after")
    )
    both = comparison(a, b)
    for side, one in (("a_ns", a), ("b_ns", b)):
        assert sum(ns or 0 for ns in both[side]) == one["figures"]["totals"]["gpu_ns"]
        assert sum(ns or 0 for ns in both["work"][side]) == one["figures"]["totals"]["gpu_ns"]
    assert both["delta_ns"] == [
        (y or 0) - (x or 0) for x, y in zip(both["a_ns"], both["b_ns"], strict=True)
    ]
    assert [abs(ns) for ns in both["delta_ns"]] == sorted(map(abs, both["delta_ns"]), reverse=True)
    assert comparison(a, a)["ratio"] == [1.0 if ns else None for ns in comparison(a, a)["a_ns"]]


def host_times(**ops):
    """Give an overview of ops that took only time on the CPU: name to (time, calls)."""
    names = list(ops)
    work = {key: [] for key in ("of", "name", "full", "total_ns", "count")}
    table = {
        "name": list(range(len(names))), "kind": ["op"] * len(names), "gpu_self_ns": [0] * len(names),
        "cpu_total_ns": [time for time, _ in ops.values()], "calls": [n for _, n in ops.values()], "work": work,
    }  # fmt: skip
    return {"figures": {"totals": {"gpu_ns": 0}}, "operators": table, "names": names}


def test_a_comparison_of_host_times_alone():
    both = comparison(host_times(x=(10, 1), y=(400, 2), z=(-1, 3)), host_times(x=(50, 1), w=(7, 1)))
    assert both == {
        "unit": "cpu",
        "name": ["y", "x", "w", "z"],
        "kind": ["op"] * 4,
        "a_ns": [400, 10, None, None],
        "b_ns": [None, 50, 7, None],
        "delta_ns": [-400, 40, 7, 0],
        "ratio": [None, 5.0, None, None],
        "a_calls": [2, 1, None, 3],
        "b_calls": [None, 1, 1, None],
        "work": {key: [] for key in "of name a_ns b_ns delta_ns ratio a_calls b_calls".split()},
    }


@pytest.mark.slow
def test_a_comparison_with_nothing(corpus):
    full, empty = (
        overview(load(corpus / "nsys" / f"{name}.sqlite").attributed)
        for name in ("nvfuser", "no-kernels-empty")
    )
    both = comparison(full, empty)
    assert set(both["b_ns"]) <= {None, 0}
    assert set(both["ratio"]) <= {None, 0.0}
