"""How unevenly ranks work, one activity after the other: tables against their definitions."""

import random
from collections import defaultdict
from statistics import median

import pytest
from made_reports import PUSH_POP, thread
from real_parts import corpus_reports

import bridge
from bridge.analyze.ranks.table import Run
from bridge.join.order import NONE
from importers import ReportError
from ranks.run import Rank, begun, run

SECOND = 1_000_000_000
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


@pytest.mark.parametrize("seed", range(12))
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
    assert (rows["busy_ns"] <= rows["span_ns"]).all()
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
    assert (row["arrival_mean_ns"], row["arrival_max_ns"], row["last"]) == (-1, -1, "")
    assert row["wait_ns"] >= 0  # which needs no clock


def test_two_ranks_of_one_report_share_a_clock(corpus):
    joined = bridge.load(corpus / "nsys" / "pytorch-2gpu-before.sqlite")
    row = joined.by("collective").iloc[0]
    times = joined.report.activities
    talks = times["name"].astype(str).str.contains("nccl") & (joined.attributed.node != NONE)
    one, other = (
        times[talks & (times["device"] == gpu)]["start"].sort_values().to_numpy() for gpu in (0, 1)
    )
    assert row["arrival_max_ns"] == abs(one - other).max()
    assert row["arrival_mean_ns"] == pytest.approx(abs(one - other).mean())
    assert row["last"] == row["straggler"] == "GPU 1"
