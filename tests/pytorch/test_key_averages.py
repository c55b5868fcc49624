"""`key_averages` beside PyTorch's own: of one run, and of real traces put together again as PyTorch's events."""

from __future__ import annotations

import re
from collections import Counter, defaultdict

import pytest
from small import from_torch, nn, torch
from torch.autograd import DeviceType
from torch.autograd.profiler_util import EventList, FunctionEvent
from torch.profiler import ProfilerActivity, profile, record_function, schedule
from torch.utils.checkpoint import checkpoint
from witness import kineto

import bridge

RECURSIVE = "outer"
pytestmark = from_torch(2, 13)


def trained(path, *, recursive=True, **options):
    """Train a little, and return the profiler and what is read of its trace."""
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(64, 128), nn.ReLU(), nn.Linear(128, 10))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)

    def step(number):
        with record_function(RECURSIVE):
            with record_function(RECURSIVE if recursive else "within"):
                x = torch.randn(8 * (number % 2 + 1), 64)
            with (
                record_function("forward"),
                record_function("forward"),
            ):  # one call, for PyTorch and for us
                y = model(x)
            loss = torch.cat([y, y]).sum()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()

    with profile(
        activities=[ProfilerActivity.CPU], record_shapes=True,
        schedule=schedule(wait=1, warmup=1, active=3, repeat=1), **options,
    ) as prof:  # fmt: skip
        for number in range(6):
            step(number)
            prof.step()
    prof.export_chrome_trace(str(path))
    return prof, bridge.load(path)


def keyed(rows, *extra):
    return {(row.key, *(str(getattr(row, name)) for name in extra)): row for row in rows}


def outermost(events) -> Counter[str]:
    """Add up calls that lie in no call of the same name: what `cpu_time_total` would be without counting twice."""
    total = Counter()
    for event in events:
        above = event.cpu_parent
        while above is not None and above.name != event.name:
            above = above.cpu_parent
        if above is None:
            total[event.name] += event.cpu_time_total
    return total


def close(ours: float, theirs: float) -> bool:
    return ours == pytest.approx(theirs, abs=1e-3)


@pytest.mark.slow
@pytest.mark.parametrize("suffix", [".json", ".json.gz"])
def test_every_row_is_pytorchs(tmp_path, suffix):
    prof, joined = trained(tmp_path / f"t{suffix}")
    theirs, ours = keyed(prof.key_averages()), keyed(joined.key_averages())
    assert ours.keys() == theirs.keys()
    once = outermost(prof.events())
    for key, row in theirs.items():
        assert ours[key].count == row.count, key
        assert close(ours[key].self_cpu_time_total, row.self_cpu_time_total), key
        assert close(ours[key].cpu_time_total, once[row.key]), key
        assert close(ours[key].cpu_time_total, row.cpu_time_total) == (row.key != RECURSIVE), key
        assert ours[key].device_time_total == row.device_time_total == 0
        assert ours[key].is_user_annotation == row.is_user_annotation
        assert str(ours[key].device_type) == str(row.device_type)
    assert ours["ProfilerStep*",].count == 3
    assert ours["forward",].count == 3  # not 6: one does nothing but call the other
    assert [row.key for row in joined.key_averages()] == [row.key for row in prof.key_averages()]
    assert close(joined.key_averages().self_cpu_time_total, prof.key_averages().self_cpu_time_total)


def test_rows_by_shape_are_pytorchs(tmp_path):
    prof, joined = trained(tmp_path / "t.json")
    theirs = keyed(prof.key_averages(group_by_input_shape=True), "input_shapes")
    ours = keyed(joined.key_averages(group_by_input_shape=True), "input_shapes")
    assert ours.keys() == theirs.keys()
    assert ("aten::mm", "[[10, 8], [8, 128]]") in ours or len(ours) > 60
    for key, row in theirs.items():
        assert ours[key].count == row.count
        assert close(ours[key].self_cpu_time_total, row.self_cpu_time_total)
        if key[0] != RECURSIVE:
            assert close(ours[key].cpu_time_total, row.cpu_time_total)


def checkpointed(reentrant):
    def program(x):
        part = nn.Sequential(nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 64))
        for _ in range(2):
            checkpoint(part, x, use_reentrant=reentrant).sum().backward()

    return program


def trained_plainly(x):
    model = nn.Sequential(nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 8))
    for _ in range(2):
        model(x).sum().backward()


@pytest.mark.slow
@from_torch(2, 13, to=(2, 13))  # later ones leave functions of Python out of the table
@pytest.mark.parametrize("program", [trained_plainly, checkpointed(False), checkpointed(True)])
def test_every_row_with_python_functions_is_pytorchs(tmp_path, program):
    """Checkpointing runs Python within the ops of the backward pass, whose own time that is not."""
    x = torch.randn(16, 64, requires_grad=True)
    program(x)
    with profile(activities=[ProfilerActivity.CPU], with_stack=True) as prof:
        program(x)
    prof.export_chrome_trace(str(tmp_path / "t.json"))
    theirs, ours = prof.key_averages(), keyed(bridge.load(tmp_path / "t.json").key_averages())
    assert ours.keys() == keyed(theirs).keys()
    once = outermost(prof.events())
    for row in theirs:
        mine = ours[row.key,]
        assert mine.count == row.count, row.key
        assert close(mine.self_cpu_time_total, row.self_cpu_time_total), row.key
        assert close(mine.cpu_time_total, once[row.key]), row.key


@pytest.mark.slow
def test_rows_by_stack_are_pytorchs(tmp_path):
    """But for what the engine itself does: PyTorch says that the engine was called, ours which forward op it is about."""
    config = torch._C._profiler._ExperimentalConfig(verbose=True)
    prof, joined = trained(tmp_path / "t.json", with_stack=True, experimental_config=config)
    ours = joined.key_averages(group_by_stack_n=3)
    mine, theirs = Counter(), Counter()
    for row in ours:
        mine[row.key, tuple(row.stack)] += row.count
    for row in prof.key_averages(group_by_stack_n=3):
        if not row.key.startswith(("nn.Module", "<built-in")) and "(" not in row.key:
            theirs[row.key, tuple(row.stack)] += row.count
    ops = {
        key: n
        for key, n in theirs.items()
        if key[0].startswith("aten::") and key[1] and "run_backward" not in key[1][0]
    }
    assert len(ops) > 20
    assert {key: mine[key] for key in ops} == ops
    assert "Source Location" in ours.table()
    assert any("trained" in entry or "step" in entry for row in ours for entry in row.stack)


def tokens(line: str) -> list[str]:
    return re.split(r"\s{2,}", line.strip())


def alike(ours: str, theirs: str) -> bool:
    """Tell whether two cells are the same, numbers to their last digit but one: PyTorch adds floats, we integers."""
    number = re.compile(r"(.*?)(-?\d+\.\d+)(\D*)")
    mine, other = number.fullmatch(ours), number.fullmatch(theirs)
    if not (mine and other):
        return ours == theirs
    same_words = (mine[1], mine[3]) == (other[1], other[3])
    return same_words and float(mine[2]) == pytest.approx(float(other[2]), abs=0.0101)


@pytest.mark.slow
@pytest.mark.parametrize(
    "how",
    [
        {}, {"sort_by": "self_cpu_time_total", "row_limit": 7}, {"sort_by": "count", "row_limit": -1}, {"time_unit": "ms"},
        {"header": "A heading"}, {"max_name_column_width": 20}, {"max_name_column_width": None},
    ],
)  # fmt: skip
@pytest.mark.parametrize("shapes", [False, True])
def test_the_table_is_pytorchs(tmp_path, how, shapes):
    prof, joined = trained(tmp_path / "t.json", recursive=False)
    theirs = prof.key_averages(group_by_input_shape=shapes).table(**how).splitlines()
    ours = joined.key_averages(group_by_input_shape=shapes).table(**how).splitlines()
    assert len(ours) == len(theirs)
    if how.get("sort_by") == "self_cpu_time_total":
        assert [tokens(line)[0] for line in ours] == [tokens(line)[0] for line in theirs]
    for mine, line in zip(ours, theirs, strict=True):
        assert len(mine) == len(line)
        for cell, other in zip(tokens(mine), tokens(line), strict=True):
            assert alike(cell, other), (mine, line)


def test_only_the_outermost(tmp_path):
    prof, joined = trained(tmp_path / "t.json")
    theirs = prof.key_averages().table(top_level_events_only=True).splitlines()
    ours = joined.key_averages().table(top_level_events_only=True).splitlines()
    assert ours[:2] == theirs[:2]
    assert [tokens(line)[0] for line in ours[3:]] == [tokens(line)[0] for line in theirs[3:]]


def test_rows_have_pytorchs_names(tmp_path):
    prof, joined = trained(tmp_path / "t.json")
    theirs, ours = prof.key_averages(), joined.key_averages()
    missing = {n for n in dir(theirs[0]) if not n.startswith("_") and not hasattr(ours[0], n)}
    assert missing <= {"add"}
    for name in ("cpu_time_str", "self_cpu_time_total_str", "device_time_total_str"):
        assert alike(getattr(ours[0], name), getattr(theirs[0], name))
    assert ours[0].cuda_time_total == ours[0].device_time_total == 0
    with pytest.raises(AttributeError, match="nonsense"):
        _ = ours[0].nonsense
    assert {n for n in ("table", "total_average", "self_cpu_time_total") if hasattr(ours, n)} == {
        "table", "total_average", "self_cpu_time_total"
    }  # fmt: skip


# -- device times, of real traces


def as_pytorch_has_them(events) -> EventList:
    """Put a trace together as PyTorch's own events, kernels with the innermost op around their call."""
    found = EventList(use_device="cuda")
    of_event, host = {}, kineto.of(events, kineto.RANGES + kineto.CALLS)
    first = min(
        kineto.ns(event["ts"]) for event in host
    )  # of times of today floats lose the nanoseconds
    for number, event in enumerate(host):
        start = kineto.ns(event["ts"]) - first
        end = start + kineto.ns(event["dur"])
        name = "ProfilerStep*" if event["name"].startswith("ProfilerStep#") else event["name"]
        of_event[id(event)] = FunctionEvent(
            number, name, int(event["tid"]), start / 1000, end / 1000, use_device="cuda", stack=[], overload_name="",
            is_user_annotation=event["cat"] == "user_annotation",
        )  # fmt: skip
    around = kineto.stacks(events)
    found.extend(of_event.values())
    for event in kineto.of(events, kineto.KERNELS + kineto.COPIES + kineto.FILLS):
        length = kineto.ns(event["dur"]) / 1000
        kernel = FunctionEvent(
            0,
            event["name"],
            7,
            0,
            length,
            use_device="cuda",
            device_type=DeviceType.CUDA,
            stack=[],
            overload_name="",
        )
        found.append(kernel)
        if stack := around.get(event["args"]["correlation"]):
            of_event[id(stack[-1])].append_kernel(event["name"], 0, length)
    found._build_tree()
    return found


def crossing(events) -> set[str]:
    """Name what overlaps others in part, and what that lies in: PyTorch makes no tree of it."""
    names = set()
    threads = defaultdict(list)
    for event in kineto.of(events, kineto.RANGES + kineto.CALLS):
        start = kineto.ns(event["ts"])
        threads[int(event["tid"])].append((start, -start - kineto.ns(event["dur"]), event["name"]))
    for every in threads.values():
        stack = []
        for start, end, name in sorted(every, key=lambda one: one[:2]):
            stack = [one for one in stack if one[0] > start]
            if any(one[0] < -end for one in stack):
                names |= {name, *(one[1] for one in stack)}
            stack.append((-end, name))
    return {"ProfilerStep*" if name.startswith("ProfilerStep#") else name for name in names}


def recursive(events: EventList) -> set[str]:
    return {name for name, total in outermost(events).items()
            if not close(total, sum(e.cpu_time_total for e in events if e.name == name))}  # fmt: skip


@pytest.mark.slow
@pytest.mark.parametrize("name", kineto.SOME)
def test_device_times_of_real_traces_are_pytorchs(name, corpus):
    read = kineto.events(kineto.path(corpus, name))
    events = as_pytorch_has_them(read)
    theirs = {(r.key, str(r.device_type), r.is_user_annotation): r for r in events.key_averages()}
    joined = bridge.load(kineto.path(corpus, name)).key_averages()
    ours = {(row.key, str(row.device_type), row.is_user_annotation): row for row in joined}
    hidden = {"aten::is_leaf", "aten::output_nr", "aten::_version"}
    assert ours.keys() == {key for key in theirs if key[0] not in hidden}
    apart, twice = crossing(read), recursive(events)
    compared = Counter()
    for key, row in ours.items():
        other = theirs[key]
        assert close(row.self_device_time_total, other.self_device_time_total), key
        if key[0] in apart | twice:
            compared["not"] += 1
            continue
        compared["whole"] += 1
        assert row.count == other.count, key
        assert close(row.device_time_total, other.device_time_total), key
        assert close(row.cpu_time_total, other.cpu_time_total), key
        assert close(row.self_cpu_time_total, other.self_cpu_time_total), key
    assert compared["whole"] > 5 * compared["not"]
    footer = [line for line in joined.table().splitlines() if "time total:" in line]
    theirs_footer = [line for line in events.key_averages().table().splitlines() if "time total:" in line]  # fmt: skip
    assert footer[1] == theirs_footer[1]


def test_a_total_counts_what_ran_once(corpus):
    """PyTorch adds up ops, what they contain, and kernels."""
    read = kineto.events(kineto.path(corpus, "gpu-user-annotation"))
    work = kineto.of(read, kineto.KERNELS + kineto.COPIES + kineto.FILLS)
    ran = sum(kineto.ns(e["dur"]) for e in work) / 1000
    ours = bridge.load(kineto.path(corpus, "gpu-user-annotation")).key_averages().total_average()
    theirs = as_pytorch_has_them(read).key_averages().total_average()
    assert ours.key == theirs.key == "Total"
    assert close(ours.device_time_total, ran)
    assert theirs.device_time_total > 2 * ran
