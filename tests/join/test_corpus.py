"""Real profiles: every activity, every table, every name, against `sqlite3` and the slow opinion."""

from functools import cache

import pytest
from real_parts import corpus_reports
from witness import nsys_export
from witness.indexed import indexed

import bridge.report
from bridge import importers
from bridge.analyze.core.totals import totals
from bridge.analyze.tables.activity_columns import by_kernel, by_memcpy, by_op_kernel
from bridge.analyze.tables.breakdown import by_op
from bridge.analyze.tables.ranges import by_range
from bridge.join.arrays import NONE
from bridge.join.attributed import AttributedCapture
from join.compare import found_of, keyed, only, said, same

EMPTY = ("failed-export", "no-kernels-osrt")
REPORTS = [of for of in corpus_reports() if of.id not in EMPTY]
reports = pytest.mark.parametrize("path", REPORTS)


@cache
def opened(path):
    """Return what we say of a file, and what is true."""
    plain = nsys_export.read(path)
    return bridge.report.load(path), plain, indexed(plain.ranges, plain.calls, plain.activities)


@pytest.mark.slow
@reports
def test_rows_are_as_recorded(path):
    joined, plain, _ = opened(path)
    report = joined.capture
    ranges, activities = report.ranges.to_pandas(), report.activities.to_pandas()
    columns = ["process", "thread", "start", "end", "domain", "payload"]
    kinds = {False: "push_pop", True: "start_end"}
    recorded = [tuple(getattr(one, c) for c in columns) for one in plain.ranges]
    assert list(ranges[columns].itertuples(index=False, name=None)) == recorded
    assert ranges["kind"].tolist() == [kinds[one.phase] for one in plain.ranges]
    names = [nsys_export.without_per_call_part(text) for text in plain.texts]
    assert names == ranges["name"].tolist()
    assert report.texts.decode(report.ranges["text"]) == plain.texts
    columns = ["process", "correlation", "start", "end", "kind", "name"]
    recorded = [tuple(getattr(one, c) for c in columns) for one in plain.activities]
    assert list(activities[columns].itertuples(index=False, name=None)) == recorded


@pytest.mark.slow
@reports
def test_every_activity_is_where_it_belongs(path):
    joined, plain, profile = opened(path)
    assert list(found_of(joined.attributed)) == said(profile)
    table = joined.op_kernels
    assert len(table) == len(plain.activities)
    ops = [profile.ops_on(found.stack)[-1] if found.stack else None for found in profile.found]
    assert [op if isinstance(op, str) else None for op in table["op"]] == ops


@pytest.mark.slow
@reports
def test_every_table_is_true(path):
    joined, _, profile = opened(path)
    joined = joined.attributed
    assert totals(joined) == profile.totals()
    same(keyed(by_op(joined), "op"), only(profile.by_op()))
    for inclusive in (False, True):
        table = keyed(by_op_kernel(joined, "short", inclusive=inclusive), "op", "kernel")
        same(table, profile.by_op_kernel(inclusive=inclusive))
    same(keyed(by_kernel(joined, "short"), "kernel"), only(profile.by_kernel()))
    same(keyed(by_memcpy(joined), "operation"), only(profile.by_memcpy()))
    assert by_range(joined).records() == profile.by_range()


@pytest.mark.slow
@reports
def test_no_figure_needs_the_details(path):
    joined = opened(path)[0].attributed
    light = AttributedCapture.of(importers.load(path, details=False))
    for table in (by_op, by_kernel, by_memcpy, by_range):
        assert table(light).to_pandas().equals(table(joined).to_pandas())


@reports
def test_the_laws_hold(path):
    joined = opened(path)[0].attributed
    account, ops, ranges = totals(joined), by_op(joined), by_range(joined)
    rest = sum(share["gpu_ns"] for share in account["unattributed"].values())
    assert ops["gpu_self_ns"].sum() + rest == account["gpu_ns"]
    assert (ops["gpu_self_ns"] <= ops["gpu_total_ns"]).all()
    assert (ranges["gpu_busy_ns"] <= ranges["gpu_span_ns"]).all()


@pytest.mark.slow
@pytest.mark.parametrize("path", corpus_reports("nsys/pytorch-2gpu-after.sqlite"))
def test_no_kernel_has_two_innermost_ops(path):
    """Here all ranges of a thread nest: of those around a launch, one lies inside all others."""
    joined, plain, profile = opened(path)
    assert not len(joined.attributed.attribution.nesting.crossed)
    assert sum(found.reason == "" for found in profile.found) > 4_000
    for found in profile.found:
        around = [plain.ranges[row] for row in found.stack]
        inside_all = [
            a for a in around if all(b.start <= a.start and a.end <= b.end for b in around)
        ]
        assert len(inside_all) == bool(around)
    node = joined.attributed.attribution.node
    kernels = by_op_kernel(joined.attributed)["count"].sum()
    kind = joined.capture.activities.kind
    assert kernels == ((node != NONE) & (kind == "kernel")).sum()


@pytest.mark.parametrize(
    "path", [of for name in EMPTY for of in corpus_reports(f"nsys/{name}.sqlite")]
)
def test_what_holds_no_profile_is_refused(path):
    with pytest.raises(importers.ReportError, match="no ranges, no CUDA calls and no kernels"):
        bridge.report.load(path)


@pytest.mark.slow
def test_any_two_reports_read_as_one(corpus):
    """What the one lacks the other may have."""
    paths = [of.values[0] for of in REPORTS]
    sums = {path: opened(path)[0].totals for path in paths}
    for one, other in zip(paths, paths[1:] + paths[:1], strict=True):
        for pair in ((one, other), (other, one)):
            together = bridge.report.load(*pair).totals
            for figure in ("activities", "gpu_ns", "attributed_ns"):
                assert together[figure] == sums[one][figure] + sums[other][figure]
