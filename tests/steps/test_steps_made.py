"""The table per step against its definition, on made programs."""

from dataclasses import replace
from statistics import median

import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st
from join.programs import Program, attributed, programs
from witness.attribution import Activity, Call, Range
from witness.steps import LOADS, ROLES, Host, Step, Work, spent, states, walls, warm_up

from bridge.analyze.core.table import Table
from bridge.analyze.run.parts import iteration_times
from bridge.analyze.run.steps import by_step, paces
from bridge.join.loops import warm_up_of
from bridge.render.summaries import step_lines

NCCL = "ncclDevKernel_AllReduce_Sum_f32_RING_LL"
PROCESS = 7 << 24
MAIN = PROCESS | 1
KINDS = {"kernel": "kernel", "graph": "kernel", "memcpy": "memcpy", "memset": "memset"}


@st.composite
def trainings(draw) -> Program:
    """Draw a program with steps, communication and waiting for data."""
    made = draw(programs())
    texts = [LOADS + "x.__next__" if text == "b" else text for text in made.texts]
    ranges = [
        replace(one, op=text) if one.op == "b" else one
        for one, text in zip(made.ranges, texts, strict=True)
    ]
    activities = [
        replace(one, name=NCCL) if one.kind == "kernel" and one.name == "relu" else one
        for one in made.activities
    ]
    threads = [(one.report, one.process, one.thread) for one in ranges] or [(0, PROCESS, MAIN)]
    spans = draw(st.lists(st.tuples(st.integers(-3, 12), st.integers(1, 5)), max_size=7))
    added = [
        Range(*threads[n % len(threads)], start, start + length, f"step {n}")
        for n, (start, length) in enumerate(spans)
    ]
    texts += [one.op for one in added]
    return Program([*ranges, *added], made.calls, activities, texts)


def as_records(made, joined):
    """Give the steps, the work and the host's time as plain records."""
    steps = joined.iterations
    columns = (steps.report, steps.process, steps.start, steps.end)
    found = [Step((r, p), s, e) for r, p, s, e in zip(*(c.tolist() for c in columns), strict=True)]
    work = []
    for row, one in enumerate(made.activities):
        call = int(joined.attribution.launch[row])
        when = one.start if call < 0 else made.calls[call].start
        home = (one.report, one.process)
        around = [n for n, s in enumerate(found) if s.home == home and s.start <= when < s.end]
        role = "communication" if one.name == NCCL else KINDS[one.kind]
        lasts = one.end >= one.start and one.end != 0
        end = one.end if lasts else one.start
        work.append(Work(role, home, one.start, end, around[0] if around else -1, call >= 0))
    host = [Host("runtime", (c.report, c.process), c.start, c.end) for c in made.calls]
    for one, text in zip(made.ranges, made.texts, strict=True):
        if not one.phase:
            host.append(Host("cpu", (one.report, one.process), one.start, one.end))
        if text.startswith(LOADS) and one.op and not one.phase:
            host.append(Host("dataloader", (one.report, one.process), one.start, one.end))
    calling = {one.home for one in work if one.launched}
    # What has no launch, where other work of the process has one, was launched before all that is recorded.
    work = [w if w.launched or w.home not in calling else replace(w, step=-1) for w in work]
    return found, work, host


@pytest.mark.slow
@given(trainings())
def test_the_time_of_steps_is_parted_as_defined(made):
    joined = attributed(made)
    found, work, host = as_records(made, joined)
    table = by_step(joined)
    assert len(table) == len(found)
    true = walls(found, work)
    for nth, (row, (before, start, end)) in enumerate(zip(table.records(), true, strict=True)):
        assert (row["start_ns"], row["wall_ns"]) == (start, end - start)
        own = spent(found[nth], found, start, end, work, host)
        assert {role: row[f"{role}_ns"] for role in ROLES} == own
        assert sum(own.values()) == row["wall_ns"]
        assert row["between_ns"] == start - before
        between = spent(found[nth], found, before, start, work, host)
        assert row["between_dataloader_ns"] == between["dataloader"]
        mine = [one for one in work if one.step == nth]
        assert row["activities"] == len(mine)
        assert row["gpu_ns"] == sum(one.end - one.start for one in mine)
        instants = {t for one in mine for t in range(one.start, one.end)}
        assert row["gpu_busy_ns"] == len(instants)
    judged_alike(table.to_pandas(), found, joined)


def judged_alike(table, found, joined):
    loops = joined.loops.iterations
    for home in dict.fromkeys(step.home for step in found):
        rows = table[[step.home == home for step in found]]
        wall = rows["wall_ns"].tolist()
        [loop] = set(joined.iterations.loop[rows.index].tolist())
        state = states(wall, min(len(wall), loops[loop].warm_up))
        assert rows["state"].tolist() == state
        middle = median(wall[state.count("warm-up") :] or wall)
        change = [w / middle - 1 if middle else 0 for w in wall]
        assert rows["change"].tolist() == pytest.approx(change)


@pytest.mark.slow
@given(st.lists(st.integers(0, 30), max_size=24))
def test_warm_up_is_that_of_the_definition(lengths):
    assert warm_up_of(np.array(lengths, np.int64)) == warm_up(lengths)


@pytest.mark.parametrize(
    ("lengths", "warm"),
    [
        ([900, 400, 100, 101, 99, 100, 160, 100], 2),
        ([160, 100, 100], 1),
        ([150, 100, 100], 0),
        ([900, 1], 0),  # too few to tell
        ([100] * 4 + [900] * 4, 0),  # slower later on is no warm-up
        ([900] * 5 + [100] * 15, 5),
        ([900] * 6 + [100] * 14, 0),
        ([(400 - n) ** 2 for n in range(400)], 0),  # the work itself becomes less
    ],
)
def test_warm_up_by_hand(lengths, warm):
    assert warm_up(lengths) == warm_up_of(np.array(lengths)) == warm


def two_steps():
    """Two steps whose work runs on after the host: the first until 50, the second until 90."""
    ranges = [Range(0, PROCESS, MAIN, 10, 30, "step 4"), Range(0, PROCESS, MAIN, 30, 60, "step 5")]
    calls = [Call(0, PROCESS, MAIN, n, at, at + 2) for n, at in ((1, 12), (2, 33))]
    work = [Activity(0, PROCESS, 1, 15, 50), Activity(0, PROCESS, 2, 55, 90, "memcpy", "memcpy")]
    return Program(ranges, calls, work, [one.op for one in ranges])


def test_a_step_lasts_until_its_work_is_done_and_no_time_is_of_two():
    table = by_step(attributed(two_steps())).to_pandas()
    assert table["step"].tolist() == [4, 5]
    assert table[["start_ns", "wall_ns"]].to_numpy().tolist() == [[10, 40], [50, 40]]
    assert table["kernel_ns"].tolist() == [35, 0]
    assert table["memcpy_ns"].tolist() == [0, 35]
    assert table["runtime_ns"].tolist() == [2, 0]
    assert table["other_ns"].tolist() == [3, 5]
    assert table["found_by"].tolist() == ["range", "range"]


@pytest.mark.slow
@pytest.mark.parametrize(("done", "start"), [(14, 14), (15, 10), (16, 10)])
def test_the_first_step_begins_when_what_was_left_over_is_done(done, start):
    """But not if that runs until its own work begins, at 15: it then ran beside the step."""
    made = two_steps()
    before = Activity(0, PROCESS, 9, 0, done)  # whose launch was before the report began
    table = by_step(attributed(replace(made, activities=[before, *made.activities])))
    assert table["start_ns"].tolist() == [start, 50]
    assert table["wall_ns"].tolist() == [50 - start, 40]


@pytest.mark.slow
def test_of_some_steps_alone_the_figures_stay_those_of_the_whole():
    from bridge.report import Report

    joined = Report(attributed(two_steps()))
    whole, part = joined.by("step"), joined.within(steps=(5, 5)).by("step")
    pd.testing.assert_frame_equal(part, whole[whole["step"] == 5].reset_index(drop=True))


def test_work_of_no_duration_on_another_gpu_than_the_first_has_steps_too():
    first, second = 7 << 24, 8 << 24  # processes, each on a GPU of its own
    ranges = [Range(0, first, first | 1, 0, 90, "other")]
    ranges += [Range(0, second, second | 1, at, at + 20, f"step {at}") for at in (10, 30)]
    calls = [Call(0, first, first | 1, 1, 5, 6)]
    calls += [Call(0, second, second | 1, n, at, at + 2) for n, at in ((2, 12), (3, 33))]
    work = [Activity(0, first, 1, 7, 90), Activity(0, second, 2, 15, 15)]
    work += [Activity(0, second, 3, 35, 35)]
    table = by_step(attributed(Program(ranges, calls, work, [one.op for one in ranges])))
    assert table["start_ns"].tolist() == [10, 30]
    assert table["wall_ns"].tolist() == [20, 20]


@pytest.mark.slow
def test_no_steps_no_rows():
    made = Program([Range(0, PROCESS, MAIN, 0, 9, "a")], [], [], ["a"])
    table = by_step(attributed(made))
    assert len(table) == 0
    assert paces(table) == []
    assert step_lines([]) == ""


@pytest.mark.slow
def test_one_step_alone_has_no_median_and_same_processes_of_files_are_told_apart():
    from bridge.report import Report

    joined = Report(attributed(two_steps()))
    [pace] = paces(Table.of(joined.within(steps=(5, 5)).by("step")))
    assert step_lines([pace]) == "1 step: 40 ns\n"
    table = joined.by("step")
    names = {"a.sqlite": "step *", "b.sqlite": "step * (2)"}
    both = pd.concat([table.assign(report=name, loop=loop) for name, loop in names.items()])
    first, _, second, _ = step_lines(paces(Table.of(both))).splitlines()
    assert first.startswith("2 steps of step * in a.sqlite: median 40 ns")
    assert second.startswith("2 steps of step * (2) in b.sqlite: median 40 ns")


def test_a_loop_of_two_ranks_is_one_and_its_iterations_are_those_of_the_gpu_that_bounds_it():
    """Each of three steps has a kernel of 90 on the second rank, and one of 10 on the first."""
    ranges, calls, work = [], [], []
    for process, length in ((7 << 24, 10), (8 << 24, 90)):
        for n in range(3):
            at = 100 * n + (process >> 24)
            ranges.append(Range(0, process, process | 1, at, at + 20, f"step {n}"))
            calls.append(Call(0, process, process | 1, n + 1, at + 1, at + 3))
            work.append(Activity(0, process, n + 1, 100 * n + 30 + 2 * n, 100 * n + 30 + length))
    joined = attributed(Program(ranges, calls, work, [one.op for one in ranges]))
    [loop] = joined.loops.iterations
    assert (loop.count, len(loop.steps)) == (3, 6)
    [pace] = paces(by_step(joined))
    assert (pace.count, pace.pids, pace.iteration_ns, pace.host_ns) == (3, (7, 8), 102, 100)
    [time] = iteration_times(joined)
    assert time.device.tolist() == [102, 102]
    assert time.ns == pace.iteration_ns


def test_the_pace_names_what_the_slowest_step_spent_more_on():
    walls_of = [500, 100, 100, 101, 99, 150]
    parts = {f"{role}_ns": [0] * 6 for role in ROLES} | {
        "kernel_ns": [80, 80, 80, 80, 80, 82],
        "cpu_ns": [420, 20, 20, 21, 19, 68],
    }
    table = pd.DataFrame(
        {
            "step": range(10, 16),
            "pid": 7,
            "process": "python",
            "found_by": "repetition",
            "name": "gemm",
            "loop": "gemm",
            "start_ns": [0, 550, 700, 850, 1001, 1150],
            "host_start_ns": [0, 500, 600, 700, 800, 900],
            "first_work_ns": [10, 560, 710, 860, 1011, 1160],
            "wall_ns": walls_of,
            **parts,
            "between_ns": [0, 50, 50, 50, 50, 50],
            "between_dataloader_ns": [0, 40, 40, 40, 40, 40],
            "state": ["warm-up", "", "", "", "", "outlier"],
        }
    )
    [pace] = paces(Table.of(table.sample(frac=1, random_state=1)))
    assert (pace.count, pace.warm_up, pace.outliers) == (6, 1, 1)
    assert (pace.median_ns, pace.mean_ns) == (100, 110)
    assert pace.p95_ns == pytest.approx(np.quantile([100, 100, 101, 99, 150], 0.95))
    assert pace.variation == pytest.approx(np.std([100, 100, 101, 99, 150]) / 110)
    assert (pace.slowest, pace.slowest_ns, pace.slower_by, pace.excess_ns) == (15, 150, "cpu", 48)
    assert (pace.iteration_ns, pace.between_ns, pace.loading_ns) == (150, 50, 40)
    said = step_lines([pace])
    assert "6 steps, found by repetition (1 of warm-up): median 100 ns, mean 110 ns" in said
    assert "1 outlier;" in said
    assert "step 15 is the slowest, 150 ns, with 48 ns more CPU time than usual" in said
    assert (
        "iteration, median: 150 ns, on the host 100 ns (100 ns in the step, 50 ns between steps,"
        " of which 40 ns data loading"
    ) in said
