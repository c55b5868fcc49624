"""What backward work is under: the range of who called the backward pass, or a module of the model."""

from functools import cache

import pytest
from pandas import isna
from real_parts import corpus_reports
from witness import nsys_export
from witness.attribution import Activity, Call, Range
from witness.indexed import indexed

import bridge.report
from bridge.analyze.core.calltree import calltree, folded_stacks
from bridge.join.grammar import parse
from bridge.report import Report
from join.trainings import training

P, Q = 7 << 24, 8 << 24
MAIN, AUTOGRAD, OTHER = (P | number for number in (1, 2, 3))
MNIST = "nsys/mnist-training.sqlite"


def opened(start, end, text, thread=MAIN):
    return Range(0, thread & -(1 << 24), thread, start, end, ""), text


def row_of(*ranges, at=55, module=(), **how):
    """Return what is said of a kernel that the engine launches, and the stack that is true."""
    call, kernel = Call(0, P, AUTOGRAD, 1, at, at + 1), Activity(0, P, 1, 1_000, 1_010)
    made = training(ranges, [call], [kernel], module=module)
    [row] = Report(made.attributed(**how)).op_kernels.to_dict("records")
    return row, made.profile()


def path_of(*ranges, **how):
    row, truth = row_of(*ranges, **how)
    assert row["path"] == "/".join(truth.profile.ops_on(truth.profile.on_stack(0)))
    module = truth.module(0)
    assert row["module"] == module if module else isna(row["module"])
    return row["path"]


FORWARD = opened(0, 20, "a"), opened(5, 10, "aten::mm, seq = 7, op_id = 3")
CALLING = opened(40, 90, "loss.backward")
NODE = opened(50, 60, "MmBackward0, seq = 7, op_id = 9", AUTOGRAD)


def test_backward_work_is_under_the_range_that_called_it():
    assert path_of(*FORWARD, CALLING, NODE) == "loss.backward/MmBackward0"
    assert path_of(*FORWARD, opened(40, 90, "a.b"), NODE) == "a.b/MmBackward0"
    assert path_of(*FORWARD, opened(0, 99, "a"), CALLING, NODE) == "a/loss.backward/MmBackward0"


@pytest.mark.parametrize(
    "other",
    [
        opened(52, 90, "loss.backward"),  # began later
        opened(40, 58, "loss.backward"),  # ended sooner
        opened(50, 60, "loss.backward"),  # at the same time
        opened(40, 90, "loss.backward", Q | 1),  # of another process
        opened(40, 90, "aten::mm"),  # an operator does not wait
    ],
    ids=["later", "sooner", "equal", "process", "operator"],
)
def test_what_is_no_caller(other):
    assert path_of(*FORWARD, other, NODE) == "MmBackward0"


def test_of_two_threads_it_is_the_one_in_a_backward_range_or_none():
    assert path_of(CALLING, opened(0, 99, "a", OTHER), NODE) == "loss.backward/MmBackward0"
    assert path_of(CALLING, opened(0, 99, "loss.backward", OTHER), NODE) == "MmBackward0"
    assert path_of(opened(0, 99, "a"), opened(0, 99, "a", OTHER), NODE) == "MmBackward0"


def test_only_marked_modules_adopt_backward_work():
    plain, _ = row_of(*FORWARD, CALLING, NODE)
    assert plain["module"] == "loss.backward"
    named, truth = row_of(opened(0, 20, "nn.Module: a"), FORWARD[1], CALLING, NODE)
    assert named["module"] == truth.module(0) == "a"
    marked, truth = row_of(*FORWARD, CALLING, NODE, module={0})
    assert marked["module"] == truth.module(0) == "a"
    assert {row["op"] for row in (plain, named, marked)} == {"MmBackward0"}


def test_on_request_it_is_under_the_range_of_its_forward_op():
    row, _ = row_of(*FORWARD, CALLING, NODE, backward_under="forward")
    assert (row["path"], row["module"]) == ("a/backward of aten::mm", "a")
    row, _ = row_of(CALLING, NODE, backward_under="forward")
    assert row["path"] == "loss.backward/MmBackward0"  # its forward op was not recorded


def test_whole_texts_are_under_nothing_of_another_thread():
    row, _ = row_of(*FORWARD, CALLING, NODE, raw=True)
    assert "/" not in row["path"]


# -- real profiles


@cache
def loaded(path, **how):
    return bridge.report.load(path, **how)


def under(rows, name, column="gpu_self_ns"):
    """Add up what is on any path through a frame of this name."""
    return sum(ns for path, ns in rows if name in path.split("/"))


def launched_within(path, name):
    """Return the time of what is launched inside ranges of a name, and of what began meanwhile elsewhere.

    The first is what their own thread launches; the second what any other thread of the process does.
    """
    plain = nsys_export.read(path)
    profile = indexed(plain.ranges, plain.calls, plain.activities)
    spans = [one for one in plain.ranges if one.op == name]
    own = other = 0
    for row, found in enumerate(profile.found):
        if found.launch == -1:
            continue
        call = plain.calls[found.launch]
        threads = [one.thread for one in spans if one.start <= call.start < one.end]
        own += profile.time(row) * (call.thread in threads)
        other += profile.time(row) * (bool(threads) and call.thread not in threads)
    return own, other


@pytest.mark.slow
@pytest.mark.parametrize("path", corpus_reports(MNIST))
def test_flame_graph_and_tables_agree_on_forward_and_backward_pass(path):
    report = loaded(path)
    forward, none = launched_within(path, "Forward pass")
    own, engine = launched_within(path, "Backward pass")
    assert (forward, none) == (106_767_579, 0)
    assert own + engine == 256_919_348
    stacks, times = folded_stacks(calltree(report.attributed, steps=False), "gpu")
    flame = [(s.replace(";", "/"), ns) for s, ns in zip(stacks, times.tolist(), strict=True)]
    tables = [
        list(zip(table[by], table["gpu_self_ns"].tolist(), strict=True))
        for by, table in ((by, report.by(by)) for by in ("path", "module"))
    ]
    for rows in (flame, *tables):
        assert under(rows, "Forward pass") == forward
        assert under(rows, "Backward pass") == own + engine
    directions = report.by("direction").set_index("direction")["gpu_self_ns"]
    assert directions["backward"] == own + engine
    assert directions.sum() == sum(times) == 419_596_496
    for way, name, ns in (
        ("forward", "Forward pass", forward),
        ("backward", "Backward pass", own + engine),
    ):
        table = report.by("path", direction=way)
        rows = list(zip(table["path"], table["gpu_self_ns"].tolist(), strict=True))
        assert under(rows, name) == ns
        assert sum(ns for _, ns in rows) == directions[way]
    op = report.by("op").set_index("op")["gpu_total_ns"]
    assert (op["Forward pass"], op["Backward pass"]) == (forward, own + engine)


@pytest.mark.slow
@pytest.mark.parametrize("under", ["caller", "forward"])
@pytest.mark.parametrize(
    "path", corpus_reports("nsys/[mpt]*.sqlite") + corpus_reports("kineto/*.json.gz")
)
def test_every_activity_is_in_one_place(path, under):
    report = loaded(path, backward_under=under)
    attributed = report.attributed
    tree = calltree(attributed, steps=False)
    assert tree.gpu_self_ns.sum() == attributed.duration.sum()
    nesting, hierarchy = attributed.attribution.nesting, attributed.hierarchy
    names = report.capture.ranges.name
    for node, (before, after) in enumerate(
        zip(nesting.parent.tolist(), hierarchy.parent.tolist(), strict=True)
    ):
        if before == after:
            continue
        label = parse(names[nesting.range[node]])
        assert (before, label.backward, label.kind) == (-1, True, "operator")
        if under == "caller":
            assert (
                nesting.start[after]
                <= nesting.start[node]
                < nesting.end[node]
                <= nesting.end[after]
            )
            assert nesting.stack[after] != nesting.stack[node]
    with_op = attributed.attribution.node != -1
    for by, rows in (("path", slice(None)), ("direction", slice(None)), ("module", with_op)):
        assert report.by(by)["gpu_self_ns"].sum() == attributed.duration[rows].sum()
