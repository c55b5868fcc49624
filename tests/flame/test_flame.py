"""`bridge flame`: folded stacks and speedscope's format, as other programs read them."""

from __future__ import annotations

import json
import re
import shutil
import time
from collections import Counter
from itertools import pairwise
from pathlib import Path
from xml.etree import ElementTree as ET

import made_reports
import numpy as np
import pytest
from command import assert_misused, assert_refused, bridge, done, inside

from bridge.analyze.core.calltree import LEVELS, CallTree, calltree
from bridge.render.flame import folded, speedscope, svg
from bridge.report import load
from flame.compare import paths_of

LINE = re.compile(r"([^;]+(?:;[^;]+)*) (\d+)")  # what flamegraph.pl takes a line for
KINDS = {"gpu": "GPU time", "cpu": "CPU time", "calls": "calls"}


@pytest.fixture
def three_steps_here(three_steps, folder):
    return Path(shutil.copy(three_steps, folder / "made.sqlite"))


def counted(text):
    found = [LINE.fullmatch(line) for line in text.splitlines()]
    assert all(found)
    stacks = [match[1] for match in found]
    assert len(set(stacks)) == len(stacks)
    assert stacks == sorted(stacks)
    return Counter({match[1]: int(match[2]) for match in found})


def of_profile(document, kind):
    names = [frame["name"] for frame in document["shared"]["frames"]]
    [profile] = [one for one in document["profiles"] if one["name"] == KINDS[kind]]
    assert profile["endValue"] == sum(profile["weights"])
    stacks = [";".join(names[at] for at in sample) for sample in profile["samples"]]
    return Counter(dict(zip(stacks, profile["weights"], strict=True)))


def tree_of(*names, levels=None, gpu=None):
    """One stack of these names, the last of which has all time."""
    many = len(names)
    time_ns = np.zeros(many, np.int64)
    time_ns[-1] = 7
    empty = np.zeros(many, np.int64)
    level = np.full(many, LEVELS.index("op"))
    parent, code = np.arange(many) - 1, np.arange(many)
    return CallTree(parent, code, list(names), level, time_ns, empty, empty)


# -- what is written


@pytest.mark.slow
@pytest.mark.parametrize("steps", ["--steps", "--no-steps"])
@pytest.mark.parametrize("weight", KINDS)
def test_both_formats_hold_the_weights_of_the_tree(three_steps_here, weight, steps):
    joined = load(three_steps_here)
    tree = calltree(joined.attributed, steps=steps == "--steps")
    own = tree.weight(weight)
    stacks = (";".join(name for _, name in path) for path in paths_of(tree))
    true = Counter({s: ns for s, ns in zip(stacks, own.tolist(), strict=True) if ns})
    assert true
    assert counted(done("flame", three_steps_here, "--weight", weight, steps)) == true
    done("flame", three_steps_here, steps, "--weight", weight, "-o", "x.speedscope.json")
    document = json.loads((three_steps_here.parent / "x.speedscope.json").read_text())
    assert of_profile(document, weight) == true
    assert document["profiles"][document["activeProfileIndex"]]["name"] == KINDS[weight]
    if weight == "gpu":
        assert sum(true.values()) == joined.totals["gpu_ns"]


@pytest.mark.slow
def test_steps_modules_ops_and_kernels_stand_in_their_order(three_steps_here):
    stacks = counted(done("flame", three_steps_here))
    assert stacks["step 1;gemm;aten::mm;gemm_kernel"] == 160  # of two processes
    assert stacks["no_range;late_kernel"] == 120  # launched after the step
    assert stacks["no_launch;lost_kernel"] == 18
    assert "gemm;aten::mm;gemm_kernel" in counted(done("flame", three_steps_here, "--no-steps"))


@pytest.mark.slow
def test_the_suffix_says_the_format_unless_an_option_does(three_steps_here):
    for name, more, begin in (
        ("a.speedscope.json", [], "{"),
        ("a.folded", [], "no_"),
        ("a.txt", ["--format", "speedscope"], "{"),
        ("b.speedscope.json", ["--format", "folded"], "no_"),
    ):
        assert done("flame", three_steps_here, *more, "-o", name) == ""
        assert (three_steps_here.parent / name).read_text().startswith(begin)
    assert (
        json.loads(done("flame", three_steps_here, "--format", "speedscope"))["name"]
        == "made.sqlite"
    )


# -- a picture


SVG = "{http://www.w3.org/2000/svg}"


def boxes_of(text):
    """Read the frames of a picture: what the tooltip tells, and the edges of the box."""
    root = ET.fromstring(text)
    assert {element.tag for element in root.iter()} <= {
        SVG + tag for tag in ("svg", "title", "style", "rect", "text", "g")
    }
    result = []
    for group in root.iter(f"{SVG}g"):
        box = group.find(f"{SVG}rect").attrib
        left, width = float(box["x"]), float(box["width"])
        result.append((group.find(f"{SVG}title").text, float(box["y"]), left, left + width))
    return result


@pytest.mark.slow
@pytest.mark.parametrize("weight", KINDS)
def test_a_picture_shows_every_stack(three_steps_here, weight):
    done("flame", three_steps_here, "--weight", weight, "-o", "x.svg")
    text = (three_steps_here.parent / "x.svg").read_text()
    shown = boxes_of(text)
    stacks = counted(done("flame", three_steps_here, "--weight", weight))
    whole = sum(stacks.values())
    totals = Counter()
    for stack, own in stacks.items():
        names = stack.split(";")
        totals.update({tuple(names[:n]): own for n in range(1, len(names) + 1)})
    totals = {path: total for path, total in totals.items() if 1184 * total / whole > 0.4}
    assert len(shown) == 1 + len(totals)
    assert sorted(name.rpartition(": ")[0] for name, *_ in shown) == sorted(
        ["all", *(path[-1] for path in totals)]
    )
    expected = sorted(1184 * total / whole for total in (whole, *totals.values()))
    assert sorted(right - left for *_, left, right in shown) == pytest.approx(expected, abs=0.02)
    rows = {y for _, y, *_ in shown}
    assert len(rows) == 1 + max(map(len, totals))
    for row in rows:  # boxes of a row do not overlap, and each stands on one that is wider
        edges = sorted((left, right) for _, y, left, right in shown if y == row)
        assert all(one[1] <= other[0] + 0.02 for one, other in pairwise(edges))
        below = [(left, right) for _, y, left, right in shown if y == row + 18]
        assert not below or all(
            any(b[0] <= left + 0.02 and right <= b[1] + 0.02 for b in below)
            for left, right in edges
        )


def test_names_cannot_leave_a_picture():
    hostile = ["<script>alert(1)</script>", "a&b\"'", "new\nline\x00\x1b", "\ud800", "", "ü 🙂"]
    shown = boxes_of("".join(svg(tree_of(*hostile), ("<r>",))))
    assert [name.rpartition(": ")[0] for name, *_ in shown[1:]] == [
        *hostile[:2], "new\nline\ufffd\ufffd", "\ufffd", "(unnamed)", hostile[-1]
    ]  # fmt: skip
    assert {(left, right) for *_, left, right in shown} == {(8, 1192)}
    assert [y for _, y, *_ in shown] == sorted((y for _, y, *_ in shown), reverse=True)


def test_a_picture_leaves_out_what_is_too_narrow():
    three = tree_of("wide", "thin", "narrow")
    columns = [np.array([100_000, 50, 1])] + [np.zeros(3, np.int64)] * 2
    tree = CallTree(np.full(3, -1), three.code, three.names, three.level, *columns)
    assert [name for name, *_ in boxes_of("".join(svg(tree, ("r",))))] == [
        "all: 100.051 µs, 100.0 %", "wide: 100.000 µs, >99.9 %", "thin: 50 ns, <0.1 %"
    ]  # fmt: skip


@pytest.mark.parametrize(
    "name", ["x.png", "x.json", "x", "x.svgz", "x.html", "svg", "x.pb", "x.gz"]
)
def test_other_suffixes_are_refused(name, three_steps_here):
    known = (".folded", ".txt", ".collapsed", ".speedscope.json", ".svg", ".pb.gz", "--format")
    assert_misused(bridge("flame", three_steps_here, "-o", name), name, *known)
    assert inside(three_steps_here.parent) == ["made.sqlite"]


@pytest.mark.slow
def test_nothing_is_replaced_unasked_and_nothing_half_written(three_steps_here):
    done("flame", three_steps_here, "-o", "x.folded")
    assert_refused(bridge("flame", three_steps_here, "-o", "x.folded"), "x.folded", "--force")
    done("flame", three_steps_here, "-o", "x.folded", "--force")
    assert_misused(
        bridge("flame", three_steps_here, "-o", three_steps_here, "--force"), "the report itself"
    )
    assert_refused(bridge("flame", "none.sqlite", "-o", "y.folded"), "none.sqlite")
    assert inside(three_steps_here.parent) == ["made.sqlite", "x.folded"]


def test_names_cannot_break_a_line():
    hostile = ["a;b", "new\nline\r", "\u2028", "", "ends 12", "tab\t", "ü 🙂"]
    [line] = "".join(folded(tree_of(*hostile))).splitlines()
    assert line == "a,b;new line;(unnamed);(unnamed);ends 12;tab;ü 🙂 7"
    document = json.loads("".join(speedscope(tree_of(*hostile), ("x",))))
    names = [frame["name"] for frame in document["shared"]["frames"]]
    assert names == [*hostile[:3], "(unnamed)", *hostile[4:]]


def test_stacks_that_become_one_are_one_line():
    tree = tree_of("a;b", "a,b")
    both = CallTree(np.array([-1, -1]), tree.code, tree.names, *([np.array([3, 4])] * 4))
    assert "".join(folded(both)) == "a,b 7\n"


@pytest.mark.slow
def test_a_report_without_work_has_no_stacks_by_gpu_time(folder):
    tables = "kernels copies fills graphs"
    path = made_reports.small(folder / "none.sqlite", without=tables)
    assert_refused(bridge("flame", path, "--weight", "gpu"), "nothing to stack, no GPU time")
    document = json.loads(done("flame", path, "--format", "speedscope"))
    assert [one["name"] for one in document["profiles"]] == ["CPU time", "calls"]
    path = made_reports.small(folder / "bare.sqlite", without="annotations")
    document = json.loads(done("flame", path, "--format", "speedscope", "--weight", "cpu"))
    assert [one["name"] for one in document["profiles"]] == ["GPU time"]
    assert document["activeProfileIndex"] == 0


@pytest.mark.slow
def test_samples_of_a_stack_stand_together(three_steps_here):
    tree = calltree(load(three_steps_here).attributed)
    paths, place = paths_of(tree), tree.place.tolist()
    assert sorted(place) == list(range(len(tree)))
    in_order = [paths[row] for row in np.argsort(tree.place)]
    for row, path in enumerate(in_order):
        under = [other[: len(path)] == path for other in in_order]
        assert under[row:] == sorted(under[row:], reverse=True)
        assert not any(under[:row])


@pytest.mark.slow
@pytest.mark.racy("costs are measured by the clock")
def test_a_hundred_thousand_stacks_are_written_in_no_time():
    many = 100_000
    parent = np.concatenate((np.full(1_000, -1), np.arange(many - 1_000)))
    ones = np.ones(many, np.int64)
    names = [f"op {n}" for n in range(1_000)]
    tree = CallTree(parent, np.arange(many) % 1_000, names, ones * 2, ones, ones, ones)
    start = time.process_time()
    assert sum(piece.count("\n") for piece in folded(tree)) == many
    assert time.process_time() - start < 10  # a change of kind


# -- what programs make of it


@pytest.mark.slow
def test_speedscope_shows_all_three_weights(three_steps_here, speedscope, tmp_path):
    done("flame", three_steps_here, "--no-steps", "-o", "x.speedscope.json")
    speedscope.open(three_steps_here.parent / "x.speedscope.json")
    assert speedscope.title() == "GPU time (1/3)"
    assert speedscope.table()["gemm"] == ("480.00ns", "0.00ns")
    assert speedscope.table()["gemm_kernel"] == ("480.00ns", "480.00ns")
    speedscope.shot(tmp_path / "left-heavy.png")
    assert (tmp_path / "left-heavy.png").stat().st_size > 10_000
    speedscope.next_profile()
    assert speedscope.title() == "CPU time (2/3)"
    speedscope.next_profile()
    assert speedscope.title() == "calls (3/3)"
    assert speedscope.table()["aten::mm"] == ("6", "6")


@pytest.mark.slow
def test_speedscope_reads_folded_stacks_too(three_steps_here, speedscope):
    done("flame", three_steps_here, "--no-steps", "-o", "x.folded")
    speedscope.open(three_steps_here.parent / "x.folded")
    assert speedscope.table()["gemm_kernel"] == ("480", "480")
