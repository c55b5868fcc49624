"""The reports that speeds are measured on have a known truth, and the measuring runs."""

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
    history.record(file, 9000, {"import": (9.0, 1e9)}, "of another size")
    assert file.read_text().splitlines()[0] == "date,kernels,job,ratio,peak_mb,what"
    before = history.newest(file, 1000)
    assert before == {"import": 2.0, "trace": 3.0}
    assert history.grown({"import": (2.3, 0), "trace": (3.4, 0)}, before) == []
    assert history.grown({"import": (2.31, 0)}, before) == [
        "import: 2.31 × the bare read, 2.00 × before"
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
