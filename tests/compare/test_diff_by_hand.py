"""Small programs whose comparison is known: which calls are partners, which kernels are one, what is new."""

from __future__ import annotations

from collections.abc import Iterable

from join.programs import PROCESSES, Program, attributed
from witness.attribution import Activity, Call, Range

from bridge.analyze.compare import Comparison, compare

Work = tuple[int, int, int, str, int]  # report, process (its place), start, kernel, its time


def program(work: Iterable[Work]) -> Program:
    """Give a program in which each kernel is launched in a call of op a of its own."""
    ranges, calls, activities = [], [], []
    for number, (report, place, start, kernel, time) in enumerate(work, 1):
        process = PROCESSES[place]
        thread = process | 1
        ranges.append(Range(report, process, thread, start, start + 5, "a", 0, -1, False))
        calls.append(Call(report, process, thread, number, start + 1, start + 2))
        activities.append(
            Activity(report, process, number, start, start + time, "kernel", kernel, 0)
        )
    return Program(ranges, calls, activities, ["a"] * len(ranges))


def compared(before: Iterable[Work], after: Iterable[Work], by: str = "op") -> Comparison:
    return compare(attributed(program(before)), attributed(program(after)), by)


def kernels(found: Comparison) -> set[tuple[str, str, int, str]]:
    rows = found.rows.records()
    return {(r["kernel_before"], r["kernel"], r["diff_ns"], r["state"]) for r in rows}


def test_calls_are_partners_in_order_of_time_and_not_of_rows():
    before = [(0, 0, 10, "k", 100), (0, 0, 0, "k", 1), (0, 0, 20, "k", 50)]
    after = [(0, 0, 0, "k", 2), (0, 0, 10, "k", 106), (0, 0, 20, "k", 49)]
    [row] = compared(before, after).rows.records()
    assert row["diff_ns"] == 6
    figures = "matched_calls", "call_mean_diff_ns", "call_median_diff_ns"
    assert [row[name] for name in figures] == [3, 2, 1]


def test_calls_that_one_side_has_more_of_stay_without_partner():
    before = [(0, 0, 0, "k", 10), (0, 0, 10, "k", 20), (0, 0, 20, "k", 30)]
    [row] = compared(before, before[:1]).rows.records()
    assert (row["matched_calls"], row["unmatched_before"], row["unmatched_after"]) == (1, 2, 0)
    assert row["call_mean_diff_ns"] == 0
    assert row["diff_ns"] == 0 - 20 - 30


def test_processes_are_partners_by_their_place_in_their_report():
    """A process more in the first report shifts none of the second."""
    before = [(0, 0, 0, "k", 10), (1, 0, 0, "k", 50)]
    after = [(0, 0, 0, "k", 11), (0, 1, 0, "k", 1000), (1, 1, 0, "k", 53)]
    [row] = compared(before, after).rows.records()
    assert (row["matched_calls"], row["unmatched_after"]) == (2, 1)
    assert row["call_mean_diff_ns"] == 2


def test_what_has_time_on_one_side_only_is_new_or_vanished():
    """The op is called in both reports, its kernel runs in one of them."""
    called = [(0, 0, 0, "k", 0), (0, 0, 10, "k", 0)]
    ran = [(0, 0, 0, "k", 5), (0, 0, 10, "k", 7)]
    for sides, state in (((called, ran), "new"), ((ran, called), "vanished")):
        [row] = compared(*sides).rows.records()
        assert (row["calls_before"], row["calls_after"]) == (2, 2)
        assert (abs(row["diff_ns"]), row["ratio"] in (-1, 0), row["state"]) == (12, True, state)


def test_the_longest_of_those_alike_are_one_kernel():
    before = [(0, 0, 0, "gemm_64x32", 10), (0, 0, 10, "gemm_32x32", 90)]
    after = [(0, 0, 0, "gemm_16x16", 95), (0, 0, 10, "gemm_8x8", 15), (0, 0, 20, "gemm_4x4", 1)]
    assert kernels(compared(before, after, "op-kernel")) == {
        ("gemm_32x32", "gemm_16x16", 5, "unclear"),
        ("gemm_64x32", "gemm_8x8", 5, "unclear"),
        ("", "gemm_4x4", 1, "new"),
    }


def test_what_is_alike_by_less_goes_first_and_nothing_twice():
    before = [(0, 0, 0, "gemm_64x32<a>", 10), (0, 0, 10, "gemm_32x32<a>", 90)]
    after = [(0, 0, 0, "gemm_64x32<b>", 10)]
    assert kernels(compared(before, after, "kernel")) == {
        ("gemm_64x32<a>", "gemm_64x32<b>", 0, "same"),
        ("", "gemm_32x32<a>", -90, "vanished"),
    }


def test_a_kernel_that_both_have_is_none_of_those_alike():
    before = [(0, 0, 0, "gemm_64x32", 10)]
    after = [(0, 0, 0, "gemm_64x32", 9), (0, 0, 10, "gemm_32x32", 10)]
    assert kernels(compared(before, after, "op-kernel")) == {
        ("", "gemm_64x32", -1, "unclear"),
        ("", "gemm_32x32", 10, "new"),
    }
