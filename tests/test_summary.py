"""`bridge summary`, whose first screen says what matters, and the lines that a report begins with."""

from __future__ import annotations

import itertools
import json
import re
import sqlite3
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from statistics import median

import made_reports
import pytest
from command import bridge, done, table_in, unwarned
from real_parts import corpus_reports
from witness.attribution import union

from bridge.analyze.checks.costs import Cost, Costs
from bridge.analyze.checks.failures import LostRecords
from bridge.analyze.checks.summary import FirstAdvice, Iteration, Summary
from bridge.analyze.core.device_work import NoDeviceWork
from bridge.analyze.core.devices import Devices
from bridge.analyze.run.account import CALLS, IDLE, RANGES, STATES, GpuAccount, Run, Span
from bridge.analyze.run.gpu_use import IdleCause, Use
from bridge.render import summary as texts
from bridge.render.first_screen import LEAST_TELLING, lines, use_lines
from bridge.render.wrapping import wrap
from bridge.report import load

MOST_LINES = 12  # of 80 columns, on the first screen


def account(name: str, busy: int, length: int, **states: int) -> GpuAccount:
    """Return the account of a GPU that computes for some time of a run, and does other things for others."""
    known = dict.fromkeys(STATES, 0) | {"compute": busy} | states
    return GpuAccount(name, known | {IDLE: length - sum(known.values())}, length)


def run_of(length: int, *gpus: GpuAccount, part: Span | None = None, evidence: str = RANGES) -> Run:
    whole = Span(1_000, 1_000 + length)
    return Run(whole, part or whole, gpus, evidence, part is not None)


def one_gpu(busy: int, length: int, *idle: IdleCause) -> Use:
    return Use((run_of(length, account("GPU 0 A100", busy, length)),), idle)


def summary_of(use: Use, **more) -> Summary:
    facts = {"iterations": (), "ops": (), "gpu_ns": 0, "ranges": 1, "advice": None, **more}
    return Summary(use, **{"source": ("train.sqlite",), **facts})


def loop(count: int, ns: int, warm_up: int = 0, host_ns: int = 0) -> Iteration:
    return Iteration(7, count, ns, ns, 0, 0, count=count, warm_up=warm_up, host_ns=host_ns or ns)


def scope(*runs: Run, **more) -> str:
    """Return the first line of a summary."""
    return lines(summary_of(Use(runs), **more))[0]


def screen(text: str) -> list[str]:
    """Return the lines of a first screen as `bridge summary` prints it: up to the table."""
    return text.split("\n\n", maxsplit=1)[0].splitlines()


# -- The headline of a report


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
    assert use_lines(kept.use) == use_lines(made.use)
    assert "(mainly in IO *)" in use_lines(kept.use)[0]
    assert "main_ops" not in json.dumps(kept.as_dict()["use"]["idle"])
    older = made.as_dict()
    del older["use"]["main_ops"]
    assert "mainly" not in use_lines(Summary.from_dict(older).use)[0]


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


def test_gpus_that_are_as_busy_share_a_line():
    """Those whose busy times differ by a twentieth of the run at most."""
    shares = {"GPU 0": 60, "GPU 1": 64, "GPU 2": 66, "GPU 3": 55}
    use = Use((run_of(100, *(account(name, share, 100) for name, share in shares.items())),))
    assert use_lines(use) == [
        "GPU 0: busy 60.0 %, GPU 1: busy 64.0 %, GPU 3: busy 55.0 % of the run, 100 ns.",
        "GPU 2: busy 66.0 % of the run, 100 ns.",
    ]
    alike = Use((run_of(100, *(account(f"GPU {n}", 50, 100) for n in (0, 1))),))
    assert use_lines(alike) == ["GPU 0, GPU 1: busy 50.0 % of the run, 100 ns."]


def test_many_gpus_are_one_line():
    use = Use((run_of(100, *(account(f"GPU {n}", 10 * n, 100) for n in range(1, 10))),))
    assert use_lines(use) == ["9 GPUs: busy 10.0 % (GPU 1) to 90.0 % (GPU 9) of the run, 100 ns."]


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


# -- The first screen: the report and the run


GPU = account("GPU 0", 50, 1_000_000)
RUN = run_of(1_000_000, GPU)
PARTS = {"start-up": 300_000, "iterations": 600_000, "between": 4_999, "end": 95_001}


def test_the_first_line_has_the_parts_of_the_run_in_order():
    said = scope(RUN, parts=PARTS, iterations=(loop(59, 10_000),), profiler="Nsight Systems 2025.1")
    assert said == (
        "train.sqlite, Nsight Systems 2025.1: 1.000 ms: start-up 300.000 µs, 59 iterations of 10.000 µs,"
        " end 95.001 µs."
    )  # what lies between is less than half a hundredth of the run


@pytest.mark.parametrize(
    ("loops", "expected"),
    [
        ((loop(5, 200, warm_up=2),), "5 iterations of 200 ns (2 of warm-up)"),
        ((loop(1, 0),), "1 iteration"),
        ((loop(9, 200, host_ns=189),), "9 iterations of 200 ns (189 ns on the host)"),
        ((loop(9, 200, host_ns=191),), "9 iterations of 200 ns"),
        ((loop(9, 200, 1, 20),), "9 iterations of 200 ns (1 of warm-up, 20 ns on the host)"),
        ((loop(5, 10), loop(1_000, 30)), "5 iterations of 10 ns, 1 000 iterations of 30 ns"),
        ((*map(loop, (1, 2, 3, 4), (5, 6, 7, 8)),), "10 iterations in 4 loops, each 8 ns"),
    ],
)
def test_loops_stand_between_start_up_and_end(loops, expected):
    said = scope(RUN, parts=PARTS, iterations=loops)
    assert said == f"train.sqlite: 1.000 ms: start-up 300.000 µs, {expected}, end 95.001 µs."


def test_what_lies_between_loops_is_named():
    parts = {"start-up": 0, "iterations": 900_000, "between": 100_000, "end": 0}
    said = scope(RUN, parts=parts, iterations=(loop(3, 10), loop(4, 20)))
    assert said.endswith(
        "3 iterations of 10 ns, 4 iterations of 20 ns, between the loops 100.000 µs."
    )


def test_a_run_without_iterations_has_parts_if_there_are_several():
    assert scope(RUN, parts={"work": 1_000_000}) == "train.sqlite: 1.000 ms."
    parts = {"start-up": 600_000, "work": 400_000}
    assert (
        scope(RUN, parts=parts) == "train.sqlite: 1.000 ms: start-up 600.000 µs, work 400.000 µs."
    )


def test_a_run_that_began_before_its_first_call_says_so():
    bare = replace(RUN, evidence=CALLS)
    assert scope(bare) == "train.sqlite: 1.000 ms from the first CUDA call."


def test_a_selection_is_a_part_of_a_run():
    part = replace(RUN, part=Span(2_000, 12_000), is_part=True)
    assert scope(part) == "train.sqlite: 10.000 µs selected of a run of 1.000 ms."
    assert lines(summary_of(Use((part,))))[1].startswith(
        "GPU 0: busy <0.1 % of the selected time ("
    )


def test_runs_without_a_common_clock_are_counted():
    runs = run_of(3_000, account("GPU 0", 1_500, 3_000)), run_of(1_000, account("GPU 1", 0, 1_000))
    assert scope(*runs) == "train.sqlite: 2 runs without a common clock, 1.000 µs to 3.000 µs."
    assert scope(*runs, source=("a", "b", "c")).startswith("3 reports: 2 runs ")
    assert scope(*runs, source=("a", "b")).startswith("a, b: 2 runs ")


# -- What the GPUs did


def test_the_states_of_a_gpu_are_parts_of_the_run():
    gpu = account("GPU 0", 250, 1_000, communication=100, copy=5, other=4, graph=50, elsewhere=200)
    [line] = use_lines(Use((run_of(1_000, gpu),)), with_states=True)
    # a memset for less than half a hundredth is left out; busy is all but what others did, and idle
    assert line == (
        "GPU 0: busy 40.9 % of the run (compute 25.0 %, communication 10.0 %, copies 0.5 %, CUDA graphs 5.0 %,"
        " work not selected 20.0 %, idle 39.1 %)."
    )


def test_the_states_of_several_gpus_are_listed_or_the_least_and_the_most():
    two = account("GPU 0", 50, 100), account("GPU 1", 51, 100, copy=2)
    [line] = use_lines(Use((run_of(100, *two),)), with_states=True)
    assert line == (
        "GPU 0: busy 50.0 %, GPU 1: busy 53.0 % of the run"
        " (compute 50.0 % and 51.0 %, copies 0.0 % and 2.0 %, idle 50.0 % and 47.0 %)."
    )
    three = *two, account("GPU 2", 52, 100)
    [line] = use_lines(Use((run_of(100, *three),)), with_states=True)
    assert "(compute 50.0 % to 52.0 %, copies 0.0 % and 2.0 %, idle 47.0 % to 50.0 %)" in line


@pytest.mark.parametrize(
    ("filled", "expected"),
    [
        ({"GPU 0": 0.5}, []),
        ({"GPU 0": -1.0}, []),
        ({"GPU 0": 0.499}, ["Its kernels fill 49.9 % of the multiprocessors"]),
        ({"GPU 0": 0.9, "GPU 1": 0.2}, ["Kernels of GPU 1 fill 20.0 % of the multiprocessors"]),
    ],
)
def test_kernels_that_leave_most_of_a_gpu_empty_are_named(filled, expected):
    said = [line for line in lines(summary_of(Use((RUN,)), filled=filled)) if " fill " in line]
    assert [line.partition(" while they run")[0] for line in said] == expected


# -- What the run pays for, and what to do


EACH = (Cost("kernels", "forward", 60, 0.6, is_work=True), Cost("host code", "step", 30, 0.3))
ONCE = (Cost("cudaMalloc", "", 400, 0.4), Cost("", "init_model", 100, 0.1))


@pytest.mark.parametrize("in_all", [501, 499])
def test_the_list_that_takes_more_of_the_run_comes_first(in_all):
    costs = Costs(EACH, 100, in_all, ONCE, 500)
    said = [line for line in lines(summary_of(Use((RUN,)), costs=costs)) if "Paid" in line]
    each = "Paid in each iteration: kernels, mostly forward 60.0 %; host code in step 30.0 %."
    once = "Paid once (500 ns): cudaMalloc 400 ns, 40.0 %; init_model 100 ns, 10.0 % of the run."
    assert said == ([each, once] if in_all > 500 else [once, each])


def test_the_throughput_is_what_the_program_printed_and_the_use_of_the_peak():
    rates = ("59.19 samples/s", "7 it/s", "8 it/s")
    said = lines(summary_of(Use((RUN,)), rates=rates, mfu=0.25))
    assert (
        "Throughput: 59.19 samples/s as the program printed, 7 it/s as the program printed,"
        " FLOPs of an iteration are 25.0 % of the peak (MFU)."
    ) in said
    assert "Throughput" not in " ".join(lines(summary_of(Use((RUN,)))))


def test_without_iterations_costs_are_those_of_all_work():
    costs = Costs((Cost("data loading", "Data loading", 60, 0.6),), 0, 100)
    [said] = [line for line in lines(summary_of(Use((RUN,)), costs=costs)) if "Paid" in line]
    assert said == "Paid while the GPU works: data loading 60 ns, 60.0 %."


def test_it_is_said_why_there_are_no_iterations():
    why = "the capture holds no whole iteration"
    assert f"No iterations: {why}." in lines(summary_of(Use((RUN,)), no_iterations=why))
    with_loop = summary_of(Use((RUN,)), no_iterations=why, iterations=(loop(3, 10),))
    assert "No iterations" not in " ".join(lines(with_loop))


ADVICE = FirstAdvice("rule", "Waits", "wait less", "{wait_ns} of waiting", {"wait_ns": 7}, "Copies")


@pytest.mark.parametrize(
    ("more", "expected"),
    [
        (
            {"advice": ADVICE},
            "Waits: 7 ns of waiting. Remedy: wait less. Next: Copies. → bridge advise REPORT",
        ),
        ({}, "No bottleneck found. → bridge advise REPORT"),
        ({"is_judged": False}, "→ bridge advise REPORT"),
        ({"failures": (LostRecords("7 events lost"),)}, "→ bridge advise REPORT"),
    ],
)
def test_the_last_line_is_what_to_do(more, expected):
    assert lines(summary_of(Use((RUN,)), **more))[-1] == expected


def test_what_failed_stands_behind_the_run_and_before_all_else():
    said = lines(summary_of(Use((RUN,)), failures=(LostRecords("7 events lost"),)))
    assert said[1] == 'Records were lost. The profiler says: "7 events lost"'
    assert said[2].startswith("GPU 0: busy ")


def test_where_nothing_ran_neither_parts_nor_costs_are_told():
    nothing = NoDeviceWork(0, 0, 1, 1_000_000, ("cudaFree",))
    use = Use((replace(RUN, gpus=()),), nothing=nothing)
    said = lines(summary_of(use, parts=PARTS, costs=Costs(once=ONCE)))
    assert said == [
        "train.sqlite: 1.000 ms.",
        "Nothing ran on a GPU: no kernels, memcpys or memsets; 1 CUDA call (cudaFree).",
        "→ bridge doctor REPORT",
    ]


# -- The height of the first screen


def padded(words: int, title: int) -> Summary:
    """Return a summary with all parts, whose texts, and the title of the advice, are of so many words."""
    long = " ".join(["abcdefgh"] * words)
    use = one_gpu(10, 100, IdleCause("other CUDA calls", "", 90))
    each = Cost("kernels", long, 1, 0.5, is_work=True), Cost("host code", long, 1, 0.4)
    return summary_of(
        use,
        advice=FirstAdvice("rule", "title " * title, long, long, next_title=long),
        no_iterations=long,
        costs=Costs(each, 0, 10, ONCE, 5),
        filled={"GPU 0 A100": 0.2},
    )


MARKS = {  # a text of each part that a screen can do without
    "fill": "of the multiprocessors",
    "cause": "Largest cause",
    "second": "init_model",
    "remedy": "Remedy: ",
    "why": "No iterations",
}


def test_what_tells_least_is_left_out_until_the_rest_fits():
    assert tuple(MARKS) == LEAST_TELLING
    seen = set()
    for words, title in itertools.product(range(1, 20), range(0, 60, 5)):
        said = lines(padded(words, title))
        there = [mark in " ".join(said) for mark in MARKS.values()]
        assert there == sorted(there)  # nothing is left out while something that tells less stands
        height = sum(len(wrap(line, 80)) for line in said)
        assert height <= MOST_LINES or not any(there)
        seen.add(sum(there))
    assert seen == set(range(len(MARKS) + 1))


def test_the_first_screen_of_the_demo(demo, monkeypatch):
    """Its figures are those of its rows: by plain loops."""
    monkeypatch.chdir(demo.parent)
    with closing(sqlite3.connect(demo)) as rows:
        work = rows.execute(
            "SELECT k.start, k.end, value LIKE 'nccl%' FROM CUPTI_ACTIVITY_KIND_KERNEL k JOIN StringIds s ON s.id = shortName"
            " UNION ALL SELECT start, end, 2 FROM CUPTI_ACTIVITY_KIND_MEMCPY"
            " UNION ALL SELECT start, end, 2 FROM CUPTI_ACTIVITY_KIND_MEMSET"
        ).fetchall()
        [(begin,)] = rows.execute("SELECT min(start) FROM NVTX_EVENTS WHERE eventType = 59")
    end = max(stop for _, stop, _ in work)
    computing = union([(s, e) for s, e, kind in work if kind == 0])
    busy = union([(s, e) for s, e, _ in work])
    alone = union([(s, e) for s, e, kind in work if kind < 2]) - computing
    run = end - begin
    said = " ".join(screen(done("summary", "demo.sqlite")))
    assert f": {run / 1e6:.3f} ms: 3 iterations of " in said
    assert (
        f"GPU 0 Imaginary GPU: busy {busy / run:.1%} of the run (compute {computing / run:.1%}, communication"
        f" {alone / run:.1%}, copies {(busy - computing - alone) / run:.1%}, idle {1 - busy / run:.1%})."
    ).replace("%", " %") in said
    assert f"communicates without computing for {alone / 1e3:.3f} µs" in said
    assert len(screen(done("summary", "demo.sqlite"))) <= MOST_LINES


def test_the_first_screen_of_a_selection_and_of_calls_alone(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    made_reports.report(tmp_path / "r.sqlite", steps=6)
    said = screen(done("summary", "r.sqlite", "--step", "2..3"))
    assert " selected of a run of " in " ".join(said[:2])
    assert len(said) <= MOST_LINES
    made_reports.report(tmp_path / "calls.sqlite", steps=6, without="annotations system_calls")
    said = screen(done("summary", "calls.sqlite"))
    assert " from the first CUDA call" in " ".join(said[:2])
    assert len(said) <= MOST_LINES


@pytest.mark.slow
@pytest.mark.parametrize("path", corpus_reports("nsys/*.sqlite"))
def test_the_first_screen_of_a_real_profile_has_at_most_12_lines(path, monkeypatch):
    monkeypatch.chdir(path.parent)
    result = bridge("summary", path.name)
    if result.exit_code:
        assert "no ranges, no CUDA calls and no kernels" in result.stderr
        return
    said = screen(result.stdout)
    assert len(said) <= MOST_LINES
    assert all(len(line) <= 80 or "bridge " in line for line in said)
    assert said[0].startswith(path.name)


# -- Real reports

REAL = ("mnist-training", "cloverleaf-no-nvtx", "pytorch-2gpu-before", "cupy-power-iteration")


@pytest.mark.slow
@pytest.mark.parametrize("name", REAL)
def test_the_use_of_each_gpu_is_that_of_a_loop(corpus, name):
    report = load(corpus / "nsys" / f"{name}.sqlite")
    work: dict[tuple[int, ...], list[tuple[int, int]]] = {}
    for row in report.capture.activities.to_pandas().to_dict("records"):
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
    times = list(zip(gpus, part.capture.activities.start, part.end, strict=True))
    steps = [
        (row["start"], row["end"])
        for row, listed in zip(
            part.capture.ranges.to_pandas().to_dict("records"), part.counted_ranges, strict=True
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
    busy = "GPU 0 NVIDIA A100-SXM4-80GB: busy 2.7 % of the run, 15.375 s."
    assert " ".join(done("report", path).split()).startswith(f"{busy} → bridge advise {path}")
    said = done("report", path, "--by", "idle")
    assert " ".join(said.split()).startswith(
        # 419.596 ms of work in 15 375.231 ms; 8.450 s of loading between work, and before it 2.825 s: the range
        # `Data loading` of the thread that launches the first work
        f"{busy} Largest cause of idleness: data loading, 11.275 s, 75.4 % of the idle time."
        f" → bridge advise {path}"
    )
    starts = sorted(
        row["start"]
        for row in load(path).capture.ranges.to_pandas().to_dict("records")
        if row["name"].startswith("Batch ")
    )
    [iteration] = load(path).summary.iterations
    assert len(starts) == iteration.count
    truth = median(later - before for before, later in itertools.pairwise(starts))
    assert iteration.host_ns == truth
    said = " ".join(screen(done("summary", path)))
    # The lengths are those of tests/judgement/start_up.toml.
    assert ": 15.375 s: start-up 2.826 s, 59 iterations of 153.3" in said
    assert "Paid in each iteration: data loading 94.1 %." in said
    # Of 11.275 s of loading while no work runs, 2.825 s pass before the first work: they are paid once.
    assert "The run waits for data: " in said
    assert "for 8.448 s, 54.9 % of it" in said


@pytest.mark.slow
def test_steps_that_follow_each_other_have_no_time_between_them(corpus):
    path = corpus / "nsys" / "transformer-annotated.sqlite"
    assert load(path).by("step")["between_ns"].eq(0).all()
    [iteration] = load(path).summary.iterations
    assert iteration.between_ns == 0
    assert "between steps" not in done("summary", path)


@pytest.mark.slow
@pytest.mark.parametrize("name", ["mnist-training", "transformer-annotated", "pytorch-2gpu-before"])
def test_a_large_part_without_an_op_is_stated_where_ops_are_listed(corpus, name):
    """Several runs have no costs: the ops with most GPU time are listed."""
    report = load(corpus / "nsys" / f"{name}.sqlite")
    share = 1 - report.totals["attributed_ns"] / report.totals["gpu_ns"]
    said = " ".join(lines(replace(report.summary, costs=None)))
    assert ("of the GPU time is in no op" in said) == (share >= 0.1)


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
    assert lines(kept) == lines(summary)


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
