"""`key_averages` without PyTorch: of any tree of calls what a plain walk over it says, and laws on real reports."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field

import made
import pytest
from command import done
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from witness import kineto

import bridge
from bridge.analyze.draw.dialects.average_rows import DeviceType


@dataclass
class Node:
    name: str
    kernels: list[int] = field(default_factory=list)
    children: list[Node] = field(default_factory=list)
    start: int = 0
    end: int = 0


names = st.sampled_from(["a", "a", "b", "ProfilerStep#1", "ProfilerStep#2"])
trees = st.recursive(
    st.builds(Node, names, st.lists(st.integers(1, 9), max_size=2)),
    lambda inner: st.builds(
        Node, names, st.lists(st.integers(1, 9), max_size=2), st.lists(inner, max_size=3)
    ),
    max_leaves=12,
)


def laid_out(node: Node, at: int, events: list) -> int:
    """Give a tree its times: each call of the CUDA runtime takes 2 µs, all else 3 µs before and after what is in it."""
    node.start = at
    at += 3
    for length in node.kernels:
        number = len(events) + 1
        events += [
            made.call(at, 2, number),
            made.kernel(f"k{length}", 10_000 + 10 * number, length, number),
        ]
        at += 2
    for child in node.children:
        at = laid_out(child, at, events) + 1
    node.end = at + 3
    return node.end


def walked(node: Node) -> list[Node]:
    return [node, *(one for child in node.children for one in walked(child))]


def key(node: Node) -> str:
    return "ProfilerStep*" if node.name.startswith("ProfilerStep") else node.name


def device(node: Node) -> int:
    return sum(node.kernels) + sum(map(device, node.children))


def collapsed(node: Node) -> Node:
    """Take what does nothing but call the same op again for one with it."""
    while len(node.children) == 1 and not node.kernels and key(node.children[0]) == key(node):
        (only,) = node.children
        node.children, node.kernels = only.children, only.kernels
    node.children = [collapsed(child) for child in node.children]
    return node


def expected(roots: list[Node]) -> dict[str, list[int]]:
    """Return count, self and total of the host, self and total of devices of each key."""
    found: dict[str, list[int]] = {}

    def visit(node: Node, above: frozenset[str]) -> None:
        row = found.setdefault(key(node), [0] * 5)
        length = node.end - node.start
        inner = sum(child.end - child.start for child in node.children) + 2 * len(node.kernels)
        row[0] += 1
        row[1] += length - inner
        row[3] += sum(node.kernels)
        if key(node) not in above:
            row[2] += length
            row[4] += device(node)
        for child in node.children:
            visit(child, above | {key(node)})

    for root in roots:
        visit(root, frozenset())
    return found


@pytest.mark.slow
@settings(suppress_health_check=list(HealthCheck))
@given(st.lists(trees, min_size=1, max_size=3))
def test_every_row_is_what_a_walk_over_the_calls_says(tmp_path, roots):
    events: list = []
    at = 0
    for root in roots:
        at = laid_out(root, at, events) + 1
    ranges = sorted((one for root in roots for one in walked(root)), key=lambda n: (n.start, -n.end))  # fmt: skip
    events += [made.op(one.name, one.start, one.end - one.start) for one in ranges]
    works = Counter()
    for length in (length for one in ranges for length in one.kernels):
        works[f"k{length}"] += length
    calls = sum(len(one.kernels) for one in ranges)
    path = made.write(tmp_path / "t.json", made.trace(events))
    rows = bridge.load(path).key_averages()
    truth = expected([collapsed(root) for root in roots])
    host = {row.key: row for row in rows if row.device_type == DeviceType.CPU}
    launches = host.pop("cudaLaunchKernel", None)
    assert (launches.count if launches else 0) == calls
    assert {
        name: [row.count, row.self_cpu_time_total, row.cpu_time_total, row.self_device_time_total, row.device_time_total]
        for name, row in host.items()
    } == truth  # fmt: skip
    on_device = {row.key: row for row in rows if row.device_type == DeviceType.CUDA}
    assert {name: row.device_time_total for name, row in on_device.items()} == dict(works)


def around_other_threads(attributed):
    """Name the ops that have the work of other threads under them: PyTorch adds up each thread alone."""
    nesting, found = attributed.hierarchy, set()
    for node, above in enumerate(nesting.parent.tolist()):
        parent = above
        while parent >= 0:
            if nesting.stack[parent] != nesting.stack[node]:
                found.add(attributed.ops[attributed.node_op[parent]])
            parent = nesting.parent[parent]
    return found


REPORTS = [f"kineto/{name}.pt.trace.json.gz" for name in kineto.SOME] + [
    f"nsys/{name}.sqlite" for name in
    ("pytorch-backward", "pytorch-2gpu-window", "mnist-training", "nvfuser", "two-processes", "torch-compile-graphs", "no-kernels-api")
]  # fmt: skip


@pytest.mark.slow
@pytest.mark.parametrize("name", REPORTS)
def test_self_times_add_up(name, corpus):
    joined = bridge.load(corpus / name)
    frame = joined.key_averages().frame
    report, attributed = joined.capture, joined.attributed
    on_device = frame["device_type"] == "cuda"
    assert frame.loc[on_device, "self_device_ns"].sum() == attributed.duration.sum()
    assert frame.loc[on_device, "count"].sum() == len(report.activities)
    owned = attributed.duration[attributed.attribution.node >= 0].sum()
    assert frame.loc[~on_device, "self_device_ns"].sum() == owned
    assert frame.loc[~on_device, "self_cpu_ns"].sum() == open_time(joined)
    assert (frame["self_cpu_ns"] >= 0).all()
    assert (frame["cpu_total_ns"] >= frame["self_cpu_ns"]).all()
    assert (frame["device_total_ns"] >= frame["self_device_ns"]).all()
    by_op = joined.by("op").set_index("op")
    around = around_other_threads(attributed)
    ops = frame[~on_device & ~frame["is_user_annotation"]].set_index("key")
    for op in set(ops.index) & set(by_op.index):
        if not ops.index.duplicated().any() and (frame["key"] == op).sum() == 1:
            assert ops.loc[op, "self_device_ns"] == by_op.loc[op, "gpu_self_ns"]
            if op not in around:
                assert ops.loc[op, "device_total_ns"] == by_op.loc[op, "gpu_total_ns"]
            assert ops.loc[op, "cpu_total_ns"] == by_op.loc[op, "cpu_total_ns"]
            assert ops.loc[op, "count"] <= by_op.loc[op, "calls"]


def open_time(joined) -> int:
    """Add up, over threads, the time in which any op or API call was open."""
    spans: dict[tuple[int, int], list[tuple[int, int]]] = {}
    report = joined.capture
    for table, listed in ((report.ranges, joined.attributed.op >= 0), (report.launches, slice(None))):  # fmt: skip
        columns = table.to_pandas().loc[listed, ["report", "thread", "start", "end"]]
        for of, thread, start, end in columns.to_numpy().tolist():
            spans.setdefault((of, thread), []).append((start, end))
    total = 0
    for every in spans.values():
        reached = None
        for start, end in sorted(every):
            reached = start if reached is None else max(reached, start)
            total += max(0, end - reached)
            reached = max(reached, end)
    return total


def test_a_report_of_nsight_systems_has_rows_of_every_kind(corpus):
    rows = bridge.load(corpus / "nsys" / "pytorch-backward.sqlite").key_averages()
    found = {row.key: row for row in rows}
    assert found["aten::exp"].self_device_time_total > 0
    assert found["cudaLaunchKernel"].self_cpu_time_total > 0
    assert found["cudaLaunchKernel"].device_time_total == 0
    assert found["Memset (Device)"].device_type == DeviceType.CUDA
    assert found["ampere_sgemm_128x128_tn"].device_time_total > 0
    table = rows.table(sort_by="cuda_time_total", row_limit=5)
    assert "Self CUDA %" in table
    assert table.splitlines()[-2].startswith("Self CPU time total: ")
    assert table.splitlines()[-1].startswith("Self CUDA time total: ")
    assert len(table.splitlines()) == 5 + 6
    assert str(rows) == rows.table()


def test_rows_are_a_sequence(corpus):
    rows = bridge.load(corpus / "nsys" / "nvfuser.sqlite").key_averages()
    assert len(rows) == len(list(rows)) == len(rows.frame)
    assert rows[0].key == rows[:1][0].key == next(iter(rows)).key
    assert rows[-1].key == rows[len(rows) - 1].key
    with pytest.raises(IndexError):
        _ = rows[len(rows)]
    assert rows.total_average().count == sum(row.count for row in rows)
    assert rows.total_average().self_cpu_time_total == pytest.approx(rows.self_cpu_time_total)
    with pytest.raises(AttributeError, match="nonsense"):
        rows.table(sort_by="nonsense")


@pytest.mark.slow
def test_a_stored_run_has_the_same_rows(corpus, folder):
    from bridge.report import join
    from bridge.store.loading import load

    path = kineto.path(corpus, "sampled-rank0")
    done("import", path)
    again = join(load(folder / "bridge.db"))
    for how in ({}, {"group_by_input_shape": True}):
        ours, theirs = again.key_averages(**how).frame, bridge.load(path).key_averages(**how).frame
        assert ours.equals(theirs)


@pytest.mark.slow
def test_flops_and_shapes_of_recordings(tmp_path):
    import json

    import made_reports

    from bridge.importers.nsys.write import write_export

    thread, strings = 100 * 2**24 | 100, [{"id": 1, "value": "mm"}]
    details = [json.dumps({"shapes": [[n, 3], None], "flops": 500 * n}) for n in (2, 2, 4)]
    ranges = [
        {"type": made_reports.PUSH_POP, "start": 10 * n + 1, "end": 10 * n + 9, "thread": thread, "text_id": 1, "json": one}
        for n, one in enumerate(details)
    ]  # fmt: skip
    path = tmp_path / "t.sqlite"
    write_export(path, {"annotations": ranges, "strings": strings})
    joined = bridge.load(path)
    [row] = joined.key_averages()
    assert (row.count, row.flops, row.input_shapes) == (3, 4000, "")
    by_shape = joined.key_averages(group_by_input_shape=True)
    assert [(r.count, r.flops, r.input_shapes) for r in by_shape] == [
        (2, 2000, [[2, 3], []]),
        (1, 2000, [[4, 3], []]),
    ]
    assert "Total KFLOPs" in by_shape.table()
    assert "[[2, 3], []]" in by_shape.table()


@pytest.mark.slow
def test_stacks_are_the_python_functions_around(tmp_path):
    events = [
        made.op("aten::mm", 20, 10), made.op("aten::mm", 40, 10), made.op("aten::mm", 90, 5),
        made.event("python_function", "train.py(9): main", 1, 80),
        made.event("python_function", "torch/autograd/__init__.py(255): backward", 5, 70),
        made.event("python_function", "model.py(3): forward", 10, 25),
    ]  # fmt: skip
    joined = bridge.load(made.write(tmp_path / "t.json", made.trace(events)))
    found = joined.key_averages(group_by_stack_n=5)
    assert [(row.count, row.stack) for row in found if row.key == "aten::mm"] == [
        (1, ("model.py(3): forward", "train.py(9): main")),
        (1, ("train.py(9): main",)),
        (1, ()),
    ]
    ops = [row for row in joined.key_averages(group_by_stack_n=1) if row.key == "aten::mm"]
    assert [row.count for row in ops] == [1, 1, 1]
    lines = found.table().splitlines()
    first = next(n for n, line in enumerate(lines) if line.lstrip().startswith("aten::mm"))
    assert [line.split()[-2:] for line in lines[first : first + 2]] == [["model.py(3):", "forward"], ["train.py(9):", "main"]]  # fmt: skip
    stacks = {row.key: row.stack for row in found if row.key != "aten::mm"}
    assert stacks == {
        "train.py(9): main": (),
        "torch/autograd/__init__.py(255): backward": ("train.py(9): main",),
        "model.py(3): forward": ("train.py(9): main",),
    }


@pytest.mark.parametrize("domains", [[], ["all"], ["default"]])
def test_python_functions_are_rows_whose_time_is_not_that_of_the_ops_around(tmp_path, domains):
    joined = loaded(
        tmp_path,
        made.event("python_function", "main", 0, 100),
        made.op("outer", 10, 60),
        made.event("python_function", "helper", 20, 40),
        made.event("python_function", "helper", 55, 4),
        made.op("inner", 25, 20),
        made.call(30, 2, 1),
        made.kernel("k", 200, 7, 1),
        domains=domains,
    )
    found = {
        row.key: (row.count, row.self_cpu_time_total, row.cpu_time_total, row.device_time_total)
        for row in joined.key_averages()
        if row.device_type == DeviceType.CPU
    }
    assert found == {
        "main": (1, 40, 100, 7),
        "outer": (1, 20, 60, 7),
        "helper": (2, 20, 40, 7),
        "inner": (1, 18, 20, 7),
        "cudaLaunchKernel": (1, 2, 2, 0),
    }


def loaded(tmp_path, *events, **how):
    return bridge.load(made.write(tmp_path / "t.json", made.trace(list(events))), **how)


def test_backward_work_has_the_functions_of_its_forward_op(tmp_path):
    joined = loaded(
        tmp_path,
        made.op("aten::mm", 20, 10, Sequence_number=7),
        made.event("python_function", "model.py(3): forward", 10, 25),
        made.event("python_function", "train.py(9): backward", 50, 40),
        made.op("MmBackward0", 60, 20, Sequence_number=7, tid=77),
        made.op("aten::t", 65, 5, tid=77),
        made.op("aten::add", 70, 5),
    )
    found = joined.key_averages(group_by_stack_n=1)
    assert {row.key: row.stack for row in found if "py(" not in row.key} == {
        "aten::mm": ("model.py(3): forward",), "MmBackward0": ("model.py(3): forward",),
        "aten::t": ("model.py(3): forward",), "aten::add": ("train.py(9): backward",),
    }  # fmt: skip


def test_wrappers_are_one_call_of_the_outermosts_shapes(tmp_path):
    ops = [made.op("a", 10 * n, 100 - 20 * n, Input_Dims=[[n]]) for n in (1, 2, 3)]
    joined = loaded(tmp_path, *ops, made.call(40, 2, 1), made.kernel("k", 50, 5, 1))
    [a, call, kernel] = joined.key_averages(group_by_input_shape=True)
    assert (a.count, a.self_cpu_time_total, a.cpu_time_total) == (1, 78, 80)
    assert (a.self_device_time_total, a.device_time_total, a.input_shapes) == (5, 5, [[1]])
    assert (call.input_shapes, kernel.input_shapes) == ("", "")


def test_two_calls_in_a_call_are_three(tmp_path):
    """Also where both are of no length, and at one instant."""
    for length in (0, 1):
        joined = loaded(
            tmp_path, made.op("a", 10, 10), made.op("a", 15, length), made.op("a", 15 + length, length)
        )  # fmt: skip
        assert [row.count for row in joined.key_averages()] == [3]


def test_a_name_that_only_looks_like_a_step_stays(tmp_path):
    events = [made.event("user_annotation", name, 10 * n, 5) for n, name in enumerate(["ProfilerStep#7", "ProfilerStep"])]  # fmt: skip
    assert [r.key for r in loaded(tmp_path, *events).key_averages()] == ["ProfilerStep*", "ProfilerStep"]  # fmt: skip


def test_what_begins_at_once_comes_outer_first(tmp_path):
    joined = loaded(tmp_path, made.op("inner", 10, 5), made.op("outer", 10, 50))
    assert [row.key for row in joined.key_averages()] == ["outer", "inner"]


def test_what_a_utility_op_launched_is_of_the_op_around(tmp_path):
    joined = loaded(
        tmp_path, made.op("outer", 0, 100), made.op("aten::is_leaf", 10, 20), made.call(12, 2, 1), made.kernel("k", 50, 5, 1)
    )  # fmt: skip
    rows = {row.key: row for row in joined.key_averages()}
    assert rows["outer"].self_device_time_total == rows["outer"].device_time_total == 5


@pytest.mark.slow
def test_the_total_counts_everything_once(corpus):
    joined = bridge.load(corpus / "nsys" / "pytorch-backward.sqlite")
    rows = joined.key_averages()
    total, ran = rows.total_average(), joined.attributed.duration.sum() / 1000
    assert (total.key, total.device_time_total, total.self_device_time_total) == ("Total", ran, ran)
    assert total.cpu_time_total == total.self_cpu_time_total == open_time(joined) / 1000
    assert sum(row.device_time_total for row in rows) > 2 * ran


def test_utility_ops_are_left_out_as_pytorch_leaves_them_out(tmp_path):
    events = [made.op("outer", 0, 100), made.op("aten::is_leaf", 10, 20), made.op("aten::mm", 40, 10)]  # fmt: skip
    rows = bridge.load(made.write(tmp_path / "t.json", made.trace(events))).key_averages()
    assert [(row.key, row.self_cpu_time_total) for row in rows] == [("outer", 90), ("aten::mm", 10)]


def test_events_of_no_length_count(tmp_path):
    """As traces of whole microseconds have them: within, beside and at the edges of others."""
    events = [
        made.op("a", 10, 10), made.op("b", 10, 0), made.op("b", 15, 0), made.op("b", 20, 0), made.op("c", 20, 5),
        made.op("a", 30, 10), made.op("a", 33, 0),
    ]  # fmt: skip
    rows = {r.key: r for r in bridge.load(made.write(tmp_path / "t.json", made.trace(events))).key_averages()}  # fmt: skip
    assert {k: (r.count, r.cpu_time_total, r.is_top) for k, r in rows.items()} == {
        "a": (2, 20, True), "b": (3, 0, False), "c": (1, 5, True),
    }  # fmt: skip


@pytest.mark.slow
def test_slices_are_one_call(tmp_path):
    import made_reports

    from bridge.importers.nsys.write import write_export

    thread, call = 100 * 2**24 | 100, 0x4E42 << 48 | 7
    ranges = [
        {"type": made_reports.PUSH_POP, "start": at, "end": at + 5, "thread": thread, "text_id": 1, "payload": call}
        for at in (10, 30)
    ]  # fmt: skip
    path = tmp_path / "t.sqlite"
    write_export(path, {"annotations": ranges, "strings": [{"id": 1, "value": "co"}]})
    [row] = bridge.load(path).key_averages()
    assert (row.count, row.cpu_time_total) == (1, 0.01)


def test_nothing_gives_nothing(tmp_path):
    events = [made.event("cuda_sync", "Stream Sync", 1, 1), made.op("aten::is_leaf", 1, 5)]
    rows = bridge.load(made.write(tmp_path / "t.json", made.trace(events))).key_averages()
    assert len(rows) == 0
    assert rows.table() == ""
    with pytest.raises(ValueError, match="no total"):
        rows.total_average()
