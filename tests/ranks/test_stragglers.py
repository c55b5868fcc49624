"""The rank that others wait for: how late it comes, and what it spends more time on, beside simulated programs."""

from __future__ import annotations

import itertools
import json
import statistics
from collections import defaultdict

import numpy as np
import pytest
from advice.rules import steady
from advice.story import Story
from command import bridge as run
from command import done
from concurrency.nccl_made import ALL_REDUCE, RING, SEND_RECV, Nccl, blob
from hypothesis import given
from hypothesis import strategies as st
from kineto import made as kineto
from simulated import Plan, Truth, iterations, program, write
from simulated.troubles import KINDS

import bridge
from bridge.analyze.core.catalog.lookup import ADVICE_DETAILS
from bridge.analyze.core.catalog.views import OF_GROUPS, VIEWS
from bridge.analyze.core.devices import Devices
from bridge.analyze.run.concurrency.matching import MatchedCalls, match_collectives
from bridge.analyze.run.critical.device import Met
from bridge.analyze.run.critical.run import Run
from bridge.analyze.run.ranks.stragglers import LateArrivals, _middle_of_others
from bridge.importers import frames
from bridge.report import Report
from ranks.run import Rank
from ranks.run import run as made_run

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
def test_in_a_step_the_path_goes_to_its_last_collective(tmp_path):
    seed = 131
    truth = truth_of(seed, "late_rank_host")
    [path] = write(truth.result, tmp_path / "r.sqlite")
    step = truth.result.plan.step_ranges.format(20)
    rows = json.loads(
        done("report", "--by", "straggler", "--range", step, "--format", "json", path)
    )["rows"]
    total: dict[str, int] = defaultdict(int)
    for row in rows:
        total[row["rank"]] += row["time_ns"]
    steps = [one for one in iterations(truth.result) if one.number == 20]
    length = max(one.work[gpu][1] for one in steps for gpu in one.work) - min(
        s.start for s in steps
    )
    assert len(total) == 2
    assert all(0.3 * length < ns <= length for ns in total.values())


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


def test_two_senders_do_not_wait_for_each_other(tmp_path):
    """As rank 0 of two groups: the numbers are those of ranks in their group."""
    assert len(met(transferring(100, 10, reader="send 0->1"), tmp_path / "r.sqlite").awaited) == 0


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


def test_an_identity_that_ranks_have_unlike_often_tells_nothing():
    rank, start = np.array([0, 0, 0, 1, 1]), np.array([10, 20, 30, 20, 30])
    nothing = np.zeros(5, np.int64)
    number = match_collectives(rank, nothing, nothing, start=start, identity=nothing + 5)
    assert len(set(number.tolist())) == 5


def test_an_identity_is_one_of_its_group():
    rank, nothing = np.array([0, 0, 1, 1]), np.zeros(4, np.int64)
    group = np.array([1, 2, 1, 2])
    number = match_collectives(
        rank, nothing, nothing, start=np.arange(4), group=group, identity=nothing
    )
    assert number.tolist() == [number[0], number[1], number[0], number[1]]
    assert number[0] != number[1]


# -- As NCCL's payloads tell it


class Told(Nccl):
    """Ranks of communicators, by their process, that call one function each in turns."""

    def __init__(self, communicators: dict[int, tuple[int, int, int]]) -> None:
        super().__init__()
        self.communicators = communicators  # id, size and rank of each process
        for pid, (communicator, size, rank) in communicators.items():
            self.gpu("A100", pid)
            self.now = 1_000
            told = blob("ncclCommInitRank", communicator, size, rank, 0)
            self.function("ncclCommInitRank", told, pid=pid)

    def turns(self, call, times: int = 5) -> Told:
        for turn in range(times):
            for pid in self.communicators:
                self.now = 5_000 + 1_000_000 * turn + 100 * pid
                call(pid, *self.communicators[pid])
        return self

    def met(self, path) -> tuple[list[int], list[int]]:
        """Give how often each process is waited for, and waits."""
        run = Run.of(bridge.load(self.report(path)).attributed)
        met, pid = Met.of(run.work), frames.pid(run.work.column("process"))
        return tuple(
            np.bincount(pid[of], minlength=max(self.communicators) + 1)[1:].tolist()
            for of in (met.awaited, met.waiting)
        )


FOUR = {pid: (77, 4, pid - 1) for pid in range(1, 5)}


@pytest.mark.parametrize(
    ("function", "kind", "awaited", "waiting"),
    [
        ("ncclBroadcast", "Broadcast", [5, 0, 0, 0], [0, 5, 5, 5]),
        ("ncclReduce", "Reduce_Sum_f32", [0, 5, 5, 5], [5, 0, 0, 0]),
    ],
)
def test_only_some_wait_in_a_collective_with_a_root(tmp_path, function, kind, awaited, waiting):
    root = (0, 0) if function == "ncclReduce" else (0,)

    def call(pid, communicator, _size, _rank):
        told = blob(function, communicator, 64, *root)
        ranks.function(function, told, RING.format(kind), pid=pid, time=5_000)

    ranks = Told(FOUR)
    assert ranks.turns(call).met(tmp_path / "r.sqlite") == (awaited, waiting)


def test_peers_of_a_communicator_meet(tmp_path):
    def call(pid, communicator, _size, rank):
        function = "ncclRecv" if rank % 2 else "ncclSend"
        ranks.function(
            function, blob(function, communicator, 64, rank ^ 1), SEND_RECV, pid=pid, time=5_000
        )

    ranks = Told(FOUR)
    assert ranks.turns(call).met(tmp_path / "r.sqlite") == ([5] * 4, [5] * 4)


def ring(ranks: Told, pid: int, communicator: int, size: int, rank: int) -> None:
    ranks.function("ncclGroupStart", None, pid=pid)
    ranks.function("ncclSend", blob("ncclSend", communicator, 64, (rank + 1) % size), pid=pid)
    ranks.function("ncclRecv", blob("ncclRecv", communicator, 64, (rank - 1) % size), pid=pid)
    ranks.function("ncclGroupEnd", None, SEND_RECV, pid=pid, time=5_000)


def test_two_ranks_of_a_larger_ring_do_not_wait_for_each_other(tmp_path):
    ranks = Told({1: (77, 4, 0), 3: (77, 4, 2)})
    ranks.turns(lambda *one: ring(ranks, *one))
    assert ranks.met(tmp_path / "r.sqlite") == ([0, 0, 0], [0, 0, 0])


def reducing(ranks: Told, late: dict[int, int]):
    def call(pid, communicator, _size, _rank):
        ranks.now += late.get(pid, 0)
        told = blob("ncclAllReduce", communicator, 4_096, 0)
        ranks.function("ncclAllReduce", told, ALL_REDUCE, pid=pid, time=900_000 - late.get(pid, 0))

    return call


TWO_PAIRS = {pid: (77 if pid < 3 else 99, 2, (pid - 1) % 2) for pid in range(1, 5)}


def test_every_command_knows_that_communicators_are_not_one(tmp_path):
    """Two pairs that reduce apart; those of the second one come 500 µs later, both at once."""
    ranks = Told(TWO_PAIRS)
    path = ranks.turns(reducing(ranks, {3: 500_000, 4: 500_000}), 20).report(tmp_path / "r.sqlite")
    rows = json.loads(done("report", "--by", "straggler", "--format", "json", path))["rows"]
    waits = [row["time_ns"] for row in rows if row["cause"] == "late rank"]
    assert sum(waits) < 10_000
    assert (
        json.loads(done("advise", "--rule", "late-rank", "--format", "json", path))["advice"] == []
    )
    compared = [row for row in rows if row["more_ns"] > 10_000]
    assert compared == []  # with ranks that it meets alone


def test_ranks_that_did_not_run_at_one_time_did_not_wait(tmp_path):
    """By their times it was not one collective, whatever is said of it."""

    def call(pid, communicator, _size, _rank):
        ranks.now += 500_000 * (pid == 2)
        told = blob("ncclAllReduce", communicator, 4_096, 0)
        ranks.function("ncclAllReduce", told, ALL_REDUCE, pid=pid, time=100_000)

    ranks = Told({1: (77, 2, 0), 2: (77, 2, 1)})
    assert ranks.turns(call).met(tmp_path / "r.sqlite") == ([0, 0], [0, 0])


def test_the_middle_of_the_others_leaves_the_late_rank_out(tmp_path):
    """Of three ranks that come at 0, 400 and 1 000 ns: half of the others, the earlier half, is the first."""

    def call(pid, communicator, _size, _rank):
        ranks.now += {1: 0, 2: 300, 3: 800}[pid]  # with 100 per process
        told = blob("ncclAllReduce", communicator, 4_096, 0)
        ranks.function("ncclAllReduce", told, ALL_REDUCE, pid=pid, time=100_000)

    ranks = Told({pid: (77, 3, pid - 1) for pid in (1, 2, 3)})
    late = LateArrivals.of(
        Run.of(bridge.load(ranks.turns(call).report(tmp_path / "r.sqlite")).attributed)
    )
    assert (late.late.tolist(), late.waited.tolist()) == ([1_000] * 5, [1_600] * 5)


@pytest.mark.slow
def test_a_window_is_of_each_report_as_its_clock_has_it(tmp_path):
    """The session of one rank begins 5 ms later, which changes no time of a window."""
    totals = []
    for zero in (0, 5_000_000):
        ranks = [Rank(0, pid=100), Rank(1, pid=101, zero=zero, slower=300_000, gpu=1)]
        paths, _ = made_run(tmp_path / str(zero), ranks)
        words = ("--from", "30ms", "--to", "60ms", "--format", "json")
        total: dict[str, int] = defaultdict(int)
        for row in json.loads(done("report", "--by", "straggler", *words, *paths))["rows"]:
            total[row["rank"]] += row["time_ns"]
        totals.append(total)
    assert totals[0] == totals[1]
    assert all(20_000_000 < ns < 30_000_000 for ns in totals[0].values())


def test_what_needs_the_graph_reads_what_tells_groups():
    views = [view for view in VIEWS.values() if {"waits", "cuda_streams"} <= {*view.details}]
    assert len(views) > 4
    assert all({*OF_GROUPS} <= {*view.details} for view in views)
    assert {*OF_GROUPS} <= ADVICE_DETAILS


# -- As PyTorch's profiler records them


def traced(folder, rank: int, *calls: tuple[str, int, dict], op: str = "record_param_comms"):
    """Write the trace of a rank that makes these calls: kind of kernel, start in µs, and what PyTorch says of it."""
    name = op
    events = []
    for number, (kind, start, said) in enumerate(calls, 1):
        op = kineto.op(name, start - 20, 10)
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


def test_a_call_whose_op_was_not_recorded_is_of_the_group_of_its_stream(tmp_path):
    said = {"Process Group Name": "world", "Process Group Ranks": "[0, 1]"}
    calls = [(REDUCE, 1_000 * n, said) for n in (1, 2, 3)]
    paths = [traced(tmp_path, rank, *calls) for rank in range(2)]
    trace = json.loads(paths[0].read_text())
    trace["traceEvents"] = [
        one for n, one in enumerate(trace["traceEvents"]) if n != 3
    ]  # the second op
    paths[0].write_text(json.dumps(trace))
    assert together(paths) == {(0, 1)}


def test_the_late_rank_is_not_one_that_waited_for_it_before(tmp_path):
    """Groups of two wait for each other, then all four: rank 0 comes last to these, as it waited for rank 1.

    In the first step it is late itself.
    """
    now, events, number = dict.fromkeys(range(4), 100), [[] for _ in range(4)], itertools.count(1)

    def reduce(name, ranks, begin):
        end = max(begin.values()) + 220
        for rank in ranks:
            op = kineto.op("record_param_comms", begin[rank], 10)
            op["args"] |= {
                "In msg nelems": 8,
                "Process Group Name": name,
                "Process Group Ranks": str(ranks),
            }
            at, start = next(number), begin[rank] + 20
            events[rank] += [
                op,
                kineto.call(begin[rank] + 2, 4, at),
                kineto.kernel(f"ncclDevKernel_{REDUCE}", start, end - start, at),
            ]
            wait = kineto.event(
                "cuda_runtime",
                "cudaStreamSynchronize",
                begin[rank] + 12,
                end - begin[rank] - 11,
                correlation=1_000_000 + at,
            )
            events[rank].append(wait)
        return end

    for step in range(21):
        begin = {}
        for rank in range(4):
            length = 1_100 if rank == min(step, 1) else 100
            events[rank].append(kineto.op("work", now[rank], length))
            begin[rank] = now[rank] + length
        for pair in ([0, 1], [2, 3]):
            end = reduce(f"pair {pair[0]}", pair, {rank: begin[rank] for rank in pair})
            begin |= {rank: end + 5 + 5 * (rank == 0) for rank in pair}
        now = dict.fromkeys(now, reduce("world", [0, 1, 2, 3], begin) + 5)
    facts = [
        {"distributedInfo": {"rank": rank, "world_size": 4}, "baseTimeNanoseconds": 10**18}
        for rank in range(4)
    ]
    paths = [
        kineto.write(tmp_path / f"rank{n}.json", kineto.trace(one, **facts[n]))
        for n, one in enumerate(events)
    ]
    [finding] = json.loads(done("advise", "--rule", "late-rank", "--format", "json", *paths))[
        "advice"
    ]
    assert (finding["figures"]["rank"], finding["figures"]["what"]) == (
        "rank 1",
        "host code of work",
    )
    assert finding["saving_ns"] == pytest.approx(20 * 1_000_000, rel=0.02)
    [row] = [
        row
        for row in json.loads(done("report", "--by", "critical", "--format", "json", *paths))[
            "rows"
        ]
        if (row["op"], row["kind"]) == ("work", "host code")
    ]
    assert row["rank"] == "rank 1"


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


def test_two_pairs_whose_names_are_alike_are_not_four_that_wait(tmp_path):
    """As ranks 0 and 1 of two groups: nobody knows which two are one pair."""
    paths = [
        traced(tmp_path, n, ("SendRecv", 100, {}), op=f"nccl:{op}")
        for n, op in enumerate(["send 0->1", "send 0->1", "recv 1<-0", "recv 1<-0"])
    ]
    matched = MatchedCalls.of(bridge.load(*paths).attributed)
    assert len(set(matched.number.tolist())) == 1
    assert not matched.waits.any()


def test_sends_match_their_receives(tmp_path):
    """By their ranks: each rank counts its own transfers, so that their ids are not those of the other side."""
    sends = [("SendRecv", 100 * n, {"Dst Rank": n, "Comms Id": n}) for n in (1, 2, 3)]
    received = ("SendRecv", 400, {"Src Rank": 0, "Comms Id": 1})
    paths = [
        traced(tmp_path, 0, *sends),
        *(traced(tmp_path, rank, received) for rank in (3, 2, 1)),
    ]
    attributed = bridge.load(*paths).attributed
    number = MatchedCalls.of(
        attributed
    ).number.tolist()  # three sends, to 1, 2 and 3; receives on 3, 2 and 1
    assert number[:3] == number[:2:-1]
    assert len(set(number)) == 3
