"""The reports that speeds are measured on have a known truth, and the measuring runs."""

import gzip
import json
import sys

import pytest
from command import done
from real_parts import ROOT

import bridge

sys.path.insert(0, str(ROOT / "benchmarks"))

VARIANTS = [{}, {"per_call_text": True, "threads": 2, "processes": 2}]


@pytest.mark.slow
@pytest.mark.parametrize(
    "variant", VARIANTS, ids=["constant names", "per-call text, 2 x 2 threads"]
)
def test_each_op_owns_its_eighth(variant, tmp_path):
    from make_report import OPS, make

    path = tmp_path / "made.sqlite"
    kernels = make(path, 20_000, **variant)
    run = bridge.load(path)
    ops = run.by("op").set_index("op")
    assert [ops.loc[op, "kernels"] for op in OPS] == [kernels // 8] * 8
    assert [ops.loc[op, "calls"] for op in OPS] == [kernels // 8] * 8
    assert run.totals["unattributed"] == {}
    assert run.totals["activities"] == kernels
    layers = ops[ops.index.str.startswith("layer_")]
    assert layers["gpu_total_ns"].sum() == run.totals["gpu_ns"]
    assert layers["gpu_self_ns"].sum() == 0


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore:subprocess .* is still running:ResourceWarning")  # by wait4
def test_the_benchmark_prints_its_ratios(monkeypatch, capsys):
    """Commands of ours run in this process, for their start is most of them here; the others are measured."""
    import main_job

    measured = main_job.measured

    def run(words):
        if words[0] != main_job.BRIDGE:
            return measured(words)
        done(*words[1:])
        return 1.0, 1.0, 1e6

    monkeypatch.setattr(main_job, "measured", run)
    monkeypatch.setattr(sys, "argv", ["main_job.py", "--kernels", "4000", "--rounds", "1"])
    with pytest.raises(SystemExit) as ended:
        main_job.main()
    assert not ended.value.code
    printed = capsys.readouterr().out
    for command in (
        "bare column read",
        "report --by op-kernel",
        "import",
        "trace .json.gz",
        "trace .pftrace",
        "report from the store",
        "page",
        "advice",
    ):
        assert printed.count(f"| {command} |") == 2


def test_a_ratio_that_grew_is_said(tmp_path):
    import history

    file = tmp_path / "history.csv"
    history.record(file, 1000, {"import": (4.0, 1e9), "trace": (3.0, 1e9)}, "as it was")
    history.record(file, 1000, {"import": (2.0, 1e9)}, "faster")
    history.record(file, 1000, {"import": (1.9, 1e9)}, "on another machine")
    history.record(file, 9000, {"import": (9.0, 1e9)}, "of another size")
    assert file.read_text().splitlines()[0] == "date,kernels,job,ratio,peak_mb,what"
    before = history.newest(file, 1000)
    assert before == {"import": 2.0, "trace": 3.0}
    assert history.grown({"import": (2.5, 0), "trace": (3.7, 0)}, before) == []
    assert history.grown({"import": (2.51, 0)}, before) == [
        "import: 2.51 × the bare read, 2.00 × before"
    ]
    assert history.grown({"view": (1.0, 0)}, before) == ["view: not in the history; record it"]


def test_a_job_over_its_limit_is_measured_again(monkeypatch):
    """Before it fails: what else the machine does may have been at fault."""
    import history

    ratio = iter([1.0, 4.0, 1.0, 2.0])  # seconds of the bare read and of a job, in turn
    monkeypatch.setattr(
        history,
        "measured_jobs",
        lambda *_: [(job, (0.0, next(ratio), 1e6)) for job in (history.BARE, "import")],
    )
    found = history.measure(100, 1, lambda found: found["import"][0] <= 2)
    assert found == {"import": (2.0, 1e6)}


def test_every_job_has_a_history():
    from history import HISTORY, newest
    from main_job import TARGETS

    assert set(newest(HISTORY, 300_000)) == set(TARGETS)


# -- benchmarks/peers.py: what it reads of other tools, and its table

STATS = """\
Processing [x.sqlite] with [gpukernsum.py]...
Time (%),Total Time (ns),Instances,GridXYZ,Name
60.0,30,2, 1 1 1,gemm
40.0,20,1, 2 1 1,gemm

"""
PER_RANGE = """\
NVTX Range,Style,PID,TID,NVTX Inst,Kern Inst,Total Time:dur_ns,Kernel Name
fwd,PushPop,7,7,1,2,30,gemm
fwd,PushPop,7,8,1,1,20,gemm
,,7,7,0,1,5,gemm
phase,StartEnd,7,7,1,1,5,gemm
"""
SKILL = """[{"kernel_name": "gemm", "invocations": 3, "total_ms": 0.05}]"""
KERNEL_MAP = """[{"nvtx_path": "step > fwd", "kernel_name": "gemm"}, {"nvtx_path": "step", "kernel_name": "gemm"}]"""
TRACE = """[{"name": "gemm", "cat": "cuda", "dur": 0.05, "args": {"NVTXRegions": ["fwd", "fwd", null]}},
 {"name": "fwd", "cat": "nvtx-kernel", "dur": 1, "args": {}}]"""
HTA = "name,sum (us),mean (us)\ngemm,0.05,0.025\n"
PLUGIN = """a warning\n{"ops": {}, "kernels": {"gemm": [2, 0.05]}}\n"""


def test_the_output_of_every_tool_is_read():
    import peers

    assert peers.of_nsys_stats(peers.csv_in(STATS)) == {"gemm": (3, 50)}
    assert peers.of_nsys_stats(PER_RANGE) == {("fwd", "gemm"): (3, 50)}
    assert peers.of_nsys_ai(SKILL) == {"gemm": (3, 50_000)}
    assert peers.of_nsys_ai(KERNEL_MAP) == {("step", "gemm"): (2, None), ("fwd", "gemm"): (1, None)}
    assert peers.of_nsys2json(TRACE, peers.KERNELS) == {"gemm": (1, 50)}
    ranges = {("fwd", "gemm"): (1, 50), (None, "gemm"): (1, 50)}
    assert peers.of_nsys2json(TRACE, peers.PER_RANGE) == ranges
    assert peers.of_hta(HTA) == {"gemm": (2, 50)}
    assert peers.of_tensorboard(PLUGIN) == {"gemm": (2, 50)}


def test_the_table_says_what_agrees_and_what_did_not_run():
    import peers

    truth = peers.Truth()
    truth.kernels["short"] = {"gemm": (3, 50), "copy": (1, 7)}
    right = peers.Job("a", peers.KERNELS, [], lambda _: {"gemm": (3, 50), "copy": (1, 8)})
    right.used = [(2.0, 1.0, 90.0), (4.0, 1.5, 80.0), (3.0, 9.0, 85.0)]
    failed = peers.Job("b", peers.KERNELS, [], None, failure="out of memory")
    lines = list(peers.report_lines([right, failed], truth, {"c": "no such package"}))
    assert lines[2:] == [
        "| a | kernels | 3.0 | 1.5 | 85 | 2 of 2 | 1 of 2 |",
        "| b | kernels | failed: out of memory | | | | |",
        "not run: c: no such package",
    ]


def test_the_count_in_plain_loops_is_the_truth_of_a_made_report(tmp_path):
    import peers
    from make_report import OPS, make

    path = tmp_path / "made.sqlite"
    kernels = make(path, 768)
    truth = peers.truth_of(path)
    assert sum(count for count, _ in truth.kernels["short"].values()) == kernels
    for op in OPS:
        found = [count for (name, _), (count, _) in truth.per_range["full"].items() if name == op]
        assert sum(found) == kernels // 8
    assert (
        sum(n for (name, _), (n, _) in truth.per_range["short"].items() if name == "step 1") == 384
    )


def test_the_kernels_of_a_trace_are_counted_in_whole_ns(tmp_path):
    import peers

    events = [
        {"ph": "X", "cat": "Kernel", "name": "gemm", "dur": 4},
        {"ph": "X", "cat": "kernel", "name": "gemm", "dur": 0.003},
        {"ph": "X", "cat": "cpu_op", "name": "aten::mm", "dur": 9},
        {"ph": "i", "cat": "kernel", "name": "gemm"},
    ]
    path = tmp_path / "t.pt.trace.json.gz"
    path.write_bytes(gzip.compress(json.dumps({"traceEvents": events}).encode()))
    assert peers.truth_of_trace(path).kernels["full"] == {"gemm": (2, 4_003)}


def test_a_launch_belongs_to_the_ranges_open_at_its_begin():
    import peers

    ranges = [(1, 0, 10, "a"), (1, 2, 4, "b"), (2, 0, 99, "other"), (1, 4, 9, "c"), (1, 5, 5, "d")]
    found = peers.names_under(ranges, {(1, 2), (1, 4), (1, 10), (1, 5)})
    assert found == {(1, 2): {"a", "b"}, (1, 4): {"a", "c"}, (1, 5): {"a", "c"}, (1, 10): set()}


@pytest.mark.slow
def test_a_command_is_measured_on_a_copy_and_a_failure_is_said(tmp_path):
    import peers

    report = tmp_path / "report.sqlite"
    report.write_text("[]")
    spoil = "import sys; print(open(sys.argv[1]).read()); open(sys.argv[1], 'w')"
    good = peers.Job("a", peers.KERNELS, [sys.executable, "-c", spoil, "{report}"], None)
    bad = peers.Job("b", peers.KERNELS, [sys.executable, "-c", "raise SystemExit('no GPU')"], None)
    for job in (good, bad):
        peers.run(job, report, tmp_path)
    assert (good.text, good.failure, bad.failure) == ("[]\n", "", "no GPU")
    [(seconds, cpu, megabytes)] = good.used
    assert 0 < cpu < 5
    assert seconds > 0
    assert 3 < megabytes < 100
    assert report.read_text() == "[]"
