"""Tables per GPU and collective, and exposed communication, against their definitions on made programs."""

from collections import defaultdict
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from join.programs import Program, attributed, programs, report_of
from witness import account, concurrency
from witness.attribution import Activity, Call, Range
from witness.concurrency import COMMUNICATION, COMPUTE, COPY, GRAPH, Ran

from bridge.analyze.core.devices import Devices
from bridge.analyze.cost.occupancy import occupancy, sm_efficiency
from bridge.analyze.run.concurrency.collectives import by_collective
from bridge.analyze.run.concurrency.matching import match_collectives, transfer_times
from bridge.analyze.run.concurrency.overlap import exposure
from bridge.analyze.tables.devices import by_device
from bridge.importers import frames
from bridge.join.arrays import NONE
from bridge.join.attributed import AttributedCapture

NCCL = "ncclDevKernel_AllReduce_Sum_f32_RING_LL"
KINDS = {"kernel": COMPUTE, "graph": GRAPH, "memcpy": COPY, "memset": COPY}
PROCESS = 7 << 24
MAIN = PROCESS | 1


@st.composite
def communicating(draw) -> Program:
    """Draw a program of whose kernels some communicate."""
    made = draw(programs())
    activities = [
        replace(one, name=NCCL) if one.kind == "kernel" and one.name == "relu" else one
        for one in made.activities
    ]
    return Program(made.ranges, made.calls, activities, made.texts)


def ran(one):
    end = one.end if one.end >= one.start and one.end != 0 else one.start
    kind = COMMUNICATION if one.name == NCCL else KINDS[one.kind]
    return Ran((one.report, one.process), kind, one.start, end)


@pytest.mark.slow
@given(communicating())
def test_a_gpu_is_as_busy_as_defined(made):
    joined = attributed(made)
    work = [ran(one) for one in made.activities]
    gpus = defaultdict(list)
    for one in work:
        gpus[one.gpu].append(one)
    table = by_device(joined)
    ours = sorted(tuple(row.items()) for row in table.drop(NOT_SWEPT).records())
    lengths = {report: run_ns(made, report) for report, _ in gpus}
    true = sorted(
        tuple(concurrency.device(of, lengths[report]).items()) for (report, _), of in gpus.items()
    )
    assert ours == true
    assert (table["overlap_ns"] + table["exposed_ns"] == table["communication_ns"]).all()
    assert (table["busy_ns"] + table["idle_ns"] == table["run_ns"]).all()
    assert (table["sm_efficiency"] == -1).all()  # no geometry is known
    assert (table["occupancy"] == -1).all()


def run_ns(made: Program, report: int) -> int:
    """Return the length of the run of a report: the two have no common clock."""
    of = (
        [Span(None, one.start, one.end) for one in every if one.report == report]
        for every, Span in ((made.ranges, account.Range), (made.calls, account.Call))
    )
    work = [
        account.Activity(None, None, one.start, one.end, "")
        for one in made.activities
        if one.report == report
    ]
    first, last = account.run(account.Events(*of, activities=work))
    return last - first


NOT_SWEPT = ["device", "processes", "streams", "kernels", "sm_efficiency", "occupancy"]


@pytest.mark.slow
@given(communicating())
def test_exposed_communication_of_ops(made):
    joined = attributed(made)
    work = [ran(one) for one in made.activities]
    true = {"communication_ns": defaultdict(int), "exposed_ns": defaultdict(int)}
    for one, op in zip(work, joined.activity_op.tolist(), strict=True):
        if one.kind == COMMUNICATION and op != NONE:
            true["communication_ns"][op] += one.end - one.start
            true["exposed_ns"][op] += concurrency.exposed(one, work)
    found = exposure(joined, joined.node_op, len(joined.ops))
    for name, column in found.items():
        assert column.tolist() == [true[name][op] for op in range(len(joined.ops))]
    nothing = exposure(joined, np.full(len(joined.node_op), NONE), 2)
    assert [column.tolist() for column in nothing.values()] == [[0, 0], [0, 0]]


@pytest.mark.slow
@given(
    st.lists(
        st.tuples(
            *(st.integers(0, 2), st.integers(0, 2), st.integers(0, 1), st.integers(0, 99)),
            st.integers(0, 9),
        ),
        max_size=14,
        unique_by=lambda call: (call[0], call[1], call[3]),  # a stream runs one at a time
    )
)
def test_the_nth_collective_is_the_same_on_ranks_that_run_the_same(calls):
    starts = [start for *_, start, _ in calls]
    if len(set(starts)) < len(starts):  # which of two streams is the first one would be open
        calls = [(*call[:3], call[3] * 100 + n, call[4]) for n, call in enumerate(calls)]
    columns = [np.array(c, np.int64) for c in zip(*calls, strict=True)] or [
        np.empty(0, np.int64)
    ] * 5
    rank, stream, kind, start, time = columns
    number = match_collectives(rank, stream, kind, start=start)
    assert transfer_times(number, time).tolist() == concurrency.transfers(calls)


@pytest.mark.slow
@given(
    st.lists(
        st.tuples(st.integers(0, 1), st.integers(0, 20), st.integers(0, 9), st.floats(0, 2)),
        min_size=1,
        max_size=12,
    )
)
def test_multiprocessors_used(kernels):
    work = [Ran(gpu, COMPUTE, start, start + time, blocks) for gpu, start, time, blocks in kernels]
    of, start, end = (
        np.array([getattr(one, c) for one in work], np.int64) for c in ("gpu", "start", "end")
    )
    blocks = np.array([one.blocks for one in work])
    span = np.array([40, 40])
    found = sm_efficiency(of, start, end, blocks, span)
    for gpu in (0, 1):
        own = [one for one in work if one.gpu == gpu and one.blocks > 0]
        true = concurrency.efficiency(own, 0, 40) if own else -1
        assert found[gpu] == pytest.approx(true)


def test_occupancy_is_a_mean_by_time():
    of, time = np.array([0, 0, 0, 1]), np.array([10, 30, 99, 5])
    percent = np.array([100.0, 20.0, np.nan, np.nan])
    assert occupancy(of, time, percent, 3).tolist() == pytest.approx([0.4, -1, -1])


# -- by hand: two ranks, a process each


def two_ranks(times, texts=("nccl:all_reduce, seq = 1, op_id = 2, sizes = [[1000, 10]]",)):
    """Make a program of two processes with so long collectives, launched in ranges with these texts."""
    ranges, calls, work, written = [], [], [], []
    for rank, several in enumerate(times):
        process = (7 + rank) << 24
        for nth, time in enumerate(several):
            at, key = 1_000 * nth, nth + 1
            text = texts[nth % len(texts)]
            ranges.append(Range(0, process, process | 1, at, at + 100, text.partition(",")[0]))
            written.append(text)
            calls.append(Call(0, process, process | 1, key, at + 10, at + 20))
            work.append(Activity(0, process, key, at + 50, at + 50 + time, "kernel", NCCL))
    report = report_of(Program(ranges, calls, work, written))
    names = frames.Names.of([text.partition(",")[0] for text in written])  # as importers cut them
    return AttributedCapture.of(replace(report, ranges=report.ranges.replace(name=names)))


@pytest.mark.slow
def test_waiting_and_transfer_of_two_ranks():
    joined = two_ranks([[100, 90, 80], [40, 50, 200]])
    names = Devices.of_report(joined).names
    [row] = by_collective(joined).records()
    assert (row["collective"], row["op"]) == ("AllReduce", "nccl:all_reduce")
    assert (row["dtype"], row["algorithm"]) == ("f32", "ring")
    assert (row["ranks"], row["count"], row["total_ns"]) == (2, 6, 560)
    assert row["transfer_ns"] == 2 * (40 + 50 + 80)
    assert row["wait_ns"] == 560 - 340
    # The first rank waited 60 + 40 for the second, which waited 120 for it.
    assert row["straggler"] == names[0]
    assert row["exposed_ns"] == 560
    assert row["bytes"] == 6 * 4 * 10_000
    assert row["gb_per_s"] == pytest.approx(240_000 / 560)
    assert row["bus_gb_per_s"] == -1  # among how many is not said


@pytest.mark.slow
def test_one_rank_alone_and_ranks_that_differ_are_not_compared():
    for times in ([[100, 90]], [[100, 90, 80], [40, 50]]):
        [row] = by_collective(two_ranks(times)).records()
        assert (row["transfer_ns"], row["wait_ns"], row["straggler"]) == (-1, -1, "")


@pytest.mark.slow
def test_sizes_are_never_guessed():
    texts = ("nccl:all_reduce, sizes = [[8]]", "nccl:all_reduce, op_id = 4")
    [row] = by_collective(two_ranks([[100, 90]], texts)).records()
    assert (row["bytes"], row["gb_per_s"]) == (-1, -1)  # of one of the two
    [row] = by_collective(two_ranks([[100]], ("mine, sizes = [[8]]",))).records()
    assert row["bytes"] == -1  # of a range that is none around a collective


def test_details_of_a_range_around_the_op_count():
    """PyTorch's profiler writes them to record_param_comms, in which nccl:all_reduce lies."""
    said = '{"In msg nelems": 500, "Out msg nelems": 500, "Group size": 4, "dtype": "BFloat16"}'
    names = ["record_param_comms", "nccl:all_reduce"]
    times = ((0, 100), (5, 90))
    ranges = [Range(0, PROCESS, MAIN, *at, op) for at, op in zip(times, names, strict=True)]
    work = [Activity(0, PROCESS, 1, 20, 120, "kernel", NCCL)]
    report = report_of(Program(ranges, [Call(0, PROCESS, MAIN, 1, 10, 20)], work, names))
    told = report.ranges.replace(json=frames.Names.of([said, ""]))
    [row] = by_collective(AttributedCapture.of(replace(report, ranges=told))).records()
    assert (row["op"], row["dtype"], row["bytes"]) == ("nccl:all_reduce", "bfloat16", 1000)
    assert (row["gb_per_s"], row["bus_gb_per_s"]) == (10, 15)


def test_without_communication_there_is_no_row():
    joined = attributed(Program([], [], [Activity(0, PROCESS, 1, 0, 9)], []))
    assert not len(by_collective(joined))
    assert by_device(joined)["communication_ns"].tolist() == [0]
    assert not len(by_device(attributed(Program([], [], [], []))))
