"""Overloads, strides, call stacks and process groups: recorded, read from PyTorch's traces, grouped."""

from __future__ import annotations

import json

import pytest
from made_reports import Made, thread
from small import from_torch, nn, torch
from torch.profiler import ProfilerActivity, profile

import bridge
import bridge.torch

PUSH_POP = 59
THIS = "test_torch_described.py"


def by(session, view, *columns):
    table = session.by(view)
    return [tuple(row) for row in table[[*view.split(","), *columns]].to_numpy().tolist()]


# -- overloads


def add(x):
    return (x + 1) + x.to(torch.float64).sum(dim=0)


@from_torch(2, 7)
def test_overloads_are_those_of_pytorch(tmp_path):
    x = torch.ones(2, 3)
    config = torch._C._profiler._ExperimentalConfig(capture_overload_names=True)
    with profile(activities=[ProfilerActivity.CPU], experimental_config=config) as theirs:
        add(x)
    with bridge.profile(level=0) as session, bridge.torch.ops(shapes=True):
        add(x)
    theirs.export_chrome_trace(str(tmp_path / "t.json"))
    ops = {"aten::add", "aten::sum"}  # PyTorch sees copies within other ops, too
    expected = {
        (row.key, row.overload_name): row.count
        for row in theirs.key_averages(group_by_overload_name=True)
    }
    ours = bridge.load(tmp_path / "t.json").key_averages(group_by_overload_name=True)
    assert {(row.key, row.overload_name): row.count for row in ours} == expected
    assert "Overload Name" in ours.table()
    recorded = {
        (op, overload): calls for op, overload, calls in by(session, "op,overload", "calls")
    }
    assert {key: n for key, n in recorded.items() if key[0] in ops} == {
        key: n for key, n in expected.items() if key[0] in ops
    }
    assert recorded["aten::add", "Tensor"] == 2
    assert recorded["aten::sum", "dim_IntList"] == 1
    names = {row.key for row in bridge.load(tmp_path / "t.json").key_averages()}
    assert not any("." in name for name in names)


# -- strides


def test_strides_are_those_of_pytorch(tmp_path):
    a, b = torch.ones(3, 2).t(), torch.ones(3, 4)
    with profile(activities=[ProfilerActivity.CPU], record_shapes=True) as theirs:
        torch.mm(a, b)
    with bridge.profile(level=0) as session, bridge.torch.ops(strides=True):
        torch.mm(a, b)
    theirs.export_chrome_trace(str(tmp_path / "t.json"))
    report = bridge.load(tmp_path / "t.json")
    expected = ("aten::mm", "[[1, 2], [4, 1]]", 1)
    assert expected in by(session, "op,strides", "calls")
    assert expected in by(report, "op,strides", "calls")
    rows = report.by("range", arguments=True).set_index("name")
    assert json.loads(rows.loc["aten::mm", "strides"]) == [[1, 2], [4, 1]]


def test_strides_of_lists_and_of_what_has_none():
    tensors = [torch.ones(2, 3).t(), torch.ones(2)]
    sparse = torch.eye(2).to_sparse()
    with bridge.profile(level=0) as session:
        bridge.nvtx_op("f", shapes=True, strides=True)(lambda *_: None)(tensors, 3, sparse, [1, 2])
    row = session.by("range", arguments=True).iloc[0]
    assert row["strides"] == "[[1, 3], [1], null, null, null]"
    assert len(json.loads(row["shapes"])) == len(json.loads(row["strides"]))


def test_values_of_arguments_are_read(tmp_path):
    with profile(activities=[ProfilerActivity.CPU], record_shapes=True) as theirs:
        torch.ones(2, 3).transpose(0, 1)
    theirs.export_chrome_trace(str(tmp_path / "t.json"))
    rows = bridge.load(tmp_path / "t.json").by("range", arguments=True).set_index("name")
    assert json.loads(rows.loc["aten::transpose", "inputs"]) == ["", "0", "1"]


# -- call stacks


def inner(model, x):
    return model(x)


def outer(model, x):
    return inner(model, x)


@pytest.fixture(scope="module")
def stacked():
    model = nn.Sequential(nn.Linear(3, 4), nn.ReLU())
    with bridge.profile(ops=True, with_stack=3) as session:
        for _ in range(2):
            outer(model, torch.ones(2, 3))
    return session


def test_a_call_has_the_frames_of_the_program(stacked):
    (row,) = [row for row in by(stacked, "op,stack", "calls") if row[0] == "aten::addmm"]
    _, stack, calls = row
    frames = [frame.rpartition("/")[2] for frame in stack.split(" < ")]
    assert calls == 2
    assert [frame.partition("): ")[2] for frame in frames] == ["inner", "outer", "stacked"]
    assert all(frame.startswith(THIS) for frame in frames)


def test_averages_are_grouped_by_stack(stacked):
    rows = {row.key: row for row in stacked.report.key_averages(group_by_stack_n=2)}
    assert [entry.partition("): ")[2] for entry in rows["aten::linear"].stack] == ["inner", "outer"]
    assert "Source Location" in stacked.report.key_averages(group_by_stack_n=2).table()


def test_work_is_grouped_by_the_line_that_a_stack_names(tmp_path):
    made = Made()
    stack = json.dumps({"stack": ["/me/train.py(12): step", "/me/train.py(40): main"]})
    made.annotation(PUSH_POP, 10, 90, text="aten::mm", json=stack, thread=thread(7))
    made.annotation(PUSH_POP, 110, 190, text="aten::mm", thread=thread(7))
    made.kernel("k", 20, 7, 300, 310)
    made.kernel("k", 120, 7, 400, 405)
    report = bridge.load(made.written(tmp_path / "r.sqlite"))
    table = report.by("source").set_index("source")["gpu_ns"]
    assert table["/me/train.py:12"] == 10
    assert table["(no call stack)"] == 5


@pytest.mark.parametrize("stacks", [0, False])
def test_without_stacks_there_are_none(stacks):
    with bridge.profile(level=0) as session, bridge.torch.ops(stacks=stacks):
        torch.ones(2)
    assert set(session.report.capture.ranges.json) == {""}


# -- process groups


@pytest.fixture
def group(tmp_path):
    distributed = torch.distributed
    store = distributed.FileStore(str(tmp_path / "store"), 1)
    distributed.init_process_group("gloo", rank=0, world_size=1, store=store)
    distributed.new_group([0])
    yield
    distributed.destroy_process_group()


@pytest.mark.slow
def test_process_groups_are_those_of_pytorchs_trace(group, tmp_path):
    with profile(activities=[ProfilerActivity.CPU]) as theirs:
        torch.ones(2).add(1)
    with bridge.profile(ops=True) as session:
        torch.ones(2).add(1)
    theirs.export_chrome_trace(str(tmp_path / "theirs.json"))
    expected = json.loads((tmp_path / "theirs.json").read_text())["distributedInfo"]
    assert len(expected["pg_config"]) == 2
    for report in (session.report, bridge.load(tmp_path / "theirs.json")):
        assert report.capture.facts[0].metadata["distributed"] == expected
        path = tmp_path / "again.json"
        report.export_trace(path, dialect="torch", force=True)
        assert json.loads(path.read_text())["distributedInfo"] == expected


def test_without_groups_nothing_is_told():
    with bridge.profile(ops=True) as session:
        torch.ones(2)
    assert "distributed" not in session.report.capture.facts[0].metadata


# -- kinds of activity


@pytest.mark.parametrize("cpu", ["CPU", "cpu", ProfilerActivity.CPU])
def test_a_session_switches_the_host_off_and_on(cpu):
    with bridge.profile(ops=True) as session:
        torch.ones(2).add(1)
        session.toggle_collection_dynamic(False, [cpu])
        torch.ones(2).mul(2)
        session.toggle_collection_dynamic(True, [cpu])
        torch.ones(2).sub(2)
    ops = set(session.by("op")["op"])
    assert {"aten::add", "aten::sub"} <= ops
    assert "aten::mul" not in ops


def test_a_session_switches_the_capture_off_and_on(tool):
    with bridge.profile(level=0, capture="nvtx") as session:
        session.toggle_collection_dynamic(False, ["CUDA"])
        session.toggle_collection_dynamic(False, ["CUDA"])
        session.toggle_collection_dynamic(True, [ProfilerActivity.CUDA])
    assert tool.phases_ended == ["capture", "capture"]
    session.toggle_collection_dynamic(True, ["CUDA"])  # after the end nothing begins
    assert not tool.phases


def test_another_kind_is_refused():
    with (
        bridge.profile(ops=True) as session,
        pytest.raises(ValueError, match="'CPU' and 'CUDA', not 'XPU'"),
    ):
        session.toggle_collection_dynamic(False, ["xpu"])
