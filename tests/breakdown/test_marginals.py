"""What must hold between tables, whatever the dimensions: they count the same work, told apart more or less finely."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from itertools import combinations
from pathlib import Path

import made_reports
import pandas as pd
import pytest
from real_parts import NIGHT, corpus_reports

import bridge
from bridge.analyze.core.catalog.dimensions import DIMENSIONS
from bridge.analyze.core.catalog.lookup import rows_of_dimensions
from bridge.analyze.core.catalog.views import ACTIVITIES, CALLS, RANGES
from bridge.analyze.tables.breakdown import breakdown
from bridge.report import Report

ADDING = {  # columns that add up over the rows of a finer table
    RANGES: "calls activities kernels memcpys memsets graphs gpu_self_ns cpu_self_ns host_ns api_ns"
    " sync_ns queue_ns launch_gap_ns starved_ns communication_ns exposed_ns share cpu_share"
    " tensor_core_ns eligible_ns tensor_core_unknown_ns in_kernels_ns".split(),
    CALLS: "count total_ns activities gpu_ns share".split(),
    ACTIVITIES: "count total_ns bytes share"
    " tensor_core_ns eligible_ns tensor_core_unknown_ns in_kernels_ns".split(),
}
EXACT = {  # our columns, and those of NVIDIA's cuda_api_sum
    "count": "Num Calls",
    "total_ns": "Total Time:dur_ns",
    "min_ns": "Min:dur_ns",
    "max_ns": "Max:dur_ns",
}
ROUNDED = {"mean_ns": "Avg:dur_ns", "p50_ns": "Med:dur_ns"}
LEAVE_OUT = {"op", "kernel", "memcpy", "library", "fused"}  # these have no row for what has none
SOME = {"pytorch-forward", "nvfuser", "torch-compile-graphs"}
PAIRS = [  # in either order
    pair if nth % 2 else pair[::-1] for nth, pair in enumerate(combinations(sorted(DIMENSIONS), 2))
]
Tables = Callable[..., pd.DataFrame]


@pytest.fixture(scope="module")
def joined(tmp_path_factory: pytest.TempPathFactory) -> Report:
    """Give two ranks with everything in them, in one report of two files."""
    folder = tmp_path_factory.mktemp("input")
    one = made_reports.report(folder / "rank0.sqlite", steps=3)
    return bridge.load(one, made_reports.small(folder / "rank1.sqlite", steps=5))


@pytest.fixture(scope="module")
def tables(joined: Report) -> Tables:
    """Give its tables by the dimensions that are asked for."""
    return tables_of(joined)


def tables_of(joined: Report) -> Tables:
    """Make each table once, for it is compared with many."""
    return cache(
        lambda *by: breakdown(joined.attributed, by, ADDING[rows_of_dimensions(by)]).to_pandas()
    )


@pytest.mark.slow
@pytest.mark.parametrize(("one", "other"), PAIRS)
def test_a_finer_table_adds_up_to_the_coarser_one(one: str, other: str, tables: Tables) -> None:
    adds_up(tables, one, other)


@pytest.mark.slow
@pytest.mark.parametrize("path", corpus_reports(names=SOME))
def test_so_do_those_of_real_profiles(path: Path) -> None:
    tables = tables_of(bridge.load(path))
    for one, other in PAIRS[:: 3 if NIGHT else 7]:
        adds_up(tables, one, other)


def adds_up(tables: Tables, one: str, other: str) -> None:
    """Assert that rows told apart by both add up to those told apart by either."""
    rows = rows_of_dimensions([one, other])
    columns = ADDING[rows]
    for coarse, dropped in ((one, other), (other, one)):
        if rows != rows_of_dimensions([coarse]) or dropped in LEAVE_OUT:
            continue
        whole = tables(coarse)
        names = [c for c in whole.columns if c not in columns]
        summed = tables(one, other).groupby(names, sort=False)[columns].sum()
        pd.testing.assert_frame_equal(
            summed.sort_index(),
            whole.groupby(names, sort=False)[columns].sum().sort_index(),
            check_index_type=bool(len(whole)),  # without a row, names have no type
        )


@pytest.mark.parametrize("dimension", sorted(DIMENSIONS))
def test_every_activity_is_in_one_row(dimension: str, joined: Report) -> None:
    totals, rows = joined.totals, rows_of_dimensions([dimension])
    if rows == CALLS:
        return
    time = {RANGES: "gpu_self_ns", ACTIVITIES: "total_ns"}[rows]
    found = breakdown(joined.attributed, [dimension], [time])
    of_kinds = joined.by("kind", columns=["total"]).set_index("kind")["total_ns"]
    copied, graphs = of_kinds["memcpy"] + of_kinds["memset"], of_kinds["graph"]
    of_kernels = totals["gpu_ns"] - copied - graphs
    whole = {
        "op": totals["attributed_ns"],
        "kernel": of_kernels,
        "library": of_kernels,
        "fused": 0,
        "memcpy": copied,
    }
    assert found[time].sum() == whole.get(dimension, totals["gpu_ns"])


def test_every_api_call_is_in_one_row(joined: Report) -> None:
    launches = joined.capture.launches
    table = joined.by("api")
    assert table["count"].sum() == len(launches)
    assert table["total_ns"].sum() == (launches["end"] - launches["start"]).sum()
    assert table["activities"].sum() == (joined.op_kernels["launch"] >= 0).sum()


def test_single_names_mean_the_views_that_have_them(joined: Report) -> None:
    """A table of one dimension that is a view too has that view's columns and figures."""
    op = joined.by("op")
    pd.testing.assert_frame_equal(op, joined.by(["op"]))
    assert joined.by("op, step").columns[:2].tolist() == ["op", "step"]


@pytest.mark.slow
@pytest.mark.parametrize("path", corpus_reports("expected/*/cuda_api_sum.csv.gz"))
def test_api_calls_are_those_of_nvidias_report(path: Path) -> None:
    """Its figures per name of call, to the last ns; means as far as they are written."""
    theirs = pd.read_csv(path)
    theirs["Name"] = theirs["Name"].str.replace(
        r"_v\d+$", "", regex=True
    )  # the version, as names have none here
    theirs = theirs.set_index("Name").sort_index()
    report = path.parents[2] / "nsys" / f"{path.parent.name}.sqlite"
    ours = bridge.load(report).by("api", columns="count,total,mean,p50,min,max")
    ours = ours.set_index("api").sort_index()
    assert ours.index.tolist() == theirs.index.tolist()
    for mine, its in EXACT.items():
        assert ours[mine].tolist() == theirs[its].tolist()
    for mine, its in ROUNDED.items():
        assert ours[mine].tolist() == pytest.approx(theirs[its].tolist(), abs=0.0501)
