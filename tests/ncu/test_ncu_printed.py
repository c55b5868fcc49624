"""What `ncu --csv` prints, in all its shapes: lines around it, units, separators, NVTX columns."""

from __future__ import annotations

from decimal import Decimal

import made_ncu
import pytest
from hypothesis import given
from hypothesis import strategies as st
from made_ncu import DURATION, details, kernel, raw

from bridge import importers
from bridge.importers.ncu import csv_text
from bridge.importers.ncu.rep import base_unit as base
from bridge.importers.ncu.rep import decimal_comma, number, scaled
from bridge.report import join


def loaded(folder, text, name="x.csv"):
    path = folder / name
    path.write_text(text, encoding="utf-8")
    return importers.load(path)


def times(report):
    activities = report.activities.to_pandas()
    return [int(end) - int(start) for start, end in activities[["start", "end"]].to_numpy()]


@pytest.mark.parametrize(
    ("value", "unit", "base_value", "base_unit"),
    [
        ("1.568000", "usecond", "1568", "ns"),
        ("1.5", "ms", "1500000", "ns"),
        ("2", "second", "2000000000", "ns"),
        ("32.77", "Kbyte", "32770", "byte"),
        ("2.5", "Gbyte/second", "2500000000", "byte/s"),
        ("5.12", "cycle/nsecond", "5120000000", "hz"),
        ("13.72", "Ghz", "13720000000", "hz"),
        ("1", "Mbyte/block", "1000000", "byte/block"),
        ("16", "register/thread", "16", "register/thread"),
        ("3", "byte/usecond", "3000000", "byte/s"),
        ("7", "%", "7", "%"),
        ("7", "SM", "7", "SM"),
        ("7", "", "7", ""),
        ("7", "sector", "7", "sector"),
    ],
)
def test_units(value, unit, base_value, base_unit):
    assert scaled(Decimal(value), unit) == (Decimal(base_value), base_unit)


def test_a_base_unit_is_its_own():
    for unit in ("ns", "hz", "byte/s", "byte/block", "%", "inst/cycle"):
        assert base(unit) == (unit, 0)


@pytest.mark.parametrize(
    ("cell", "comma", "value"),
    [
        ("1,024", False, 1024),
        ("4,963,609,951.19", False, Decimal("4963609951.19")),
        ("1.024", True, 1024),
        ("1.024,5", True, Decimal("1024.5")),
        ("0,5", True, Decimal("0.5")),
        ("1 024.5", False, Decimal("1024.5")),
        ("1\u202f024", False, 1024),
        ("-3", False, -3),
        ("1e-3", False, Decimal("0.001")),
        ("CachePreferNone", False, None),
        ("n/a", False, None),
        ("Infinity", False, None),
        ("(32, 4, 1)", False, None),
        ("1-2", False, None),
        ("", False, None),
    ],
)
def test_numbers(cell, comma, value):
    assert number(cell, comma=comma) == value


@pytest.mark.parametrize(
    ("cells", "comma"),
    [
        (["1,024", "2.5"], False),
        (["1,024"], False),
        (["0,5"], True),
        (["0,125"], True),
        (["-0,5"], True),
        (["012,125"], True),
        (["-1,024"], False),
        (["1.024,25"], True),
        (["1,024,512"], False),
        (["(1, 2, 3)", "a,b", ""], False),
    ],
)
def test_whose_comma_it_is(cells, comma):
    assert decimal_comma(cells) is comma


@pytest.mark.parametrize("nvtx", [True, False])
@pytest.mark.parametrize(
    ("before", "after"),
    [
        ("", ""),
        ('==PROF== Connected to process 7\nmy program, "quoted\nID of it: 3\n', ""),
        ("", "\n==PROF== Disconnected\nbye, bye\n"),
    ],
)
def test_lines_around_the_table(tmp_path, nvtx, before, after):
    report = loaded(
        tmp_path, raw([kernel(), kernel("k2")], nvtx=csv_text, before=before, after=after)
    )
    assert report.activities["name"].tolist() == ["k", "k2"]
    assert times(report) == [1000, 1000]


def test_any_name_will_do_if_the_table_is_there(tmp_path):
    assert len(loaded(tmp_path, raw([kernel()], before="==PROF== x\n"), "x.log").activities) == 1


def test_windows_text(tmp_path):
    path = tmp_path / "x.csv"
    path.write_bytes(raw([kernel()]).replace("\n", "\r\n").encode("utf-16"))
    assert times(importers.load(path)) == [1000]


def test_decimal_commas(tmp_path):
    metrics = {DURATION: ("1.024,5", "usecond"), "b": ("2.048", "byte")}
    report = loaded(tmp_path, raw([kernel(metrics=metrics)]))
    assert times(report) == [1_024_500]
    assert report.metrics.table["value"].tolist() == [1_024_500, 2048]


@pytest.mark.parametrize("page", [raw, details])
def test_only_metrics_tell_whose_comma_it_is(tmp_path, page):
    name = "Duration" if page is details else DURATION
    metrics = {("s", name) if page is details else name: ("1,024", "ns")}
    report = loaded(tmp_path, page([kernel("1,5", metrics=metrics, pushed=["0,5"])], nvtx=True))
    assert times(report) == [1024]


@pytest.mark.parametrize(("unit", "ns"), [("minute", 60 * 10**9), ("hour", 3600 * 10**9)])
def test_long_units(tmp_path, unit, ns):
    metrics = {DURATION: ("1.5", unit), "x.sum": ("2", unit)}
    report = loaded(tmp_path, raw([kernel(metrics=metrics)]))
    assert times(report) == [3 * ns // 2]
    assert report.metrics.table["unit"].tolist() == ["ns", "ns"]
    assert report.metrics.table["value"].tolist() == [1.5 * ns, 2 * ns]


@pytest.mark.slow
def test_a_raw_page_that_is_cut_off(tmp_path):
    text = raw([kernel(name, pushed=["op"]) for name in "abc"])
    for less in range(2, 40):
        report = loaded(tmp_path, text[:-less])
        rows = len(report.activities)
        cut = [warning for warning in report.warnings if "cut off" in warning]
        if rows < 3:
            assert rows == 2
            assert cut == ["x.csv: cut off after row 2; 1 incomplete rows left out"]
        else:
            assert not cut
    assert len(loaded(tmp_path, text + "3, loss 0.5\n").activities) == 3
    with pytest.raises(importers.ReportError, match="without a kernel"):
        loaded(tmp_path, raw([kernel("a")])[:-20])


HUGE = ["1e400", "-1e400", "9" * 20, "9" * 5000, "1e999999999", "4e18", "1e308"]


@pytest.mark.slow
@pytest.mark.parametrize("page", [raw, details])
@pytest.mark.parametrize("cell", HUGE)
@pytest.mark.parametrize("unit", ["ns", "hour", "Tbyte"])
def test_numbers_that_are_too_large_are_not_known(tmp_path, page, cell, unit):
    names = ["Duration" if page is details else DURATION, "launch__stream_id", "x"]
    metrics = {("s", n) if page is details else n: (cell, unit) for n in names}
    large = kernel("k", metrics=metrics, grid=(cell, 1, 1), pid=cell, thread="9" * 30, pushed=["o"])
    text = page([large, large], nvtx=True)
    path = tmp_path / "x.csv"
    path.write_text(text.replace('"1","7"', f'"{cell}","{cell}"'), encoding="utf-8")
    report = importers.load(path)
    assert times(report) == [0] * len(report.activities)
    assert report.activities["stream"].max() < 1 << 62
    assert report.activities["grid_x"].max() < 1 << 62
    assert join(report).by("kernel", metrics=["x"])["count"].tolist() == [len(report.activities)]


def test_geometry_and_whose_it_is(tmp_path):
    row = (
        loaded(tmp_path, raw([kernel(grid=(3, 4, 5), block=(6, 7, 8), pid=9)]))
        .activities.to_pandas()
        .iloc[0]
    )
    assert [row[f"{w}_{a}"] for w in ("grid", "block") for a in "xyz"] == [3, 4, 5, 6, 7, 8]
    assert (row["device"], row["context"], row["stream"], row["process"] >> 24) == (0, 1, 7, 9)


@pytest.mark.slow
def test_a_time_that_was_not_collected_is_no_time(tmp_path, capsys):
    report = loaded(tmp_path, raw([kernel("a", metrics={"x__y.sum": ("5", "inst")})]))
    assert times(report) == [0]
    assert "1 of 1 kernels without a time" in " ".join(report.warnings)
    table = join(report).by("kernel", metrics=["x__y.sum"])
    assert table["total_ns"].tolist() == table["min_ns"].tolist() == [-1]
    assert table["x__y.sum"].tolist() == [5]


def test_only_some_times(tmp_path):
    without = kernel("b", metrics={"x.sum": ("1", "inst")})
    report = loaded(tmp_path, raw([kernel("a"), without, kernel("a")]))
    table = join(report).by("kernel")
    assert dict(zip(table["kernel"], table["total_ns"], strict=True)) == {"a": 2000, "b": -1}


def test_integers_that_no_float_holds(tmp_path):
    big = str(2**60 + 1)
    table = loaded(tmp_path, raw([kernel(metrics={"p": (big, "")})])).metrics.table
    assert table["text"].tolist() == [big]


@pytest.mark.slow
def test_details(tmp_path):
    metrics = {
        ("SOL", "Duration"): ("1.5", "usecond"),
        ("SOL", "Memory Throughput"): ("12.5", "%"),
        ("Memory Workload Analysis", "Memory Throughput"): ("3", "Gbyte/second"),
        ("Launch", "Registers Per Thread"): ("40", "register/thread"),
        ("Launch", "Cache"): ("PreferL1", ""),
        ("Launch", "Nothing"): ("n/a", ""),
    }
    rules = [
        ("Occupancy", "Theoretical", "OPT", 'said "so", and\nmore', "global", "50.5"),
        ("SOL", "Bottleneck", "INF", "fine", "", ""),
    ]
    report = loaded(tmp_path, details([kernel(metrics=metrics)], rules=rules, nvtx=True))
    assert times(report) == [1500]
    assert report.activities["registers"].tolist() == [40]
    assert len(report.metrics.table) == 5
    said = report.metrics.rules
    assert said["text"].tolist() == ['said "so", and\nmore', "fine"]
    assert said["speedup"].tolist() == [50.5, -1.0]
    joined = join(report)
    found = joined.by("kernel", metrics=["memory_throughput", "dram_bytes_per_s", "Cache"]).iloc[0]
    assert (found["memory_throughput"], found["dram_bytes_per_s"]) == (12.5, 3e9)
    assert found["Cache"] == "PreferL1"
    assert joined.by("rule")["saves_ns"].tolist() == [758, 0]


NAMES = st.text(
    st.characters(
        codec="utf-8", exclude_characters='"\r\n\0', exclude_categories=("Cs", "Cc", "Zl", "Zp")
    ),
    min_size=1,
)


@pytest.mark.slow
@given(st.integers(0, 2**31), st.lists(NAMES, min_size=1, max_size=4), st.booleans())
def test_names_of_ranges_hold_anything(thread, names, said):
    after = "INT64:5:ARGB:1:ASCII:{}" if said else made_ncu.NOTHING
    cells = [made_ncu.frame(name, "mine", after.format(name)) for name in names]
    number, found = csv_text.push_pop_ranges([f"{thread}  {'  '.join(cells)}"])
    assert number == thread
    assert [(one.domain, one.name) for one in found] == [("mine", name) for name in names]
    assert {one.payload for one in found} == {5 if said else -1}


def test_quotes_in_the_name_of_a_range_part_it_from_no_other():
    """They look like those between two ranges: which they are, only the fields behind each range tell."""
    names = ['a"  "b', 'c"   "d" "e', "f"]
    cells = [made_ncu.frame(name, "mine") for name in names]
    _, found = csv_text.push_pop_ranges([f"5  {'  '.join(cells)}"])
    assert [(one.domain, one.name) for one in found] == [("mine", name) for name in names]


def test_phases_of_a_cell():
    cell = f'"3:mine:a:b:{made_ncu.NOTHING}"  "4:mine:c:{made_ncu.NOTHING}"'
    assert [(p.id, p.domain, p.name) for p in csv_text.start_end_ranges([cell])] == [
        ("3", "mine", "a:b"),
        ("4", "mine", "c"),
    ]


def test_ranges_as_ncu_prints_them():
    """Cells as they stand in the wild: the system's number of the thread, a blank at the end, domains side by side."""
    none = ":none:none:none:none:none:none"
    cell = (
        f'1614690  "<default domain>:64x32x4x3 causal=False{none}" '
        f' "<default domain>:module:layers.0.self_attn{none}"  "CCCL:cub::DeviceReduce::Reduce{none}" '
    )
    thread, found = csv_text.push_pop_ranges([cell])
    assert thread == 1614690
    assert [(one.domain, one.name) for one in found] == [
        ("<default domain>", "64x32x4x3 causal=False"),
        ("<default domain>", "module:layers.0.self_attn"),
        ("CCCL", "cub::DeviceReduce::Reduce"),
    ]
    [phase] = csv_text.start_end_ranges([f'"0:<default domain>:compute_kernel:profile{none}"'])
    assert (phase.id, phase.name) == ("0", "compute_kernel:profile")


ODD = [
    'say "hi" there',
    "a, b; c",
    "two\nlines",
    "==PROF== no line of ncu",
    'quote" "quote',
    '"',
    "ü 日本",
]


@pytest.mark.parametrize("details_page", [False, True])
@pytest.mark.parametrize("name", ODD)
def test_odd_names_of_ops_and_kernels(tmp_path, name, details_page):
    pushed = ["outer", (name, "lib"), "inner"]
    one = kernel(f"k<{name}>", thread=97844, pushed=pushed, started=[(7, name)])
    text = (
        details([{**one, "metrics": {("S", "Duration"): ("1", "us")}}], nvtx=True)
        if details_page
        else raw([one])
    )
    report = loaded(tmp_path, text)
    texts = report.texts.decode()
    ranges = report.ranges
    assert texts[:3] == ["outer", name, "inner"]
    assert ranges["domain_name"].tolist()[:3] == ["", "lib", ""]
    assert texts[3:] == [name]
    assert ranges["kind"].tolist() == ["push_pop"] * 3 + ["start_end"]
    assert report.activities["full_name"].tolist() == [f"k<{name}>"]
    assert {int(t) & 0xFFFFFF for t in ranges["thread"]} == {97844}


@pytest.mark.slow
def test_payloads_and_colours(tmp_path):
    said = "UINT64:42:ARGB:FF00FF00:REGISTERED:mine"
    pushed = [("mine", made_ncu.DEFAULT, said), ("other", "lib", "DOUBLE:0.5:none:none:none:none")]
    report = loaded(tmp_path, raw([kernel(pushed=pushed)]))
    assert report.texts.decode() == ["mine", "other"]
    assert report.ranges["payload"].tolist() == [42, -1]


def test_the_columns_of_older_versions(tmp_path):
    """Those of 2021 had the time of the launch, and neither geometry nor estimates."""
    head = [
        *made_ncu.OF_KERNEL[:4],
        made_ncu.PUSHED,
        made_ncu.STARTED,
        "Kernel Name",
        "Kernel Time",
    ]
    head += ["Context", "Stream", "Section Name", "Metric Name", "Metric Unit", "Metric Value"]
    head += ["Rule Name", "Rule Type", "Rule Description"]
    row = [
        "0",
        "7",
        "python3",
        "h",
        f"1  {made_ncu.frame('op')}",
        "",
        "k(int)",
        "2021-May-03 10:00:00",
        "1",
        "7",
    ]
    rows = [
        head,
        [*row, "SOL", "Duration", "usecond", "2.5", "", "", ""],
        [*row, "SOL", "", "", "", "R", "WRN", "x"],
    ]
    report = loaded(tmp_path, made_ncu.written(rows))
    assert times(report) == [2500]
    assert report.texts.decode() == ["op"]
    assert report.activities["grid_x"].tolist() == [-1]
    assert report.metrics.rules["kind"].tolist() == ["WRN"]
