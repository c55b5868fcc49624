"""What people see: tables that fit the terminal, Markdown, the accounting line."""

import re
from functools import cache

import pandas as pd
import pytest
from command import done, table_in
from read_once import reading_once
from real_parts import corpus_reports
from rich.cells import cell_len

import bridge.report
from bridge.analyze.core.catalog import VIEWS
from bridge.render import table, units
from bridge.render.table import Look
from bridge.render.table_columns import displayed as shown_of
from bridge.render.table_columns import writer


@pytest.fixture(scope="module")
def joined(demo):
    return bridge.report.load(demo)


@pytest.fixture(scope="module")
def table_of(joined):
    """Give the table of a view, made once for all that show it."""
    return cache(joined.by)


@pytest.mark.slow
@pytest.mark.parametrize("view", VIEWS)
@pytest.mark.parametrize("width", [60, 80, 100, 200])
def test_a_table_fits_and_keeps_its_figures(table_of, view, width):
    rows = table_of(view)
    lines = table.for_terminal(view, rows, Look(width)).splitlines()
    assert max(map(len, lines)) <= width
    lines, notes = lines[: len(rows) + 2], lines[len(rows) + 2 :]
    assert len(lines) == len(rows) + 2
    assert all("more column" in note for note in notes)
    figures = [s for s in shown_of(view, rows) if not s.is_name and not s.optional]
    for shown in figures:
        assert shown.heading in lines[0]
        assert all(
            writer(shown)(v) in line for v, line in zip(rows[shown.name], lines[2:], strict=True)
        )


@pytest.mark.slow
def test_a_wide_terminal_shows_more(joined):
    narrow, wide = (table.for_terminal("op", joined.by("op"), Look(width)) for width in (80, 200))
    assert "CPU total" in wide
    assert "CPU total" not in narrow


@pytest.mark.slow
@pytest.mark.parametrize("view", VIEWS)
@pytest.mark.parametrize("width", [80, 120, 200])
def test_bars_and_colours_change_no_figure(table_of, view, width):
    rows = table_of(view)
    plain = table.for_terminal(view, rows, Look(width))
    barred = table.for_terminal(view, rows, Look(width, bars=True))
    colored = table.for_terminal(view, rows, Look(width, bars=True, color=True))
    assert re.sub(r"\x1b\[[0-9;]*m", "", colored).split() == barred.split()
    assert "\x1b[" not in barred
    assert max(map(len, barred.splitlines())) <= width
    if width == 200 and any(shown.bar and rows[shown.name].any() for shown in shown_of(view, rows)):
        assert "\x1b[36m" in colored
        assert "█" * 10 in barred.splitlines()[2]  # the largest
        bars = [line.count("█") for line in barred.splitlines()[2:]]
        assert bars == sorted(bars, reverse=True)
        without = [w for w in barred.split() if set(w) - set("█▏▎▍▌▋▊▉─")]
        assert "…" in plain + barred or without == [w for w in plain.split() if set(w) - set("─")]


def test_the_least_time_has_a_bar():
    rows = pd.DataFrame({"op": ["a", "b", "c"], "wait": ["w"] * 3, "count": [1] * 3, "total_ns": [10**9, 1, 0],
                         "mean_ns": [1.0] * 3, "min_ns": [1] * 3, "max_ns": [1] * 3})  # fmt: skip
    first, second, third = table.for_terminal("wait", rows, Look(120, bars=True)).splitlines()[2:]
    assert "█" * 10 in first
    assert "▏" in second
    assert not set("█▏") & set(third)


def test_wide_characters_are_counted_as_they_are_shown():
    rows = pd.DataFrame({"op": ["行列の積" * 12], "wait": ["w"], "count": [1], "total_ns": [10**9],
                         "mean_ns": [1.0], "min_ns": [1], "max_ns": [1]})  # fmt: skip
    for width in (80, 120):
        lines = table.for_terminal("wait", rows, Look(width)).splitlines()
        assert max(map(cell_len, lines)) <= width
        assert "1.000 s" in lines[2]


def test_names_that_fit_are_not_shortened(joined):
    assert "ScaledDotProductFlashAttentionBackward0" in table.for_terminal(
        "op", joined.by("op"), Look(200)
    )


def test_an_empty_table_still_has_its_headings(joined):
    nothing = joined.by("kernel").head(0)
    assert "GPU total" in table.for_terminal("kernel", nothing, Look(80))


def test_markdown_escapes_and_aligns():
    rows = pd.DataFrame({"kernel": ["a|b\\c\nd"], "count": [12345], "total_ns": [1_500_000], "share": [1.0],
                         "mean_ns": [121.5], "median_ns": [121.0], "min_ns": [1], "max_ns": [2]})  # fmt: skip
    head, rule, row = table.as_markdown("kernel", rows).splitlines()
    assert head.startswith("| kernel | count | GPU total |")
    assert rule.startswith("| --- | ---: |")
    assert row.startswith("| a\\|b\\\\c d | 12 345 | 1.500 ms | 100.0 % | 121.5 ns |")


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("<script>", r"\<script>"),
        ("foo<float>*", r"foo\<float>\*"),
        ("@everyone", "@&#8203;everyone"),
        ("`a` ~~b~~ &lt;", r"\`a\` \~\~b\~\~ \&lt;"),
        ("[a](http://b)", r"\[a\](http://b)"),
        ("aten::_to_copy __init__", r"aten::\_to_copy \_\_init\_\_"),
        ("flash_attn::a_b", "flash_attn::a_b"),
    ],
)
def test_names_are_no_markdown(name, text):
    rows = pd.DataFrame({"kernel": [name]})
    assert table.as_markdown("", rows).splitlines()[2].startswith(f"| {text} |")


@pytest.mark.parametrize(
    ("ns", "text"),
    [(0, "0 ns"), (999, "999 ns"), (1000, "1.000 µs"), (1_234_567, "1.235 ms"), (61e9, "61.000 s"), (12.5, "12.5 ns"), (-2000, "-2.000 µs")],
)  # fmt: skip
def test_times(ns, text):
    assert units.time(ns) == text


def test_a_little_is_not_nothing_and_nearly_all_is_not_all():
    shares = (0, 0.0004, 0.001, 0.5, 0.9999, 1)
    assert [units.percent(s) for s in shares] == [
        "0.0 %",
        "<0.1 %",
        "0.1 %",
        "50.0 %",
        ">99.9 %",
        "100.0 %",
    ]


def test_the_accounting_names_every_reason():
    totals = {
        "activities": 10_000,
        "gpu_ns": 1_234_000_000,
        "attributed_ns": 1_224_000_000,
        "unattributed": {
            "no_range": {"activities": 61, "gpu_ns": 9_000_000},
            "no_launch": {"activities": 20, "gpu_ns": 1_000_000},
        },
    }
    assert table.accounting_line(totals, 41) == (
        "10 000 activities, 1.234 s: 99.2 % in 41 ops; 0.8 % not attributed: no range 61 (0.7 %), no launch 20 (<0.1 %)"
    )
    assert table.accounting_line(totals | {"unattributed": {}}, 1).endswith("all attributed")
    assert table.accounting_line(
        {"activities": 0, "gpu_ns": 0, "attributed_ns": 0, "unattributed": {}}, 0
    )


def test_names_are_shown_as_they_are_and_on_one_line():
    rows = pd.DataFrame({"op": ["step:train:0", "a\nb\x1b[31m"], "calls": [1, 2], "cpu_self_ns": [3, 4],
                         "cpu_total_ns": [5, 6]})  # fmt: skip
    text = table.for_terminal("op without activities", rows, Look(80))
    assert "step:train:0" in text
    assert "a b [31m" in text
    assert len(text.splitlines()) == 4


def test_a_name_gets_what_a_shorter_one_does_not_need():
    name = "an op with a name of 36 characters.."
    times = {key: [5] for key in ("total_ns", "mean_ns", "min_ns", "max_ns")}
    rows = pd.DataFrame({"op": [name], "wait": ["sync"], "count": [1], **times})
    assert name in table.for_terminal("wait", rows, Look(80))
    assert name not in table.for_terminal("wait", rows, Look(60))


@pytest.mark.parametrize(("width", "median"), [(73, True), (72, False)])
def test_a_long_name_keeps_24_characters_before_figures_of_less_use_get_room(width, median):
    rows = pd.DataFrame({"kernel": ["k" * 30], "count": [5], "total_ns": [9], "share": [1.0],
                         "mean_ns": [12.5], "median_ns": [9], "min_ns": [9], "max_ns": [9]})  # fmt: skip
    # The name, count, GPU total, of kernels, "12.5 ns", median, each with the gap beside it.
    assert sum(cells + 2 for cells in (24, 5, 9, 10, 7, 6)) == 73
    head = table.for_terminal("kernel", rows, Look(width)).splitlines()[0]
    assert ("median" in head) is median


@pytest.mark.parametrize(
    ("count", "text"),
    [
        (0, "0 B"),
        (1023, "1023 B"),
        (1024, "1.0 KiB"),
        ((1 << 20) - 1, "1024.0 KiB"),
        (1 << 20, "1.0 MiB"),
        (3 << 29, "1.5 GiB"),
        (5 << 30, "5.0 GiB"),
        (1 << 40, "1024.0 GiB"),
    ],
)
def test_sizes_have_binary_units(count, text):
    assert units.size(count) == text


@pytest.mark.slow
@pytest.mark.parametrize("view", ["op", "kernel", "module"])
def test_a_figure_gives_way_only_where_there_is_no_room_for_it(joined, view):
    """The last ones first, down to the main one; a name keeps twelve characters as long as others give way."""
    rows = joined.by(view)
    plain = [s for s in shown_of(view, rows) if not s.optional]
    names = [s for s in plain if s.is_name]
    figures = [s for s in plain if not s.is_name]
    main = next(s for s in figures if s.bar)
    leaving = [*(s for s in figures if s is not main)]
    widths = {
        s.heading: max(cell_len(t) for t in (s.heading, *map(writer(s), rows[s.name])))
        for s in plain
    }
    for kept in range(len(leaving) + 1):
        some = [*names, main, *leaving[:kept]]
        taken = [min(12, widths[s.heading]) if s.is_name else widths[s.heading] for s in some]
        exactly = sum(taken) + 2 * (len(some) - 1)
        at, below = (
            table.for_terminal(view, rows, Look(width)).splitlines()[0]
            for width in (exactly, exactly - 1)
        )
        assert [s for s in some if s.heading[:4] not in at] == []
        assert not kept or leaving[kept - 1].heading not in below


# -- What is left out


REPORTED = ("op", "op-kernel", "kernel", "memcpy", "range", "step", "device", "gap", "idle", "launch", "wait")  # fmt: skip


def headings(text):
    """Return the headings of the first table in a text, from the text alone."""
    head, *_ = table_in(text)
    return [word for word in re.split(r"  +", head.strip()) if word]


@pytest.mark.parametrize(
    "path",
    corpus_reports(
        names=(
            "pytorch-backward",
            "cupy-power-iteration",
        )
    ),
)
def test_a_line_tells_how_many_columns_a_narrow_window_leaves_out(path, monkeypatch):
    """A window in which everything has room is the witness."""
    with reading_once():
        for by in REPORTED:
            monkeypatch.setenv("COLUMNS", "400")
            whole = done("report", path, "--by", by, "--top", 5)
            monkeypatch.setenv("COLUMNS", "60")
            narrow = done("report", path, "--by", by, "--top", 5)
            if "──" not in whole:
                continue
            left = len(headings(whole)) - len(headings(narrow))
            assert "more column" not in whole
            says = re.findall(r"^(\d+) more columns?: (.*)$", narrow, re.MULTILINE)
            assert [int(number) for number, _ in says] == ([left] if left else [])
            assert all(how == "wider window, --columns or --format csv" for _, how in says)


@pytest.mark.parametrize("path", corpus_reports(names=("pytorch-backward",)))
def test_a_command_names_options_that_it_has(path, folder, monkeypatch):
    monkeypatch.setenv("COLUMNS", "60")
    for words, how in (
        (["summary", path], f"wider window or\nbridge report {path} --by op-kernel --format csv"),
        (["import", path], "wider window or\nbridge report --by op-kernel --format csv"),
        (["diff", path, path], "wider window or --format csv"),
        (["advise", path], "wider window or --format json"),
        (["report", path, "--columns", "all"], "wider window or --format csv"),
    ):
        assert f"more columns: {how}\n" in done(*words)


@pytest.mark.parametrize("path", corpus_reports(names=("pytorch-2gpu-after",)))
def test_a_checksum_in_a_name_is_explained_where_it_is_shown(path, monkeypatch):
    with reading_once():
        for columns, note in {
            "80": "~ndzu2w: checksum of arguments that do not fit (--kernel-names demangled)\n",
            "60": "",  # the name is cut before its checksum
        }.items():
            monkeypatch.setenv("COLUMNS", columns)
            text = done("report", path, "--by", "kernel")
            assert ("~ndzu2w  " in text) == bool(note)
            assert text.count("checksum") == bool(note)
            assert note in text
        assert "checksum" not in done("report", path, "--by", "op")
        monkeypatch.setenv("COLUMNS", "300")
        said = done("summary", path)
        assert "checksum of arguments that do not fit (bridge report " in said
        assert "--by op-kernel --kernel-names demangled)\n" in said
        whole = done("report", path, "--by", "kernel", "--kernel-names", "demangled")
        assert "checksum" not in whole
