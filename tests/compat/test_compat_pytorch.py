"""Beside the real PyTorch profiler: the same names, counts, columns, keys and schedules, as far as can be."""

from __future__ import annotations

from collections import Counter

import pytest
from paired import read

nn = pytest.importorskip("torch.nn", reason="PyTorch is not installed")

import torch  # noqa: E402

from bridge.compat import torch_profiler as ours  # noqa: E402

theirs = torch.profiler
# Of ops that PyTorch runs within others the dispatcher hands on none; of a detach it hands on more.
WITHIN, MORE = {"aten::t", "aten::expand", "aten::sum"}, {"aten::detach"}


def trained(profiler, **options):
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(8, 16), nn.ReLU(), nn.Linear(16, 4))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    data = torch.randn(32, 8)

    def step():
        with profiler.record_function("forward"):
            loss = model(data).sum()
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()

    step()
    with profiler.profile(activities=[profiler.ProfilerActivity.CPU], **options) as prof:
        for _ in range(3):
            step()
            prof.step()
    return prof


def counts(prof) -> dict[str, int]:
    return {row.key: row.count for row in prof.key_averages()}


def given(shapes: list[list[int]]) -> list[list[int]]:
    """Leave out what has no shape at the end: arguments with their defaults, of which ours knows none."""
    while shapes and not shapes[-1]:
        shapes = shapes[:-1]
    return shapes


def heads(table: str) -> list[str]:
    return next(line for line in table.splitlines() if "# of Calls" in line).split()


def test_names_and_counts_are_pytorchs():
    mine, real = counts(trained(ours)), counts(trained(theirs))
    assert mine.keys() <= real.keys()
    assert {"forward", "aten::addmm", "aten::mm", "aten::relu", "aten::threshold_backward",
            "Optimizer.step#SGD.step", "Optimizer.zero_grad#SGD.zero_grad"} <= mine.keys()  # fmt: skip
    for name in mine.keys() - WITHIN - MORE:
        assert mine[name] == real[name], name
    assert all(mine[name] <= real[name] for name in WITHIN & mine.keys())
    assert real["aten::linear"] == 6
    assert "aten::linear" not in mine  # composite: what it consists of is seen


def test_shapes_and_flops_are_pytorchs():
    options = {"record_shapes": True, "with_flops": True}
    rows = [
        {
            (row.key, str(given(row.input_shapes))): (row.count, row.flops)
            for row in trained(profiler, **options).key_averages(group_by_input_shape=True)
            if row.key in {"aten::addmm", "aten::mm"}
        }
        for profiler in (ours, theirs)
    ]
    assert rows[0] == rows[1]
    assert Counter(name for name, _ in rows[0]) == {"aten::addmm": 2, "aten::mm": 3}


@pytest.mark.parametrize("shapes", [False, True])
def test_the_columns_are_pytorchs(shapes):
    tables = [
        trained(profiler, record_shapes=True)
        .key_averages(group_by_input_shape=shapes)
        .table(sort_by="self_cpu_time_total", row_limit=5, header="Title", time_unit="us")
        for profiler in (ours, theirs)
    ]
    assert heads(tables[0]) == heads(tables[1])
    assert len(tables[0].splitlines()) == len(tables[1].splitlines())
    marks = [[line[:1] for line in table.splitlines() if line[:1] in "=-T"] for table in tables]
    assert marks[0] == marks[1]


@pytest.mark.filterwarnings("ignore:Profiler won't be using warmup")
@pytest.mark.parametrize("skip_first_wait", [0, 1])
@pytest.mark.parametrize("repeat", [0, 2])
@pytest.mark.parametrize("wait", [0, 2])
def test_the_schedule_is_pytorchs(wait, repeat, skip_first_wait):
    numbers = {"wait": wait, "warmup": 1, "active": 2, "repeat": repeat, "skip_first": 1,
               "skip_first_wait": skip_first_wait}  # fmt: skip
    mine, real = ours.schedule(**numbers), theirs.schedule(**numbers)
    assert [mine(n).name for n in range(30)] == [real(n).name for n in range(30)]


def test_actions_and_activities_are_pytorchs():
    assert all(hasattr(theirs.ProfilerActivity, one.name) for one in ours.ProfilerActivity)
    for action in ours.ProfilerAction:
        assert theirs.ProfilerAction[action.name].value == action.value
    prof = trained(ours, schedule=theirs.schedule(wait=1, warmup=1, active=1))
    assert counts(prof)["ProfilerStep*"] == 1
    cpu = ours.profile(activities=[theirs.ProfilerActivity.CPU]).activities
    assert cpu == {ours.ProfilerActivity.CPU}


def test_steps_are_pytorchs():
    made = {"wait": 1, "warmup": 0, "active": 2, "repeat": 1}
    with pytest.warns(UserWarning, match="warmup"):
        real = counts(trained(theirs, schedule=theirs.schedule(**made)))
    mine = counts(trained(ours, schedule=ours.schedule(**made)))
    for name in ("ProfilerStep*", "forward", "aten::addmm"):
        assert mine[name] == real[name] > 0


def test_the_trace_has_the_keys_of_pytorchs(tmp_path):
    tops, args = [], []
    for profiler in (ours, theirs):
        path = tmp_path / f"{profiler.__name__}.json"
        trained(profiler, record_shapes=True).export_chrome_trace(str(path))
        content = read(path)
        tops.append(set(content))
        op = next(e for e in content["traceEvents"] if e.get("name") == "aten::addmm")
        assert (op["ph"], op["cat"]) == ("X", "cpu_op")
        args.append(op["args"])
    assert {"schemaVersion", "deviceProperties", "record_shapes", "traceEvents", "displayTimeUnit",
            "baseTimeNanoseconds", "traceName", "trace_id"} <= tops[0] & tops[1]  # fmt: skip
    assert given(args[0]["Input Dims"]) == given(args[1]["Input Dims"])
    assert set(args[0]) <= set(args[1])
