"""Comparisons against plain loops: of programs made up, whatever they hold."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st
from join.programs import attributed, programs
from witness.diff import matched, outside, rows_of, u_test

from bridge.analyze.compare import Comparison, compare
from bridge.analyze.compare.rows import NAME_FORMS

pytestmark = pytest.mark.usefixtures("names_as_recorded")


NAMES = ["gemm_64x32", "gemm_32x32_v2", "gemm<float>", "void gemm<half>(int)", "triton_poi_fused_3", "triton_poi_fused_4"]  # fmt: skip
VIEWS = ["op", "path", "op-kernel", "kernel"]


@st.composite
def pairs(draw):
    """Draw two programs, often the same but for some of the work."""
    one = draw(programs())
    other = draw(st.one_of(st.just(one), programs()))
    return tuple(draw(renaming(program)) for program in (one, other))


@st.composite
def renaming(draw, program):
    """Let kernels have names that differ by what builds change, and take longer."""
    activities = [
        replace(
            one, name=draw(st.sampled_from(NAMES)), end=one.end + draw(st.sampled_from([0, 0, 3]))
        )
        if one.kind == "kernel"
        else one
        for one in program.activities
    ]
    return replace(program, activities=activities)


def keyed(found: Comparison) -> dict[tuple[str, ...], dict[str, object]]:
    labels = [name for name in found.labels if name != "kernel_before"]
    rows = {tuple(row[name] for name in labels): row for row in found.rows.records()}
    assert len(rows) == len(found.rows)
    return rows


@pytest.mark.slow
@given(pairs(), st.sampled_from(VIEWS))
def test_rows_are_those_of_plain_loops(two, by):
    profiles = [program.profile() for program in two]
    if not any(program.activities for program in two):
        return
    found = compare(*map(attributed, two), by)
    rows, expected = keyed(found), rows_of(profiles, by, NAME_FORMS)
    assert rows.keys() == expected.keys()
    for key, row in expected.items():
        ours = rows[key]
        assert ours.get("kernel_before", "") == row.kernel_before
        assert [ours["before_ns"], ours["after_ns"]] == row.ns
        assert ours["diff_ns"] == row.ns[1] - row.ns[0]
        assert [ours["activities_before"], ours["activities_after"]] == row.activities
        there = [n or c for n, c in zip(row.activities, row.calls, strict=True)]
        is_new, is_gone = (
            not there[side] or (row.ns[side] == 0 and row.ns[1 - side] > 0) for side in (0, 1)
        )
        assert (ours["state"] == "new") == is_new
        assert (ours["state"] == "vanished") == is_gone
        assert ours["ratio"] == (row.ns[1] / row.ns[0] if row.ns[0] else -1)
        if by in {"op", "path"}:
            assert [ours["calls_before"], ours["calls_after"]] == row.calls


@pytest.mark.slow
@given(pairs(), st.sampled_from(["op", "path"]))
def test_calls_are_matched_as_plain_loops_match_them(two, by):
    if not any(program.activities for program in two):
        return
    rows = keyed(compare(*map(attributed, two), by))
    expected = matched([program.profile() for program in two], by)
    for key, figures in expected.items():
        ours = {name: rows[key][name] for name in figures}
        assert ours == pytest.approx(figures), key
    for key in rows.keys() - expected.keys():
        assert rows[key]["matched_calls"] == 0


@pytest.mark.slow
@given(
    pairs(),
    st.sampled_from([*VIEWS, "memcpy", "device", "step", "phase", "op,kind", "shape", "api"]),
)
def test_the_parts_add_up_to_the_whole(two, by):
    if not any(program.activities for program in two):
        return
    found = compare(*map(attributed, two), by)
    profiles = [program.profile() for program in two]
    whole = [profile.totals()["gpu_ns"] for profile in profiles]
    assert found.whole == {
        "before_ns": whole[0],
        "after_ns": whole[1],
        "diff_ns": whole[1] - whole[0],
    }
    for side in ("before_ns", "after_ns", "diff_ns"):
        assert (
            sum(found.rows[side]) + sum(o[side] for o in found.outside.values())
            == found.whole[side]
        )
    if by == "op":
        reasons = [outside(profile, by) for profile in profiles]
        assert {n: o["before_ns"] for n, o in found.outside.items() if n in reasons[0]} == reasons[
            0
        ]
        assert {n: o["after_ns"] for n, o in found.outside.items() if n in reasons[1]} == reasons[1]
    if whole[0] != whole[1]:
        assert found.rows["share"].sum() == pytest.approx(
            found.rows_diff_ns / (whole[1] - whole[0])
        )


@pytest.mark.slow
@given(pairs(), st.sampled_from(VIEWS))
def test_the_other_way_round_is_the_negative(two, by):
    if not any(program.activities for program in two):
        return
    sides = list(map(attributed, two))
    there, back = compare(*sides, by), compare(*sides[::-1], by)
    turned = {
        "same": "same",
        "new": "vanished",
        "vanished": "new",
        "faster": "slower",
        "slower": "faster",
        "unclear": "unclear",
    }
    assert len(there.rows) == len(back.rows)
    mirrored = {
        tuple(row["kernel_before"] if name == "kernel" and row["kernel_before"] else row[name] for name in back.labels if name != "kernel_before"): row
        for row in back.rows.records()
    }  # fmt: skip
    for key, row in keyed(there).items():
        other = mirrored[key]
        assert row["diff_ns"] == -other["diff_ns"]
        assert row["state"] == turned[other["state"]]
        assert row["p"] == pytest.approx(other["p"])
        if by in {"op", "path"}:
            for name in ("call_mean_diff_ns", "call_median_diff_ns"):
                assert row[name] == pytest.approx(-other[name])


@pytest.mark.slow
@given(programs(), st.sampled_from(VIEWS))
def test_a_report_against_itself_is_all_zeros(program, by):
    if not program.activities:
        return
    found = compare(*[attributed(program)] * 2, by)
    assert not found.rows["diff_ns"].any()
    assert set(found.rows["state"]) <= {"same"}
    assert not any(pair["diff_ns"] for pair in (found.whole, *found.outside.values()))


times = st.integers(0, 6)


@pytest.mark.slow
@given(
    st.integers(4, 9).flatmap(
        lambda n: st.lists(st.lists(times, min_size=n, max_size=n), min_size=1, max_size=4)
    ),
    st.integers(4, 6),
    st.data(),
)
def test_p_is_that_of_the_definition(one, many, data):
    import numpy as np

    from bridge.analyze.compare.statistics import mann_whitney

    unlike = data.draw(st.booleans())  # so far apart that nothing is tied
    other = [data.draw(st.lists(times, min_size=many, max_size=many)) for _ in one]
    before, after = (np.array(side, np.int64) for side in (one, other))
    if unlike:
        before = before * 100 + np.arange(before.shape[1])
        after = after * 100 + np.arange(50, 50 + after.shape[1])
    p, shift = mann_whitney(before, after)
    for row, (x, y) in enumerate(zip(before.tolist(), after.tolist(), strict=True)):
        assert p[row] == (pytest.approx(u_test(x, y)) if any(x + y) else -1)
        wins = sum((b > a) + (b == a) / 2 for a in x for b in y) / len(x) / len(y) - 0.5
        assert shift[row] == pytest.approx(wins)
