"""The rank that others wait for: how late it comes, and what it spends more time on, beside simulated programs."""

from __future__ import annotations

import json
import statistics
from collections import defaultdict
from types import SimpleNamespace

import numpy as np
import pytest
from advice.rules import steady
from advice.story import Story
from command import bridge as run
from command import done
from hypothesis import given
from hypothesis import strategies as st
from kineto import made as kineto
from simulated import Plan, Truth, program, write
from simulated.troubles import KINDS

import bridge
from bridge.analyze.core.devices import Devices
from bridge.analyze.run.concurrency.matching import MatchedCalls, _sides, match_collectives
from bridge.analyze.run.critical.device import Met
from bridge.analyze.run.critical.run import Run
from bridge.analyze.run.ranks.stragglers import LateArrivals, _middle_of_others
from bridge.report import Report

NUMBERS = st.lists(st.lists(st.integers(0, 9), min_size=3, max_size=3), min_size=2, max_size=6)


def truth_of(seed: int, kind: str) -> Truth:
    return Truth.of(program(seed, Plan.draw(seed), kind))


def fitting(kind: str, count: int) -> list[int]:
    """Return the first seeds whose plans have several ranks."""
    seeds = (seed for seed in range(500) if KINDS[kind].fits(Plan.draw(seed)))
    return [next(seeds) for _ in range(count)]


def late_by_definition(result) -> dict[int, tuple[int, int]]:
    """Return by GPU how late it comes to all collectives, and how long the others wait then."""
    total: dict[int, list[int]] = defaultdict(lambda: [0, 0])
    collectives = {id(w.collective): w.collective for w in result.machine.works() if w.collective}
    for collective in collectives.values():
        *others, last = sorted(collective.members, key=lambda work: work.start)
        ns = last.start - statistics.median_low(work.start for work in others)
        if ns > 0:
            total[last.stream.context.gpu.number][0] += ns
            total[last.stream.context.gpu.number][1] += sum(last.start - w.start for w in others)
    return {gpu: (late, waited) for gpu, (late, waited) in total.items()}


def said_of(report: Report) -> dict[int, tuple[int, int]]:
    attributed = report.attributed
    late = LateArrivals.of(Run.of(attributed))
    gpu = Devices.of_report(attributed).gpu[late.activity]
    return {
        one: (int(late.late[gpu == one].sum()), int(late.waited[gpu == one].sum()))
        for one in set(gpu.tolist())
    }


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["late_rank_host", "late_rank_gpu"])
def test_ranks_come_late_as_by_the_definition(tmp_path, kind):
    for seed in fitting(kind, 6):
        truth = truth_of(seed, kind)
        [path] = write(truth.result, tmp_path / f"{seed}.sqlite")
        assert said_of(bridge.load(path)) == late_by_definition(truth.result) != {}


@pytest.mark.slow
def test_ranks_in_files_of_their_own_come_as_late(tmp_path):
    [seed] = fitting("late_rank_host", 1)
    truth = truth_of(seed, "late_rank_host")
    reports = [
        bridge.load(*write(truth.result, tmp_path / f"{n}.sqlite", per_process=n == 1))
        for n in range(2)
    ]
    one, several = map(said_of, reports)
    assert one == several


@pytest.mark.slow
@pytest.mark.parametrize("seed", fitting("late_rank_host", 5))
def test_the_path_of_each_rank_adds_up(tmp_path, seed):
    truth = truth_of(seed, "late_rank_host")
    [path] = write(truth.result, tmp_path / "r.sqlite")
    rows = json.loads(done("report", "--by", "straggler", "--format", "json", path))["rows"]
    total: dict[str, int] = defaultdict(int)
    for row in rows:
        total[row["rank"]] += row["time_ns"]
        assert row["more_ns"] == row["time_ns"] - row["others_ns"]
    last = defaultdict(int)
    for work in truth.result.machine.works():
        if work.collective:
            last[work.stream.context.gpu.number] = max(
                last[work.stream.context.gpu.number], work.start
            )
    begin = truth.span[0]
    assert sorted(total.values()) == sorted(start - begin for start in last.values())


@pytest.mark.slow
def test_the_late_rank_is_named_with_what_it_does(tmp_path):
    """Of programs in which the host of one rank does more, all that lose 2 % by it; their ops have names."""
    checked = 0
    for seed in fitting("late_rank_host", 10):
        truth = truth_of(seed, "late_rank_host")
        [trouble] = truth.troubles
        plan = truth.result.plan
        share = trouble.true_saving_ns / truth.length_ns
        if (
            not plan.annotated
            or plan.one_process
            or plan.extra["late_rank_host"]["barrier"]
            or share < 0.03
        ):
            continue
        [path] = write(truth.result, tmp_path / f"{seed}.sqlite")
        [finding] = json.loads(done("advise", "--rule", "late-rank", "--format", "json", path))[
            "advice"
        ]
        gpu = int(plan.extra["late_rank_host"]["rank"])
        assert finding["figures"]["rank"].startswith((f"GPU {gpu}", f"rank {gpu}"))
        assert finding["figures"]["what"] == "host code of augment"
        assert finding["saving_ns"] == pytest.approx(trouble.true_saving_ns, rel=0.1)
        checked += 1
    assert checked >= 2


@pytest.mark.slow
def test_what_if_spans_ranks_in_files_of_their_own(tmp_path):
    """The run without the op of the late rank is the simulated one without it, from one file and from one per rank."""
    seed = 125  # four ranks in processes of their own
    truth = truth_of(seed, "late_rank_host")
    saving = truth.troubles[0].true_saving_ns
    assert saving > 0.1 * truth.length_ns
    for per_process in (False, True):
        paths = write(truth.result, tmp_path / f"{per_process}.sqlite", per_process=per_process)
        assert len(paths) == (4 if per_process else 1)
        asked = ("what-if", *paths, "--op", "augment", "--faster", "100%", "--format", "json")
        assert json.loads(done(*asked))["saving_ns"] == pytest.approx(saving, rel=0.01)


@given(NUMBERS)
def test_the_middle_is_the_lower_median_of_the_others(rows):
    expected = [
        [
            statistics.median_low([other[k] for m, other in enumerate(rows) if m != n])
            for k in range(3)
        ]
        for n in range(len(rows))
    ]
    assert _middle_of_others(np.array(rows)).tolist() == expected


def test_without_collectives_there_is_no_table(tmp_path):
    result = run("report", "--by", "straggler", steady().written(tmp_path / "r.sqlite"))
    assert result.exit_code == 0
    assert "no collective of several ranks on one clock" in result.output


# -- Transfers, groups and roots


def transferring(sender_us: int, receiver_us: int, *, reader: str = "recv 1<-0") -> Story:
    """Two threads with a GPU each: a kernel on the first, what it computed is sent, a kernel on the second; ten times."""
    story = Story(gpus=2)
    at = [(story.now, story.done)] * 2
    for _ in range(10):
        for device, op, us in ((0, "make", sender_us), (1, "use", receiver_us)):
            story.device, story.number, (story.now, story.done) = device, device + 1, at[device]
            with story.op(op):
                story.rest(us)
            at[device] = story.now, story.done
        begin = max(max(one) + 7 for one in at)
        for device, op in ((0, "nccl:send 0->1"), (1, f"nccl:{reader}")):
            story.device, story.number, (story.now, story.done) = device, device + 1, at[device]
            with story.op(op):
                story.kernel("ncclDevKernel_SendRecv", begin + 20 - max(story.now, story.done))
            story.wait()
            at[device] = story.now, story.done
    return story


def met(story: Story, path) -> Met:
    return Met.of(Run.of(bridge.load(story.written(path)).attributed).work)


def test_a_receiver_waits_for_its_sender(tmp_path):
    path = tmp_path / "r.sqlite"
    assert len(met(transferring(100, 10), path).awaited) == 20
    rows = {
        row["op"]: row
        for row in json.loads(done("report", "--by", "critical", "--format", "json", path))["rows"]
    }
    assert rows["make"]["time_ns"] == 10 * 102_000  # the range around takes 1 µs at each end
    assert "use" not in rows


def test_others_do_not_wait_for_it(tmp_path):
    assert len(met(transferring(100, 10, reader="recv 1<-2"), tmp_path / "r.sqlite").awaited) == 0


def by_definition(calls: list[tuple[int, int, int, int]]) -> list[set[int]]:
    """Return the calls of each collective: the n-th of a group on each rank, where all of these run the same kinds."""
    kinds = defaultdict(list)
    for number, (rank, group, kind, start) in enumerate(calls):
        kinds[rank, group].append((start, kind, number))
    result = defaultdict(set)
    for (_, group), those in kinds.items():
        those.sort()
        signature = tuple(kind for _, kind, _ in those)
        for n, (*_, number) in enumerate(those):
            result[group, signature, n].add(number)
    return sorted(map(sorted, result.values()))


@given(
    st.lists(
        st.tuples(*[st.integers(0, 2)] * 3, st.integers(0, 99)),
        max_size=14,
        unique_by=lambda c: c[3],
    )
)
def test_calls_of_a_group_match_in_their_order(calls):
    rank, group, kind, start = np.array(calls, np.int64).reshape(-1, 4).T
    stream = start % 3  # which says nothing
    number = match_collectives(rank, stream, kind, start=start, group=group)
    found = [np.flatnonzero(number == one).tolist() for one in np.unique(number)]
    assert sorted(found) == by_definition(calls)


def test_an_identity_counts_before_the_order():
    rank, start = np.array([0, 0, 1]), np.array([1, 2, 3])
    nothing = np.zeros(3, np.int64)
    number = match_collectives(rank, nothing, nothing, start=start, identity=np.array([5, 6, 6]))
    assert number[1] == number[2] != number[0]


@pytest.mark.parametrize(("collective", "waiting"), [("Broadcast", [1, 2]), ("Reduce", [0])])
def test_only_some_wait_in_a_collective_with_a_root(collective, waiting):
    """Of three ranks of a communicator, with the first one as root."""
    calls = SimpleNamespace(
        collective=np.array([collective] * 3, object),
        messages=SimpleNamespace(rank=np.arange(3), root=np.zeros(3, np.int64)),
    )
    awaited, waits = _sides(calls, np.arange(3), np.zeros(3, np.int64))
    assert np.flatnonzero(waits).tolist() == waiting
    assert np.flatnonzero(awaited).tolist() == [n for n in range(3) if n not in waiting]


# -- As PyTorch's profiler records them


def traced(folder, rank: int, *calls: tuple[str, int, dict]):
    """Write the trace of a rank that makes these calls: kind of kernel, start in µs, and what PyTorch says of it."""
    events = []
    for number, (kind, start, said) in enumerate(calls, 1):
        op = kineto.op("record_param_comms", start - 20, 10)
        op["args"] |= {"In msg nelems": 8, **said}
        events += [
            op,
            kineto.call(start - 15, 2, number),
            kineto.kernel(f"ncclDevKernel_{kind}", start, 500, number),
        ]
    facts = {"distributedInfo": {"rank": rank, "world_size": 4}, "baseTimeNanoseconds": 0}
    return kineto.write(folder / f"rank{rank}.json", kineto.trace(events, **facts))


def together(paths) -> set[tuple[int, ...]]:
    """Return the ranks, by their report, of what matches."""
    attributed = bridge.load(*paths).attributed
    matched = MatchedCalls.of(attributed)
    report = attributed.capture.activities.report[matched.calls.row]
    return {tuple(report[matched.number == one].tolist()) for one in set(matched.number.tolist())}


REDUCE = "AllReduce_Sum_f32_RING_LL"


@pytest.mark.parametrize("said", [{}, {"Process Group Name": "tp"}])
def test_groups_of_one_shape_are_not_one(tmp_path, said):
    ranks = [[0, 1], [0, 1], [2, 3], [2, 3]]
    paths = [
        traced(tmp_path, n, (REDUCE, 100 + n, said and {**said, "Process Group Ranks": str(group)}))
        for n, group in enumerate(ranks)
    ]
    assert together(paths) == ({(0, 1), (2, 3)} if said else {(0, 1, 2, 3)})


def test_comms_ids_match_where_a_capture_begins_later(tmp_path):
    def reduces(*ids):
        return [(REDUCE, 1_000 * one, {"Comms Id": 2**63 + one}) for one in ids]

    paths = [traced(tmp_path, 0, *reduces(1, 2, 3)), traced(tmp_path, 1, *reduces(2, 3))]
    assert together(paths) == {(0,), (0, 1)}


def test_several_kernels_of_a_collective_match_in_their_order(tmp_path):
    calls = [(REDUCE, 1_000 * n, {"Comms Id": 7}) for n in (1, 2)]
    paths = [traced(tmp_path, rank, *calls) for rank in range(2)]
    number = MatchedCalls.of(bridge.load(*paths).attributed).number.tolist()
    assert number[:2] == number[2:]
    assert number[0] != number[1]


def test_sends_match_their_receives(tmp_path):
    sends = [("SendRecv", 100 * rank, {"Dst Rank": rank}) for rank in (1, 2, 3)]
    paths = [
        traced(tmp_path, 0, *sends),
        *(traced(tmp_path, rank, ("SendRecv", 400, {"Src Rank": 0})) for rank in (3, 2, 1)),
    ]
    attributed = bridge.load(*paths).attributed
    number = MatchedCalls.of(
        attributed
    ).number.tolist()  # three sends, to 1, 2 and 3; receives on 3, 2 and 1
    assert number[:3] == number[:2:-1]
    assert len(set(number)) == 3
