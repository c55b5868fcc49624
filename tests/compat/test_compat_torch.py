"""`bridge.compat.torch_profiler` is PyTorch's profiler: the same names, signatures, rows and files."""

from __future__ import annotations

import gzip
import inspect
import json
import re
import subprocess
import sys
from collections import Counter

import old_programs
import pytest

nn = pytest.importorskip("torch.nn", reason="PyTorch is not installed")

import torch  # noqa: E402

from bridge.annotate import emit, emitter  # noqa: E402
from bridge.compat import torch_profiler as ours  # noqa: E402
from bridge.importers.errors import ReportError  # noqa: E402

theirs = torch.profiler
CPU = [theirs.ProfilerActivity.CPU]
MODULES = [theirs, torch.autograd.profiler, torch.autograd.profiler_util]


@pytest.fixture(scope="module")
def step():
    """One step of the training of a small CNN, after a first one."""
    torch.manual_seed(0)
    model = nn.Sequential(
        nn.Conv2d(3, 4, 3, padding=1), nn.BatchNorm2d(4), nn.ReLU(), nn.Flatten(), nn.Linear(256, 5)
    )
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    images, labels = torch.randn(2, 3, 8, 8), torch.tensor([1, 2])

    def one() -> None:
        with ours.record_function("forward"):
            loss = nn.functional.cross_entropy(model(images), labels)
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()

    one()
    return one


def recorded(profiler, step, steps=2, **options):
    with profiler.profile(activities=CPU, **options) as prof:
        for _ in range(steps):
            step()
            prof.step()
    return prof


# -- names and signatures


@pytest.mark.parametrize("module", MODULES, ids=lambda module: module.__name__)
def test_every_public_name_is_here(module):
    names = {name for name in dir(module) if not name.startswith("__")}
    assert names <= set(dir(ours))
    for name in set(getattr(module, "__all__", ())) - {"profile"}:
        assert hasattr(ours, name)
    assert ours.record_function is theirs.record_function
    assert ours._ExperimentalConfig is torch._C._profiler._ExperimentalConfig
    with pytest.raises(AttributeError, match="no attribute 'nonsense'"):
        _ = ours.nonsense


def test_everything_of_profile_is_here_with_its_signature():
    mine, real = ours.profile, theirs.profile
    assert issubclass(mine, real)
    assert inspect.signature(mine) == inspect.signature(real)
    for name in dir(real):
        attribute = getattr(real, name)
        if inspect.isfunction(attribute) and not name.startswith("__"):
            assert inspect.signature(getattr(mine, name)) == inspect.signature(attribute), name


# -- beside the real one


OPTIONS = {
    "plain": {},
    "shapes": {"record_shapes": True, "with_flops": True},
    "memory": {"profile_memory": True, "record_shapes": True},
    "steps": {"schedule": theirs.schedule(wait=0, warmup=1, active=2, repeat=1)},
    "modules": {"with_modules": True},
}


def figures(prof, **how) -> list[tuple]:
    names = ("key", "count", "input_shapes", "flops", "cpu_memory_usage", "self_cpu_memory_usage")
    rows = prof.key_averages(**how)
    return sorted(tuple(str(getattr(row, name)) for name in names) for row in rows)


@pytest.mark.parametrize("options", OPTIONS.values(), ids=OPTIONS)
def test_names_counts_shapes_flops_and_memory_are_equal(step, options):
    mine, real = (recorded(profiler, step, 3, **options) for profiler in (ours, theirs))
    assert Counter(e.name for e in mine.events()) == Counter(e.name for e in real.events())
    for shapes in (False, True):
        how = {"group_by_input_shape": shapes}
        assert figures(mine, **how) == figures(real, **how)
    lines = [prof.key_averages().table(row_limit=-1).splitlines() for prof in (mine, real)]
    assert lines[0][1].split() == lines[1][1].split()  # the same columns
    assert len(lines[0]) == len(lines[1])
    assert type(mine.events()) is type(real.events())


def test_rows_by_overload_are_equal(step):
    config = ours._ExperimentalConfig(capture_overload_names=True)
    rows = []
    for profiler in (ours, theirs):
        averages = recorded(profiler, step, experimental_config=config).key_averages(
            group_by_overload_name=True
        )
        rows.append({(row.key, row.overload_name, row.count) for row in averages})
    assert rows[0] == rows[1]
    assert any(overload == "memory_format" for _, overload, _ in rows[0])


# -- the report of the same capture


def test_the_report_has_the_rows_of_the_table(step):
    prof = recorded(ours, step, record_shapes=True)
    mine = prof.by("op").set_index("op")
    counts = Counter(event.name for event in prof.events())
    # PyTorch counts an op that only calls the same op once, and hides six ops that do nothing.
    once = {"detach", "aten::detach"}
    for row in prof.key_averages():
        if row.key not in once:
            assert mine.loc[row.key, "calls"] == counts[row.key], row.key
    assert prof.report is prof.report
    for row in prof.report.key_averages():
        assert row.count <= counts[row.key]


def test_exports_repeat_and_the_report_reads_them(step, tmp_path):
    prof = recorded(ours, step, 1)
    paths = [tmp_path / name for name in ("a.json", "b.json", "c.json.gz")]
    for path in paths:
        prof.export_chrome_trace(str(path))
    texts = [paths[0].read_bytes(), paths[1].read_bytes(), gzip.decompress(paths[2].read_bytes())]
    assert len(set(texts)) == 1
    assert json.loads(texts[0])["traceName"] == str(paths[0])
    assert "aten::conv2d" in set(prof.by("op")["op"])


@pytest.mark.parametrize("flag", ["_use_cupti_monitor", "_use_cuspy"])  # of PyTorch 2.13, of 2.15
def test_pytorch_writes_the_trace_of_another_backend(step, tmp_path, monkeypatch, flag):
    prof = recorded(ours, step, 1)
    written = []
    monkeypatch.setattr(theirs.profile, "export_chrome_trace", lambda _, path: written.append(path))
    monkeypatch.delattr(prof, "_use_cupti_monitor", raising=False)
    monkeypatch.setattr(prof, flag, True, raising=False)
    paths = [str(tmp_path / name) for name in ("a.json", "b.json")]
    for path in paths:
        prof.export_chrome_trace(path)
    assert written == paths  # each by PyTorch: no copies


def test_a_trace_that_was_moved_is_missed_in_one_line(step, tmp_path):
    prof = recorded(ours, step, 1)
    prof.export_chrome_trace(str(tmp_path / "a.json"))
    (tmp_path / "a.json").rename(tmp_path / "b.json")
    with pytest.raises(ReportError, match=r"a\.json: moved or changed .* bridge\.load\(\)"):
        _ = prof.report


def test_a_report_needs_a_cycle():
    with pytest.raises(AssertionError, match="must have recorded a cycle"):
        _ = ours.profile(activities=CPU).report


@pytest.mark.filterwarnings("ignore:Warning. Profiler clears events")
def test_each_cycle_has_its_own_report(step):
    seen = []
    recorded(
        ours,
        step,
        6,
        schedule=ours.schedule(wait=1, warmup=1, active=1, repeat=2),
        on_trace_ready=lambda prof: seen.append(prof.by("step")),
    )
    assert [len(steps) for steps in seen] == [1, 1]


# -- under a tool


def test_under_a_tool_there_are_ranges(tool, step):
    options = {"schedule": ours.schedule(wait=1, warmup=1, active=1, repeat=1)}
    prof = recorded(ours, step, 4, with_modules=True, **options)
    names = tool.names()
    assert [name for name in names if name.startswith("ProfilerStep")] == ["ProfilerStep#2"]
    assert names.count("forward") == 1
    assert {"aten::convolution", "module:Sequential.0", "Optimizer.step#SGD.step"} <= set(names)
    assert ("ProfilerStep#2", "forward") in tool.parents("module:Sequential")
    counts = Counter(event.name for event in prof.events())
    assert counts["ProfilerStep*"] == counts["forward"] == 1
    assert tool.all_closed()


def test_without_cpu_activity_there_are_no_ranges(tool):
    with ours.profile(activities=CPU) as prof:
        torch.ones(2).add(1)
        prof.toggle_collection_dynamic(False, CPU)
        torch.ones(2).mul(2)
        prof.toggle_collection_dynamic(True, CPU)
        torch.ones(2).sub(2)
    assert [name for name in tool.names() if name in {"aten::add", "aten::mul", "aten::sub"}] == [
        "aten::add",
        "aten::sub",
    ]


def test_a_second_profiler_runs_beside_a_session(tool):
    import bridge

    with bridge.profile(ops=True), ours.profile(activities=CPU) as prof:
        torch.ones(2).add(1)
    assert "aten::add" in {event.name for event in prof.events()}
    assert tool.names().count("aten::add") == 1


def test_without_a_tool_nothing_is_changed():
    previous = emit.use(emitter.NullEmitter())
    with ours.profile(activities=CPU):
        enter = theirs.record_function.__enter__
        assert torch.utils._python_dispatch._get_current_dispatch_mode() is None
    emit.use(previous)
    assert theirs.record_function.__enter__ is enter


# -- programs


@pytest.mark.slow
def test_a_whole_program(tmp_path, trace_processor):
    from viewers.trace_processor import check_trace

    shown = old_programs.run(old_programs.TORCH, tmp_path, quiet=False)
    assert re.search(r"ProfilerStep\*.* 2 +$", shown, re.MULTILINE)
    assert re.search(r"forward.* 2 +$", shown, re.MULTILINE)
    first, second = sorted((tmp_path / "log").iterdir())
    assert re.fullmatch(r"me\.\d+\.pt\.trace\.json", first.name)
    for file, steps in ((first, (2, 3)), (second, (6, 7))):
        trace = trace_processor(file)
        check_trace(trace)
        found = trace.query("select name from slice where name glob 'ProfilerStep#*' order by ts")
        assert [row.name for row in found] == [f"ProfilerStep#{n}" for n in steps]


@pytest.mark.slow
def test_pytorch_is_missed_in_one_line():
    program = "import sys; sys.modules['torch'] = None; import bridge.compat.torch_profiler"
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=False
    )
    last = done.stderr.strip().splitlines()[-1]
    assert last.startswith(
        "ImportError: bridge.compat.torch_profiler needs PyTorch (pip install torch)"
    )
    assert "During handling" not in done.stderr
