"""`bridge summary` and the lines that a report begins with, against loops over single rows."""

from __future__ import annotations

import itertools
import json
import re
from dataclasses import replace
from pathlib import Path
from statistics import median

import made_reports
import pytest
from command import bridge, done, table_in, unwarned
from witness.attribution import union

from bridge.analyze.checks.summary import Iteration, Summary
from bridge.analyze.core.devices import Devices
from bridge.analyze.run.gpu_use import GpuUse, IdleCause, Use
from bridge.render import summary as texts
from bridge.report import load


def one_gpu(busy: int, span: int, *idle: IdleCause) -> Use:
    return Use((GpuUse("GPU 0 A100", busy, span),), idle)


# -- sentences


def test_the_headline_names_share_cause_and_command():
    use = one_gpu(340, 10_000, IdleCause("data loading", "", 6_000), IdleCause("op", "mm", 3_660))
    assert texts.headline(use, ranges=5) == [
        (
            "GPU 0 A100: busy 3.4 % of 10.000 µs. Largest cause of idleness: data loading, 6.000 µs,"
            " 62.1 % of the idle time. → bridge advise REPORT"
        )
    ]


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


def test_each_loop_has_a_line_and_many_have_one():
    """Loops, whatever the processes: one of several ranks is one."""
    loops = [
        Iteration(7, 3, ns, ns, 0, 0, loop=name)
        for name, ns in (("train", 2_000), ("val", 3_000), ("test", 1_000), ("more", 5_000))
    ]

    def lines(count):
        return texts.lines(Summary(Use(), tuple(loops[:count]), (), 0, 1, None))

    assert lines(1)[0] == "Iteration, median: 2.000 µs."
    assert lines(2)[:2] == [
        "Iteration of train, median: 2.000 µs.",
        "Iteration of val, median: 3.000 µs.",
    ]
    assert lines(4)[0] == "Iterations of 4 loops: 1.000 µs to 5.000 µs. The longest: 5.000 µs."


def test_what_repeats_instead_of_iterations_is_said():
    summary = Summary(Use(), (), (), 0, 1, None, no_iterations="what repeats: layers.*, 12 times")
    assert texts.lines(summary)[0] == "No iterations: what repeats: layers.*, 12 times."


def test_the_time_on_the_host_is_said_where_it_differs():
    one = Iteration(7, 3, 2_000, 2_000, 0, 0, host_ns=2_100)
    assert "host" not in texts.lines(Summary(Use(), (one,), (), 0, 1, None))[0]
    other = replace(one, host_ns=2_101)
    assert (
        "2.000 µs, on the host 2.101 µs" in texts.lines(Summary(Use(), (other,), (), 0, 1, None))[0]
    )


def test_many_gpus_are_one_line():
    use = Use(tuple(GpuUse(f"GPU {n}", 10 * n, 100) for n in range(1, 10)))
    assert texts.use_lines(use) == ["9 GPUs: busy 10.0 % (GPU 1) to 90.0 % of their time."]


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


def test_a_gpu_that_runs_work_of_another_step_is_busy(tmp_path: Path):
    """Within a step the span is that of its work; all work of the GPU counts as busy."""
    part = load(made_reports.report(tmp_path / "r.sqlite", steps=6)).within(steps=(2, 3)).attributed
    gpus = Devices.of_report(part).gpu
    times = list(zip(gpus, part.capture.activities["start"], part.end, strict=True))
    use = Use.of(part)
    devices = sorted({device for (device, *_), own in zip(times, part.counted, strict=True) if own})
    assert len(devices) == len(use.gpus)
    for device, gpu in zip(devices, use.gpus, strict=True):
        spans = [(start, end) for d, start, end in times if d == device]
        own = [
            (start, end)
            for (d, start, end), counted in zip(times, part.counted, strict=True)
            if d == device and counted
        ]
        first, last = min(start for start, _ in own), max(end for _, end in own)
        inside = [
            (max(start, first), min(end, last))
            for start, end in spans
            if end > first and start < last
        ]
        assert (gpu.busy_ns, gpu.span_ns) == (union(inside), last - first)


def test_the_headline_counts_causes_as_the_table_does(tmp_path: Path):
    whole = load(made_reports.report(tmp_path / "r.sqlite", steps=6))
    for part in (whole, whole.within(steps=(2, 3))):
        causes = {cause.cause: cause.idle_ns for cause in part.use.causes}
        table = part.by("idle").groupby("cause")["total_ns"].sum()
        assert causes == table.to_dict()
        assert part.use.caused_ns == table.sum()
    assert whole.use.caused_ns == whole.use.idle_ns


@pytest.mark.slow
def test_mnist_waits_for_data(corpus):
    path = corpus / "nsys" / "mnist-training.sqlite"
    said = done("report", path)
    assert " ".join(said.split()).startswith(
        "GPU 0 NVIDIA A100-SXM4-80GB: busy 3.4 % of 12.446 s. Largest cause of idleness:"
        f" data loading, 8.450 s, 70.3 % of the idle time. → bridge advise {path}"
    )
    said = " ".join(done("summary", path).split())
    assert (
        "Iteration, median: 153.375 ms (8.320 ms in the step, 144.867 ms between steps, of which 144.825 ms"
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
