"""What a run's ranks amount to together: hosts that have a name, the widest spread of clocks, numbers of processes."""

import json
from collections import defaultdict

import pytest
from account.exports import events_of
from command import done
from witness.account import run as run_of

import bridge
from bridge.analyze.run.ranks.table import Run
from ranks.run import BEGIN_NS, STEP_NS, Rank, begun, meeting, run

pytestmark = pytest.mark.slow


def found(folder, ranks, **how):
    return Run.of(bridge.load(*run(folder, ranks, **how)[0]).attributed)


@pytest.mark.parametrize(("hosts", "many"), [("aab", 2), (["a", "", "b"], 2), (["", ""], 0)])
def test_hosts_are_those_with_a_name(folder, hosts, many):
    ranks = [Rank(n, pid=100 + n, host=host) for n, host in enumerate(hosts)]
    of = found(folder, ranks)
    assert of.rows["host"].tolist() == list(hosts)
    assert of.totals["hosts"] == many


def test_clocks_agree_within_the_widest_spread(folder):
    of = found(folder, [Rank(n, pid=100 + n) for n in range(3)], jitter=10_000)
    spreads = of.rows["clock_spread_ns"].tolist()
    assert spreads[0] == 0 < min(spreads[1:])
    assert of.totals["clock_spread_ns"] == max(spreads)


def test_where_one_spread_is_unknown_that_of_all_is(folder):
    of = found(folder, [Rank(0), Rank(1, pid=101)], steps=2)  # too few collectives
    assert of.rows["clock_spread_ns"].tolist() == [0, -1]
    assert of.totals["clock_spread_ns"] == -1


def test_numbers_of_processes_have_24_bits(folder):
    assert found(folder, [Rank(0, pid=0xABCDEF)]).rows["pid"].tolist() == [0xABCDEF]


def test_figures_are_of_the_rank_and_times_of_the_run(folder):
    """Each range begins 710 ns before its kernel of 500 ns ends; the second has fewer, and its clock is 1 µs behind."""
    times = [BEGIN_NS + n * STEP_NS for n in range(5)]
    paths = [
        meeting(folder / "a.sqlite", {Rank(0): times}),
        meeting(folder / "b.sqlite", {Rank(1, 1_000, pid=101): [t - 1_000 for t in times[1:4]]}),
    ]
    of = Run.of(bridge.load(*paths).attributed)
    spans = [4 * STEP_NS + 710, 2 * STEP_NS + 710]
    assert of.rows["start_ns"].tolist() == [0, STEP_NS]
    assert of.rows["span_ns"].tolist() == spans
    assert of.rows["kernels"].tolist() == [5, 3]
    for column in ("gpu_ns", "busy_ns", "exposed_ns"):
        assert of.rows[column].tolist() == [2_500, 1_500], column
    whole = spans[0]  # the run of both, on one clock
    assert of.rows["run_ns"].tolist() == [whole, whole]
    assert of.rows["busy_share"].tolist() == [2_500 / whole, 1_500 / whole]
    assert of.rows["attributed_share"].tolist() == [1, 1]
    assert of.totals == {
        "ranks": 2, "hosts": 0, "span_ns": spans[0], "kernels": 8, "gpu_ns": 4_000, "exposed_ns": 4_000,
        "busy_share": 4_000 / (2 * whole), "attributed_share": 1, "clock_spread_ns": -1,
    }  # fmt: skip


def test_a_rank_begins_with_its_first_call(folder):
    made = begun(Rank(0))
    made.kernel("gemm", 10, 100, 500, 700)
    [row] = Run.of(bridge.load(made.written(folder / "r.sqlite")).attributed).rows.records()
    assert row["span_ns"] == 700 - 10


def test_a_rank_of_several_gpus_is_busy_for_a_share_of_the_run_on_each(folder):
    """The run lasts from the first launch, at 50, to the end of the last kernel, at 500."""
    made = begun(Rank(0))
    made.tables["devices"].append({"gpu": 1, "device": 1, "pid": 100})
    made.tables["gpus"].append({"gpu": 1, "device": 1, "name": "Imaginary GPU"})
    for start, end, device in ((100, 200, 0), (150, 300, 0), (400, 500, 0), (150, 250, 1)):
        made.kernel("gemm", start - 50, 100, start, end)
        made.tables["kernels"][-1]["device"] = device
    [row] = Run.of(bridge.load(made.written(folder / "r.sqlite")).attributed).rows.records()
    assert (row["gpu"], row["busy_ns"], row["run_ns"]) == ("0,1", 300 + 100, 2 * 450)
    assert row["busy_share"] == 400 / 900


@pytest.mark.parametrize("name", ["pytorch-2gpu-before", "pytorch-2gpu-after", "two-processes"])
def test_a_gpu_is_as_busy_as_the_summary_says(corpus, name):
    """Each process has a GPU of its own; the second witness adds up times in a loop."""
    path = corpus / "nsys" / f"{name}.sqlite"
    joined, recorded = bridge.load(path), run_of(events_of(path))
    ranks = Run.of(joined.attributed).rows.to_pandas()
    activities = joined.capture.activities
    times = defaultdict(list)
    for pid, start, end in zip(
        (activities["process"] >> 24 & 0xFFFFFF).tolist(),
        activities["start"].tolist(),
        activities["end"].tolist(),
        strict=True,
    ):
        times[pid].append((start, end))
    for pid, share in zip(ranks["pid"].tolist(), ranks["busy_share"].tolist(), strict=True):
        busy, reached = 0, 0
        for start, end in sorted(times[pid]):
            busy += max(0, end - max(start, reached))
            reached = max(reached, end)
        assert share == busy / (recorded[1] - recorded[0])
    if ranks["gpu"].is_unique:
        summary = {gpu.share for gpu in joined.summary.use.gpus}
        assert set(ranks["busy_share"]) == summary


# -- Above the table of ranks


def lines_of(*words):
    return done("report", *words, "--by", "rank").splitlines()


def test_who_is_who_stands_above_the_rows(folder):
    paths, _ = run(folder, [Rank(n, pid=100 + n) for n in range(2)])
    text = done("report", *paths, "--by", "rank")
    who, rows = text.index("exposed"), text.index("GPU self")
    assert who < text.index("2 ranks, ") < rows
    markdown = done("report", *paths, "--by", "rank", "--format", "md")
    assert markdown.startswith("| rank | ")
    assert markdown.index("| exposed |") < markdown.index("| GPU self |")


def test_programs_get_who_is_who_beside_the_rows(folder):
    paths, _ = run(folder, [Rank(n, pid=100 + n) for n in range(2)])
    document = json.loads(done("report", *paths, "--by", "rank", "--format", "json"))
    assert list(document) == ["format", "by", "source", "totals", "ranks", "rows"]
    assert [row["pid"] for row in document["ranks"]] == [100, 101]
    assert [row["rank"] for row in document["rows"]] == [0, 1]
    head, *rows = lines_of(*paths, "--format", "csv")
    assert head.startswith("rank,calls,")
    assert len(rows) == 2


def test_other_tables_and_workers_have_the_rows_alone(folder):
    paths, _ = run(folder, [Rank(n, pid=100 + n) for n in range(2)])
    for words in (["--by", "rank,op"], ["--by", "rank", "--workers", "1"]):
        assert "exposed" not in done("report", *paths, *words)
        document = json.loads(done("report", *paths, *words, "--format", "json"))
        assert "ranks" not in document


def test_the_summary_of_several_ranks_lists_them(folder):
    paths, _ = run(folder, [Rank(n, pid=100 + n, environment=[f"RANK={n + 2}"]) for n in range(2)])
    names = list(map(str, paths))
    of_ranks = json.loads(done("report", *names, "--by", "rank", "--format", "json"))["ranks"]
    summary = json.loads(done("summary", *names, "--format", "json"))
    assert [row["rank"] for row in summary["ranks"]] == [2, 3]
    assert summary["ranks"] == of_ranks
    assert "\n2 ranks, " in done("summary", *names)
    assert "ranks" not in json.loads(done("summary", names[0], "--format", "json"))
    done("import", *names, "--db", "s.db")
    assert json.loads(done("summary", "--db", "s.db", "--format", "json"))["ranks"] == of_ranks


def test_the_summary_of_processes_that_nobody_numbered_lists_no_ranks(folder):
    paths, _ = run(folder, [Rank(n, pid=100 + n, file=f"{'ab'[n]}.sqlite") for n in range(2)])
    summary = json.loads(done("summary", *map(str, paths), "--format", "json"))
    assert "ranks" not in summary
