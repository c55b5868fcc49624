"""What a run's ranks amount to together: hosts that have a name, the widest spread of clocks, numbers of processes."""

import pytest

import bridge
from bridge.analyze.ranks.table import Run
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
    assert of.rows["busy_share"].tolist() == [2_500 / spans[0], 1_500 / spans[1]]
    assert of.rows["attributed_share"].tolist() == [1, 1]
    assert of.totals == {
        "ranks": 2, "hosts": 0, "span_ns": spans[0], "kernels": 8, "gpu_ns": 4_000, "exposed_ns": 4_000,
        "busy_share": 4_000 / sum(spans), "attributed_share": 1, "clock_spread_ns": -1,
    }  # fmt: skip


def test_a_rank_begins_with_its_first_call(folder):
    made = begun(Rank(0))
    made.kernel("gemm", 10, 100, 500, 700)
    [row] = Run.of(bridge.load(made.written(folder / "r.sqlite")).attributed).rows.to_dict(
        "records"
    )
    assert row["span_ns"] == 700 - 10
