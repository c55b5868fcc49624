"""How unevenly ranks work, one activity after the other: tables against their definitions."""

import random
from collections import defaultdict
from statistics import median

import pytest
from made_reports import PUSH_POP, thread
from real_parts import NIGHT, corpus_reports

import bridge
from bridge.analyze.run.ranks.table import Run
from bridge.importers import ReportError
from bridge.join.arrays import NONE
from ranks.run import ALL_REDUCE, BEGIN_NS, STEP_NS, Rank, begun, meeting, run

pytestmark = pytest.mark.slow


SECOND = 1_000_000_000
TIMES = [BEGIN_NS + n * STEP_NS for n in range(5)]
NOBODY = (-1, -1, "")
WITHOUT_WORK = ("failed-export", "no-kernels-osrt")


def uneven(folder, seed):
    """Write reports of ranks that run ops now and then, each as long as it likes; return them and their work."""
    draw, paths, work = random.Random(seed), [], []
    for n in range(draw.randint(1, 5)):
        one = Rank(n, pid=100 + n, environment=[f"RANK={n + 10}"])
        made = begun(one)
        for at in range(draw.randint(1, 12)):
            start, op, time = at * 1_000, draw.choice("abcd"), draw.randint(0, 90)
            made.annotation(PUSH_POP, start, start + 50, text=op, thread=thread(one.pid))
            made.kernel("gemm", start + 5, one.pid, start + 200, start + 200 + time)
            work.append((op, n + 10, time))
        paths.append(made.written(folder / f"{n}.sqlite"))
    return paths, work


@pytest.mark.parametrize("seed", range(12) if NIGHT else (0, 2, 5, 7))
def test_skew_is_as_defined(folder, seed):
    paths, work = uneven(folder, seed)
    spent = defaultdict(lambda: defaultdict(int))
    for op, rank, time in work:
        spent[op][rank] += time
    joined = bridge.load(*paths)
    table = joined.by("skew")
    assert set(table["op"]) == set(spent)
    for row in table.to_dict("records"):
        own = spent[row["op"]]
        middle, slowest, fastest = median(own.values()), max(own.values()), min(own.values())
        assert row["ranks"] == len(own)
        assert (row["total_ns"], row["mean_ns"]) == (
            sum(own.values()),
            pytest.approx(sum(own.values()) / len(own)),
        )
        assert (row["median_ns"], row["slowest_ns"], row["fastest_ns"]) == (
            middle,
            slowest,
            fastest,
        )
        assert row["slowest"] == f"rank {min(r for r in own if own[r] == slowest)}"
        assert row["fastest"] == f"rank {min(r for r in own if own[r] == fastest)}"
        assert row["skew"] == (pytest.approx(slowest / middle - 1) if middle else 0)
        assert row["lost_ns"] == round(slowest - middle)
    assert list(table["lost_ns"]) == sorted(table["lost_ns"], reverse=True)
    alone = joined.by("op,rank").set_index(["op", "rank"])["gpu_self_ns"].to_dict()
    assert alone == {(op, rank): time for op, own in spent.items() for rank, time in own.items()}


@pytest.mark.parametrize("path", corpus_reports())
def test_ranks_add_up_to_ops(path):
    if path.stem in WITHOUT_WORK:
        with pytest.raises(ReportError):
            bridge.load(path)
        return
    joined = bridge.load(path)
    ops = joined.by("op")
    own = ops[ops["gpu_self_ns"] > 0].set_index("op")["gpu_self_ns"].to_dict()
    skew = joined.by("skew")
    skew = skew[skew["total_ns"] > 0]
    assert skew.set_index("op")["total_ns"].to_dict() == own
    for by in ("rank,op", "host,op"):
        assert joined.by(by).groupby("op")["gpu_self_ns"].sum().to_dict().items() >= own.items()
    assert joined.by("rank,kind")["total_ns"].sum() == joined.totals["gpu_ns"]
    rows, totals = (found := Run.of(joined.attributed)).rows, found.totals
    assert (rows["busy_ns"] <= rows["run_ns"]).all()
    assert rows["gpu_ns"].sum() == totals["gpu_ns"] == joined.totals["gpu_ns"]
    devices = joined.by("device")
    assert rows["kernels"].sum() == devices["kernels"].sum()
    assert totals["attributed_share"] == pytest.approx(
        joined.totals["attributed_ns"] / max(1, joined.totals["gpu_ns"])
    )


@pytest.mark.parametrize("wrong", [0, 400_000])
def test_who_comes_last_to_collectives(folder, wrong):
    """Rank 2 is slower; clocks that are wrong do not hide it."""
    slower = (0, 30_000, 700_000, 10_000)
    ranks = [
        Rank(n, n * SECOND, n * wrong, slow, pid=100 + n, environment=[f"RANK={n}"])
        for n, slow in enumerate(slower)
    ]
    paths, truth = run(folder, ranks)
    apart = [max(came) - min(came) for came in truth.arrived]
    [row] = bridge.load(*paths).by("collective").to_dict("records")
    assert (row["ranks"], row["count"]) == (4, 4 * len(apart))
    assert row["arrival_mean_ns"] == pytest.approx(sum(apart) / len(apart))
    assert row["arrival_max_ns"] == max(apart)
    assert row["last"] == row["straggler"]
    assert "rank 2" in row["last"]


def test_without_clocks_that_compare_nobody_is_last(folder):
    ranks = [Rank(n, pid=100 + n, wrong=n * 3 * SECOND) for n in range(2)]
    [row] = bridge.load(*run(folder, ranks)[0]).by("collective").to_dict("records")
    assert came(row) == NOBODY
    assert row["wait_ns"] >= 0  # which needs no clock


def test_of_an_op_communication_is_told_apart(folder):
    """Kernels of communication of 500 ns each, beside others of 30 ns in one op."""
    made = begun(Rank(0))
    for n in range(3):
        made.annotation(PUSH_POP, 1_000 * n, 1_000 * n + 50, text="both", thread=thread(100))
        made.kernel("gemm", 1_000 * n + 5, 100, 1_000 * n + 60, 1_000 * n + 90)
        made.kernel(ALL_REDUCE, 1_000 * n + 20, 100, 1_000 * n + 100, 1_000 * n + 600)
    [row] = bridge.load(made.written(folder / "r.sqlite")).by("skew").to_dict("records")
    assert (row["op"], row["total_ns"], row["communication_ns"]) == ("both", 3 * 530, 3 * 500)


def came(row):
    return row["arrival_mean_ns"], row["arrival_max_ns"], row["last"]


def test_a_rank_alone_is_not_last(folder):
    path = meeting(folder / "a.sqlite", {Rank(0): TIMES})
    [row] = bridge.load(path).by("collective").to_dict("records")
    assert came(row) == NOBODY


def test_a_row_with_any_call_of_a_rank_alone_says_nothing(folder):
    """The third rank's calls are none of the others': they are fewer."""
    one = meeting(folder / "a.sqlite", {Rank(0): TIMES})
    late = [TIMES[0] + 90, *TIMES[1:]]
    two = meeting(folder / "b.sqlite", {Rank(1, pid=101): late})
    [row] = bridge.load(one, two).by("collective").to_dict("records")
    assert came(row)[:2] == (90 / 5, 90)
    both = {Rank(1, pid=101): late, Rank(2, pid=102, gpu=1): TIMES[:2]}
    [row] = bridge.load(one, meeting(folder / "c.sqlite", both)).by("collective").to_dict("records")
    assert came(row) == NOBODY


def test_who_meets_in_one_report_needs_no_other_clock(folder):
    """The other report has no collectives, so that its clock and this one's are not brought together."""
    made = begun(Rank(0))
    made.kernel("gemm", 10, 100, 20, 50)
    late = [t + 120 for t in TIMES]
    both = meeting(folder / "b.sqlite", {Rank(1, pid=101): TIMES, Rank(2, pid=102, gpu=1): late})
    [row] = bridge.load(made.written(folder / "a.sqlite"), both).by("collective").to_dict("records")
    assert came(row)[:2] == (120, 120)
    assert row["last"].startswith("GPU 1")


def test_two_ranks_of_one_report_share_a_clock(corpus):
    joined = bridge.load(corpus / "nsys" / "pytorch-2gpu-before.sqlite")
    row = joined.by("collective").iloc[0]
    times = joined.capture.activities.to_pandas()
    talks = times["name"].astype(str).str.contains("nccl") & (joined.attributed.node != NONE)
    one, other = (
        times[talks & (times["device"] == gpu)]["start"].sort_values().to_numpy() for gpu in (0, 1)
    )
    assert row["arrival_max_ns"] == abs(one - other).max()
    assert row["arrival_mean_ns"] == pytest.approx(abs(one - other).mean())
    assert row["last"] == row["straggler"] == "GPU 1"
