"""Gates and budgets: what they let pass, to the nanosecond, and what they refuse to be."""

from __future__ import annotations

from decimal import Decimal
from pathlib import Path

import made_reports
import pandas as pd
import pytest
from pandas.api.types import is_numeric_dtype

import bridge
from bridge.analyze.compare import Comparison, gates
from bridge.analyze.compare.gates import NUMBER_COLUMNS, Budget, Change, Growth, Limit
from bridge.analyze.core.catalog.column import COLUMNS
from bridge.analyze.core.table import Table
from bridge.analyze.tables.breakdown import by_op
from bridge.cli.diff import read_budget as read

MS = 1_000_000


def compared(ops: dict[str, tuple[int, int]], more: tuple[int, int] = (0, 0)) -> Comparison:
    """Give a comparison of these ops, with more time outside of them."""
    before, after = ([sides[side] for sides in ops.values()] for side in (0, 1))
    rows = Table({"op": list(ops), "before_ns": before, "after_ns": after})
    rows = rows.assign(diff_ns=rows["after_ns"] - rows["before_ns"])
    sums = [
        int(rows[c].sum()) + out for c, out in zip(("before_ns", "after_ns"), more, strict=True)
    ]
    whole = {"before_ns": sums[0], "after_ns": sums[1], "diff_ns": sums[1] - sums[0]}
    return Comparison(
        "op", False, ["op"], rows.assign(**NO_STEPS), whole, {}, (0, 0), "", (0, 0), NO_STEPS
    )


NO_STEPS = {
    "step_before_ns": 0.0,
    "step_after_ns": 0.0,
    "step_ratio_low": -1.0,
    "step_ratio_high": -1.0,
    "state": "same",
}


def per_step(
    ops: dict[str, tuple[float, float, float, float, str]], steps: tuple[int, int]
) -> Comparison:
    """Give a comparison of different numbers of steps: means per step, bounds and state."""
    rows = pd.DataFrame.from_dict(ops, orient="index", columns=list(NO_STEPS))
    rows = rows.rename_axis("op").reset_index()
    for side, count in zip(("before", "after"), steps, strict=True):
        rows[f"{side}_ns"] = (rows[f"step_{side}_ns"] * count).astype("int64")
    whole = {f"{side}_ns": int(rows[f"{side}_ns"].sum()) for side in ("before", "after")}
    sums = {f"step_{side}_ns": float(rows[f"step_{side}_ns"].sum()) for side in ("before", "after")}
    compared = Table.of(rows)
    return Comparison("op", False, ["op"], compared, whole, {}, steps, "", steps, NO_STEPS | sums)


def failed(gate: str, ops: dict[str, tuple[int, int]], more: tuple[int, int] = (0, 0)) -> list[str]:
    found = gates.judge_growth([Growth.parsed(gate)], compared(ops, more))
    return [verdict.subject for verdict in found if not verdict.passed]


@pytest.mark.parametrize(
    ("gate", "before", "after", "passes"),
    [
        ("5%", 1000, 1050, True),
        ("5%", 1000, 1051, False),
        ("5%", 1000, 1, True),
        ("0%", 10**18, 10**18, True),
        ("0%", 10**18, 10**18 + 1, False),
        ("0.1%", 10**18, 10**18 + 10**15, True),
        ("0.1%", 10**18, 10**18 + 10**15 + 1, False),
        ("2us", 10**18, 10**18 + 2000, True),
        ("2us", 10**18, 10**18 + 2001, False),
        ("5%", 0, 1, False),
    ],
)
def test_growth_is_judged_exactly(gate, before, after, passes):
    assert Growth.parsed(gate).allows(Change(before, after, -1, -1, "", 0)) == passes
    assert failed(gate, {"a": (before, after)}) == ([] if passes else ["total activity time"])


def test_the_total_counts_what_is_in_no_op():
    assert failed("5%", {"a": (100, 100)}, (100, 120)) == ["total activity time"]


@pytest.mark.parametrize("before", [0, 100])
def test_a_gate_that_finds_nothing_to_judge_fails(before):
    """Of a capture without a GPU, or without NVTX, nobody is to believe that all is well."""
    [of_all] = gates.judge_growth([Growth.parsed("5%")], compared({"a": (before, 0)}))
    assert (of_all.passed, of_all.line) == (
        False,
        "total activity time: nothing was judged; none in the report after",
    )
    for ops in ({}, {"tiny": (0, 1)}, {"vanished": (before, 0)}):
        [of_ops] = gates.judge_growth([Growth.parsed("op:5%")], compared(ops, (1000, 1000)))
        assert not of_ops.passed
        assert of_ops.line.startswith("no op above 1 % of the total: nothing was judged; ")


def test_ops_count_above_one_per_cent_of_either_side():
    ops = {
        "large": (9_700, 9_700),
        "small": (100, 200),
        "at": (100, 101),
        "was": (200, 90),
        "new": (0, 110),
    }
    assert failed("op:5%", ops) == ["small", "new"]
    assert failed("op:5%", {"large": (9_900, 9_900), "at": (100, 100), "tiny": (50, 99)}) == []
    assert failed("op:50ns", ops) == ["small", "new"]
    assert failed("op:100ns", ops) == ["new"]


def test_a_line_says_what_became_of_it():
    [verdict] = gates.judge_growth([Growth.parsed("5%")], compared({"a": (2 * MS, 3 * MS)}))
    assert (
        verdict.line == "total activity time: 2.000 ms -> 3.000 ms (+50.0 %), over --fail-over 5%"
    )


def test_different_numbers_of_steps_are_judged_per_step():
    """Of 10 steps and 5: less time in all, and one op takes 20 % longer in each step."""
    ops = {
        "grown": (100.0, 120.0, 1.15, 1.25, "slower"),
        "noisy": (100.0, 130.0, 0.7, 1.9, "unclear"),
        "equal": (800.0, 800.0, 0.99, 1.01, "same"),
    }
    verdicts = gates.judge_growth([Growth.parsed("op:10%")], per_step(ops, (10, 5)))
    assert [(v.subject, v.passed) for v in verdicts] == [
        ("grown", False),
        ("noisy", False),
        ("equal", True),
    ]
    assert [v.line for v in verdicts] == [
        (
            "grown: 100 ns -> 120 ns per step (+20.0 %), 95 % interval +15.0 to +25.0 %: slower,"
            " over --fail-over op:10%"
        ),
        (
            "noisy: 100 ns -> 130 ns per step (+30.0 %), 95 % interval -30.0 to +90.0 %: unclear,"
            " over --fail-over op:10%"
        ),
        "equal: 800 ns -> 800 ns per step (+0.0 %)",
    ]
    assert verdicts[0].change == Change(100.0, 120.0, 1.15, 1.25, "slower", 10)


@pytest.mark.parametrize(("gate", "fails"), [("499ns", True), ("500ns", False), ("5%", False), ("4.9%", True)])  # fmt: skip
def test_a_time_is_a_limit_of_all_steps_before(gate, fails):
    """50 ns more per step are 500 ns more in the 10 steps of the report before."""
    ops = {"a": (1000.0, 1050.0, 1.0, 1.1, "unclear")}
    [verdict] = gates.judge_growth([Growth.parsed(gate)], per_step(ops, (10, 5)))
    assert verdict.passed is not fails
    if fails and "ns" in gate:
        assert verdict.line.endswith("over --fail-over 499ns for 10 steps")


@pytest.mark.parametrize(
    "text", ["", "5", "op:5", "x:5%", "-5%", "5%%", "op:", "5 % more", "kernel:1ms"]
)
def test_what_is_no_gate_is_refused(text):
    with pytest.raises(ValueError, match=r"[Ww]rite"):
        Growth.parsed(text)


@pytest.mark.parametrize(
    ("limit", "passing", "failing"),
    [
        ("3.2ms", [3_200_000, 0], [3_200_001]),
        ("3.2ms ± 5%", [3_360_000, 1], [3_360_001]),
        ("3.2 ms +- 5 %", [3_360_000], [3_360_001]),
        ("3ms +/- 10us", [3_010_000], [3_010_001]),
        ("< 3ms", [2_999_999], [3_000_000]),
        ("<= 3ms", [3_000_000], [3_000_001]),
        ("< 3ms ± 1us", [3_000_999], [3_001_000]),
        (">= 3ms", [3_000_000], [2_999_999]),
        ("> 24", [25], [24]),
        ("= 24", [24], [23, 25]),
        ("3ms..4ms", [3_000_000, 4_000_000], [2_999_999, 4_000_001]),
        (24, [24, 0], [25]),
        ("12%", [12, 0], [13]),
    ],
)  # fmt: skip
def test_limits_are_exact(limit, passing, failing):
    found = Limit.parsed(limit)
    assert all(found.allows(Decimal(value)) for value in passing)
    assert not any(found.allows(Decimal(value)) for value in failing)


def test_a_budget_with_room_says_that_it_could_be_lowered():
    limit = Limit.parsed("100us ± 5%")
    assert limit.note(Decimal(94_999)) == "below 100us ± 5%: the budget could be lowered"
    assert limit.note(Decimal(95_000)) == ""
    assert Limit.parsed("100us").note(Decimal(1)) == ""


@pytest.mark.parametrize(
    "limit", ["", "fast", "3ms ± 5", "3ms ± x", "> 3ms ± 5%", "= 3 ± 1", "3ms..4", "..", "-3ms", "4ms..3ms", b"3ms", True, None, [3], "3 ± 1ms"]
)  # fmt: skip
def test_what_is_no_limit_is_refused(limit):
    with pytest.raises(ValueError, match=r"write|unit"):
        Limit.parsed(limit)


@pytest.mark.parametrize(
    ("said", "word"),
    [
        (None, "mapping"),
        ([], "mapping"),
        ({}, "no limit"),
        ({"ops": {}}, "no limit"),
        ({"op": {}}, "no key of a budget 'op': .*did you mean ops"),
        ({"total": "5%"}, "a time"),
        ({"total": 5}, "a time"),
        ({"ops": {"a": {"gpu_total": 5}}}, "a time"),
        ({"ops": {"a": {"calls": "5ms"}}}, "bare number"),
        ({"ops": {"a": {"share": "5ms"}}}, "share"),
        ({"ops": {"a": {"speed": "5ms"}}}, "no figure 'speed'"),
        ({"ops": {"a": {"formula": 5}}}, "no figure 'formula'"),
        ({"ops": {"a": {"bound": 5}}}, "no figure 'bound'"),
        ({"ops": {"a": "5ms"}}, "mapping"),
    ],
)
def test_what_is_no_budget_is_refused(said, word):
    with pytest.raises(ValueError, match=word):
        Budget.parsed(said)


TOTALS = {"activities": 3, "gpu_ns": 1000, "attributed_ns": 990, "unattributed": {}}
OPS = Table({"op": ["aten::mm", "aten::add"], "gpu_total_ns": [900, 90], "calls": [2, 3], "share": [0.9, 0.09]})  # fmt: skip


def lines(said: dict) -> list[tuple[bool, str]]:
    budget = Budget.parsed(said)
    return [(v.passed, v.line) for v in budget.judged(TOTALS, OPS)]


def test_a_budget_judges_the_whole_and_each_op_that_a_name_stands_for():
    found = lines(
        {
            "total": "1us",
            "unattributed": "0.5%",
            "ops": {"aten::*": {"gpu_total": "100ns", "calls": 3}, "aten::mm": {"share": "90%"}},
        }
    )
    assert found == [
        (True, "total activity time: 1.000 µs, within the budget of 1us"),
        (False, "unattributed activity time: 1.00 %, over the budget of 0.5%"),
        (False, "aten::mm gpu_total: 900 ns, over the budget of 100ns"),
        (True, "aten::add gpu_total: 90 ns, within the budget of 100ns"),
        (True, "aten::mm calls: 2, within the budget of 3"),
        (True, "aten::add calls: 3, within the budget of 3"),
        (True, "aten::mm share: 90.00 %, within the budget of 90%"),
    ]


def test_an_op_that_is_missing_fails():
    assert lines({"ops": {"aten::bmm": {"calls": 3}}}) == [
        (
            False,
            "aten::bmm: no such op in the report: one of aten::mm, aten::add; did you mean aten::mm?",
        )
    ]


def test_too_little_is_said_as_such():
    assert lines({"ops": {"aten::mm": {"calls": ">= 3"}}}) == [
        (False, "aten::mm calls: 2, under the budget of >= 3")
    ]


@pytest.mark.slow
def test_figures_are_the_columns_that_hold_numbers(tmp_path: Path):
    joined = bridge.load(made_reports.small(tmp_path / "r.sqlite"))
    table = by_op(joined.attributed, COLUMNS["ranges"].names)
    numbers = [name for name in COLUMNS["ranges"].names if is_numeric_dtype(table[name])]
    assert list(NUMBER_COLUMNS) == numbers


@pytest.mark.parametrize(
    ("figure", "limit"),
    [("gb_per_s", "<= 10"), ("gb_per_s", ">= 0"), ("peak_share", "< 50%"), ("flop", 5)],
)
def test_what_is_not_known_is_within_no_budget(figure, limit):
    ops = Table({"op": ["a"], figure: [-1]})
    [verdict] = Budget.parsed({"ops": {"a": {figure: limit}}}).judged(TOTALS, ops)
    assert (verdict.passed, verdict.line) == (False, f"a {figure}: not known in this report")


def test_where_nothing_ran_on_a_gpu_only_figures_of_the_cpu_are_judged():
    said = {"total": "1ns", "unattributed": "< 5%", "ops": {"a": {"gpu_total": "1ms", "calls": 2, "cpu_total": "1ms"}}}  # fmt: skip
    ops = Table({"op": ["a"], "gpu_total_ns": [0], "calls": [2], "cpu_total_ns": [7]})
    idle = {"activities": 0, "gpu_ns": 0, "attributed_ns": 0, "unattributed": {}}
    found = Budget.parsed(said).judged(idle, ops)
    assert [v.subject for v in found if v.passed] == ["a calls", "a cpu_total"]
    lines = [v.line for v in found if not v.passed]
    assert [line.partition(": ")[0] for line in lines] == [
        "total activity time",
        "unattributed activity time",
        "a gpu_total",
    ]
    assert all("no time on a GPU in this report" in line for line in lines)


TOML = 'total = "1us"\n[ops]\n"aten::mm" = {gpu_total = "3.2ms ± 5%", calls = 4}\n"aten::*" = {share = "5%"}\n'


def test_a_budget_is_read_from_toml(tmp_path: Path):
    path = tmp_path / "budget.toml"
    path.write_text(TOML, encoding="utf-8")
    found = read(path)
    assert found == Budget.parsed(
        {
            "total": "1us",
            "ops": {
                "aten::mm": {"gpu_total": "3.2ms ± 5%", "calls": 4},
                "aten::*": {"share": "5%"},
            },
        }
    )
    assert found.columns == ("gpu_total_ns", "calls", "share")


@pytest.mark.slow
@pytest.mark.parametrize(
    "text",
    [
        "[ops]\na = {calls = 1}\na = {calls = 2}",
        "a = " + "[" * 5000,
        "ops = ",
        "- 1",
        "",
        "ops: {a: {calls: 1}}",  # YAML
        '{"ops": {"a": {"calls": 1}}}',  # JSON
    ],
)
def test_what_cannot_be_read_is_refused_in_a_line(tmp_path: Path, text):
    path = tmp_path / "budget.toml"
    path.write_text(text, encoding="utf-8")
    with pytest.raises(ValueError) as refused:
        read(path)
    assert "\n" not in str(refused.value)
    assert len(str(refused.value)) < 300
