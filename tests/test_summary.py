"""`bridge summary` and the lines that a report begins with, against loops over single rows."""

from __future__ import annotations

import itertools
import json
import re
from pathlib import Path
from statistics import median

import made_reports
import pytest
from command import bridge, done, table_in, unwarned
from witness.attribution import union

from bridge.analyze.checks.summary import Iteration, Summary
from bridge.analyze.core.devices import Devices
from bridge.analyze.run.account import IDLE, STATES, GpuAccount, Run, Span
from bridge.analyze.run.gpu_use import IdleCause, Use
from bridge.render import summary as texts
from bridge.report import load


def account(name: str, busy: int, length: int) -> GpuAccount:
    """Return the account of a GPU that computes for some time of a run."""
    return GpuAccount(
        name, dict.fromkeys(STATES, 0) | {"compute": busy, IDLE: length - busy}, length
    )


def run_of(length: int, *gpus: GpuAccount, part: Span | None = None) -> Run:
    whole = Span(1_000, 1_000 + length)
    return Run(whole, part or whole, gpus)


def one_gpu(busy: int, length: int, *idle: IdleCause) -> Use:
    return Use((run_of(length, account("GPU 0 A100", busy, length)),), idle)


# -- sentences


def test_the_headline_names_share_cause_and_command():
    use = one_gpu(340, 10_000, IdleCause("data loading", "", 6_000), IdleCause("op", "mm", 3_660))
    assert texts.headline(use, ranges=5) == [
        (
            "GPU 0 A100: busy 3.4 % of the run, 10.000 µs. Largest cause of idleness: data loading, 6.000 µs,"
            " 62.1 % of the idle time. → bridge advise REPORT"
        )
    ]


def test_the_headline_of_a_part_says_how_long_it_is_and_of_what():
    part = Span(3_000, 7_000)
    use = Use((run_of(10_000, account("GPU 0 A100", 3_900, part.length), part=part),))
    [line] = texts.headline(use, ranges=5)
    assert line.startswith("GPU 0 A100: busy 97.5 % of 4.000 µs selected of the run, 10.000 µs. →")


def test_a_cause_is_that_of_all_ops_and_names_the_largest():
    use = one_gpu(
        1_000,
        10_000,
        IdleCause("host code", "a", 3_000),
        IdleCause("data loading", "", 3_500),
        IdleCause("host code", "b", 2_500),
    )
    assert use.causes == (IdleCause("host code", "a", 5_500), IdleCause("data loading", "", 3_500))
    assert "host code (mainly in a), 5.500 µs, 61.1 % of the idle time" in texts.headline(use, 1)[0]


def host_code(*parts):
    return one_gpu(100, 1_000, *(IdleCause("host code", op, ns) for op, ns in parts))


IO = [(f"IO {n}", 100) for n in range(20)]


@pytest.mark.parametrize(
    ("parts", "place"),
    [
        ([("a", 50), ("b", 30), ("c", 20)], "a"),  # half is enough
        ([("a", 49), ("b", 31), ("c", 20)], None),
        ([("", 80), ("a", 20)], None),  # mostly in no op
        ([*IO, ("load", 1_500)], "IO *"),
        ([*IO, ("load", 2_500)], "load"),
        ([("IO 190", 40), *((f"op {chr(97 + n)}", 30) for n in range(20))], None),
    ],
)
def test_an_op_is_named_if_it_has_half_of_the_time_of_the_cause(parts, place):
    use = host_code(*parts)
    [line] = texts.headline(use, 1)
    assert re.findall(r"host code( \(mainly in (.*?)\))?,", line)[0][1] == (place or "")
    assert use.causes[0].op == max(parts, key=lambda part: part[1])[0]


def test_the_place_of_a_cause_is_kept_with_a_stored_summary():
    made = Summary(host_code(*IO, ("load", 1_500)), (), (), 0, 1, None)
    kept = Summary.from_dict(json.loads(json.dumps(made.as_dict())))
    assert texts.use_lines(kept.use) == texts.use_lines(made.use)
    assert "(mainly in IO *)" in texts.use_lines(kept.use)[0]
    assert "main_ops" not in json.dumps(kept.as_dict()["use"]["idle"])
    older = made.as_dict()
    del older["use"]["main_ops"]
    assert "mainly" not in texts.use_lines(Summary.from_dict(older).use)[0]


@pytest.mark.parametrize(
    ("use", "ranges", "command"),
    [
        (one_gpu(9_900, 10_000), 5, "→ bridge report REPORT --by kernel"),
        (
            one_gpu(100, 10_000),
            0,
            "→ bridge run --auto train.py (to record ops; this report has no NVTX ranges)",
        ),
        (one_gpu(100, 10_000), 5, "→ bridge advise REPORT"),
    ],
)
def test_the_command_fits_the_report(use, ranges, command):
    assert texts.headline(use, ranges)[-1].endswith(command)


@pytest.mark.parametrize(
    ("pids", "expected"),
    [
        ((7, 8), "Iterations of 2 processes: 2.000 µs to 3.000 µs. Process 8: 3.000 µs"),
        ((7, 7), "Iterations of 2 captures: 2.000 µs to 3.000 µs. The longest: 3.000 µs"),
    ],
)
def test_captures_of_one_process_are_no_processes(pids, expected):
    times = zip(pids, (2_000, 3_000), strict=True)
    iterations = tuple(Iteration(pid, 3, ns, ns, 0, 0) for pid, ns in times)
    line = texts.lines(Summary(Use(), iterations, (), 0, 1, None))[0]
    assert line.startswith(expected)


def test_many_gpus_are_one_line():
    use = Use((run_of(100, *(account(f"GPU {n}", 10 * n, 100) for n in range(1, 10))),))
    assert texts.use_lines(use) == ["9 GPUs: busy 10.0 % (GPU 1) to 90.0 % of the run, 100 ns."]
    runs = [run_of(100, account(f"GPU {n}", 10 * n, 100)) for n in range(1, 10)]
    assert texts.use_lines(Use(tuple(runs))) == [
        "9 GPUs: busy 10.0 % (GPU 1) to 90.0 % of their runs."
    ]


def test_nothing_is_said_of_a_report_without_gpu_work():
    assert texts.headline(Use(), 3) == []


def test_uses_of_several_reports_add_up():
    first = one_gpu(5, 10, IdleCause("op", "a", 2), IdleCause("op", "b", 3))
    second = one_gpu(1, 10, IdleCause("op", "b", 9))
    merged = Use.merged([first, second], ["x.sqlite", "y.sqlite"])
    assert [gpu.device for gpu in merged.gpus] == [
        "GPU 0 A100 in x.sqlite",
        "GPU 0 A100 in y.sqlite",
    ]
    assert merged.causes == (IdleCause("op", "b", 14),)
    assert Use.from_dict(json.loads(json.dumps(merged.as_dict()))) == merged


# -- real reports

REAL = ("mnist-training", "cloverleaf-no-nvtx", "pytorch-2gpu-before", "cupy-power-iteration")


@pytest.mark.slow
@pytest.mark.parametrize("name", REAL)
def test_the_use_of_each_gpu_is_that_of_a_loop(corpus, name):
    report = load(corpus / "nsys" / f"{name}.sqlite")
    work: dict[tuple[int, ...], list[tuple[int, int]]] = {}
    for row in report.capture.activities.to_dict("records"):
        key = (row["report"], row["device"])
        work.setdefault(key, []).append((row["start"], max(row["start"], row["end"])))
    truth = {
        (union(spans), max(end for _, end in spans) - min(start for start, _ in spans))
        for spans in work.values()
    }
    use = report.use
    assert {(gpu.busy_ns, gpu.span_ns) for gpu in use.gpus} == truth
    assert sum(cause.idle_ns for cause in use.causes) == use.idle_ns


def test_a_gpu_that_runs_work_of_another_step_is_neither_idle_nor_busy(tmp_path: Path):
    """The part of the run is the hull of the steps and of their work; work of other steps is `elsewhere`."""
    part = load(made_reports.report(tmp_path / "r.sqlite", steps=6)).within(steps=(2, 3)).attributed
    gpus = Devices.of_report(part).gpu
    times = list(zip(gpus, part.capture.activities["start"], part.end, strict=True))
    steps = [
        (row["start"], row["end"])
        for row, listed in zip(
            part.capture.ranges.to_dict("records"), part.counted_ranges, strict=True
        )
        if listed and row["name"] == "step"
    ]
    own_work = [
        (start, end) for (_, start, end), own in zip(times, part.counted, strict=True) if own
    ]
    hull = min(s for s, _ in (*steps, *own_work)), max(e for _, e in (*steps, *own_work))
    use = Use.of(part)
    assert [run.part for run in use.runs] == [hull]
    devices = sorted({device for (device, *_), own in zip(times, part.counted, strict=True) if own})
    assert len(devices) == len(use.gpus)
    for device, gpu in zip(devices, use.gpus, strict=True):
        spans = [(start, end) for d, start, end in times if d == device]
        own = [
            (start, end)
            for (d, start, end), counted in zip(times, part.counted, strict=True)
            if d == device and counted
        ]
        inside = [
            (max(start, hull[0]), min(end, hull[1]))
            for start, end in spans
            if end > hull[0] and start < hull[1]
        ]
        assert gpu.busy_ns == union(own)
        assert gpu.states["elsewhere"] == union(inside) - union(own)
        assert gpu.idle_ns == hull[1] - hull[0] - union(inside)
        assert gpu.span_ns == max(end for _, end in own) - min(start for start, _ in own)


def test_the_headline_counts_causes_as_the_table_does(tmp_path: Path):
    whole = load(made_reports.report(tmp_path / "r.sqlite", steps=6))
    for part in (whole, whole.within(steps=(2, 3))):
        causes = {cause.cause: cause.idle_ns for cause in part.use.causes}
        table = part.by("idle").groupby("cause")["total_ns"].sum()
        assert causes == table.to_dict()
        assert part.use.idle_ns == table.sum()


@pytest.mark.slow
def test_mnist_waits_for_data(corpus):
    path = corpus / "nsys" / "mnist-training.sqlite"
    said = done("report", path)
    assert " ".join(said.split()).startswith(
        # 419.596 ms of work in 15 375.231 ms; 8.450 s of loading between work, and before it 2.825 s: the range
        # `Data loading` of the thread that launches the first work
        "GPU 0 NVIDIA A100-SXM4-80GB: busy 2.7 % of the run, 15.375 s. Largest cause of idleness:"
        f" data loading, 11.275 s, 75.4 % of the idle time. → bridge advise {path}"
    )
    said = " ".join(done("summary", path).split())
    assert (
        "Iteration, median: 153.393 ms (8.316 ms in the step, 144.904 ms between steps, of which 144.862 ms"
        " data loading)."
    ) in said
    assert (
        "Most GPU time: aten::convolution_backward 30.7 %, aten::cudnn_convolution 11.1 %," in said
    )
    assert "Training waits for data: a thread loads data for 11.300 s" in said
    starts = sorted(
        row["start"]
        for row in load(path).capture.ranges.to_dict("records")
        if row["name"].startswith("Batch ")
    )
    # The first one is warm-up.
    truth = median(later - before for before, later in itertools.pairwise(starts[1:]))
    [iteration] = load(path).summary.iterations
    assert iteration.iteration_ns == truth


@pytest.mark.slow
def test_steps_that_follow_each_other_have_no_time_between_them(corpus):
    path = corpus / "nsys" / "transformer-annotated.sqlite"
    assert load(path).by("step")["between_ns"].eq(0).all()
    [iteration] = load(path).summary.iterations
    assert iteration.between_ns == 0
    assert "between steps" not in done("summary", path)


@pytest.mark.slow
@pytest.mark.parametrize("name", ["mnist-training", "transformer-annotated", "pytorch-2gpu-before"])
def test_a_large_part_without_an_op_is_stated(corpus, name):
    report = load(corpus / "nsys" / f"{name}.sqlite")
    share = 1 - report.totals["attributed_ns"] / report.totals["gpu_ns"]
    lines = " ".join(texts.lines(report.summary))
    assert ("of the GPU time is in no op" in lines) == (share >= 0.1)


@pytest.mark.slow
def test_a_report_without_ranges_shows_its_kernels(corpus):
    path = corpus / "nsys" / "cloverleaf-no-nvtx.sqlite"
    result = bridge("report", path)
    assert "bridge run --auto train.py" in " ".join(result.stdout.split())
    assert table_in(result.stdout)[0].split()[0] == "kernel"
    assert json.loads(done("report", path, "--format", "json"))["by"] == "kernel"
    assert table_in(done("report", path, "--by", "device"))[0].split()[0] == "device"
    asked = done("report", path, "--by", "op")
    assert "no NVTX ranges" in asked


@pytest.mark.slow
def test_an_import_and_the_run_print_the_summary(corpus, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    path = corpus / "nsys" / "mnist-training.sqlite"
    first = done("import", path)
    said = first.replace("bridge advise", f"bridge advise {path}")
    said = said.replace("bridge report", f"bridge report {path}")
    assert done("summary", path).split() == said.split()
    assert done("import", path) == first  # from the store, unread
    said = first
    assert done("summary") == said
    shown = done("runs", "show", "1")
    assert shown.splitlines()[1:][: len(said.splitlines())] == said.splitlines()
    result = bridge("import", corpus / "nsys" / "cloverleaf-no-nvtx.sqlite")
    assert "next: bridge report --by kernel, or bridge trace" in unwarned(result.stderr)


@pytest.mark.slow
@pytest.mark.parametrize("name", REAL)
def test_json_has_the_same_figures(corpus, name):
    path = corpus / "nsys" / f"{name}.sqlite"
    told, report = json.loads(done("summary", path, "--format", "json")), load(path)
    assert told["format"] == "bridge.summary/1"
    assert told["idle_ns"] == report.use.idle_ns
    assert [gpu["busy_share"] for gpu in told["gpus"]] == [gpu.share for gpu in report.use.gpus]
    assert len(told["rows"]) == min(10, len(report.by("op-kernel" if report.ranges else "kernel")))
    summary = report.summary
    kept = Summary.from_dict(json.loads(json.dumps(summary.as_dict())))
    assert kept.as_dict() == summary.as_dict()
    assert texts.lines(kept) == texts.lines(summary)


@pytest.mark.slow
def test_reports_of_workers_begin_with_the_same_lines(tmp_path):
    paths = [made_reports.small(tmp_path / f"{name}.sqlite") for name in "ab"]
    alone = done("report", *paths, "--by", "op")
    assert done("report", *paths, "--by", "op", "--workers", "2") == alone
    assert alone.startswith("GPU 0")


def test_a_summary_of_a_report_of_ranges_alone(tmp_path: Path):
    path = made_reports.report(tmp_path / "cpu.sqlite", without="kernels copies fills graphs")
    said = done("summary", path)
    assert "busy" not in said
    assert table_in(said)[0].split()[0] == "op"
