"""Tables of two reports put together, by figures worked out by hand: what adds up, what stays apart, what it is called."""

from __future__ import annotations

from pathlib import Path

import made_reports
import numpy as np
import pytest

from bridge.join.options import AttributionOptions
from bridge.scale.combined import CombinedReport
from bridge.scale.loading import Workers, run, tasks_of
from bridge.scale.merging import PartialTable, Times, packed, unpacked
from bridge.scale.requests import key, needed, stored_tables, whole_tables
from bridge.scale.task import Work

TABLES = ("kind", "thread", "device,kind", "report,kind")
STEP = {"gemm": 80, "other": 30 + 20 + 3, "memcpy": 10, "memset": 5, "graph": 5}  # ns by kind


def together(paths: list[Path]) -> CombinedReport:
    return run(
        tasks_of(paths, Work(tuple(whole_tables(TABLES)), AttributionOptions())),
        Workers(1),
        lambda _: None,
    )


@pytest.fixture(scope="module")
def reports(tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    """Give a report of one step, and one of two."""
    folder = tmp_path_factory.mktemp("two")
    return [made_reports.small(folder / f"{n}.sqlite", steps=n) for n in (1, 2)]


@pytest.fixture(scope="module")
def both(reports: list[Path]) -> CombinedReport:
    return together(reports)


def rows(found: CombinedReport, by: str, *columns: str) -> dict[object, object]:
    """Give the last of the columns, by the others, which name its rows."""
    table = found.by(by, columns=columns[-1])
    assert list(table.columns) == list(columns)
    *names, values = (table[c].tolist() for c in columns)
    return dict(zip(zip(*names, strict=True), values, strict=True))


def test_rows_of_one_name_add_up_over_reports(both: CombinedReport) -> None:
    assert rows(both, "kind", "kind", "total_ns") == {(k,): 3 * ns for k, ns in STEP.items()}
    assert rows(both, "kind", "kind", "count")["other",] == 3 * 3


def test_ratios_are_those_of_the_sums(both: CombinedReport) -> None:
    speed = rows(both, "kind", "kind", "gb_per_s")
    assert speed["memcpy",] == pytest.approx(3 * 4_000 / (3 * 10))
    assert speed["memset",] == pytest.approx(3 * 64 / (3 * 5))
    assert rows(both, "kind", "kind", "share")["gemm",] == pytest.approx(80 / sum(STEP.values()))


def test_a_gpu_of_each_report_is_one_of_its_own(both: CombinedReport) -> None:
    assert rows(both, "device,kind", "device", "kind", "total_ns") == {
        (f"GPU 0 in {n}.sqlite", kind): n * ns for n in (1, 2) for kind, ns in STEP.items()
    }


def test_rows_by_report_are_named_by_its_file(both: CombinedReport) -> None:
    expected = {("1.sqlite", k): ns for k, ns in STEP.items()}
    expected |= {("2.sqlite", k): 2 * ns for k, ns in STEP.items()}
    assert rows(both, "report,kind", "report", "kind", "total_ns") == expected
    assert rows(both, "kind,report", "kind", "report", "total_ns") == {
        (kind, report): ns for (report, kind), ns in expected.items()
    }


def test_a_thread_of_each_report_is_named_by_its_file_too(both: CombinedReport) -> None:
    columns = ("pid", "tid", "thread", "report", "gpu_self_ns")
    assert rows(both, "thread", *columns) == {
        (100, 1, "main of 100", "1.sqlite"): 150,
        (100, 1, "main of 100", "2.sqlite"): 300,
        (100, -1, "", "1.sqlite"): 3,  # what no call is known of
        (100, -1, "", "2.sqlite"): 6,
    }


def test_the_names_of_one_report_alone_say_nothing_of_its_file(reports: list[Path]) -> None:
    one = together(reports[:1])
    threads = rows(one, "thread", "pid", "tid", "thread", "gpu_self_ns")
    assert threads == {(100, 1, "main of 100"): 150, (100, -1, ""): 3}
    devices = rows(one, "device,kind", "device", "kind", "total_ns")
    assert devices == {("GPU 0", kind): ns for kind, ns in STEP.items()}


# -- what is asked of each report


@pytest.mark.parametrize(
    ("by", "columns", "parts"),
    [
        ("stream", ["gb_per_s"], ("bytes", "total_ns")),
        ("kernel", ["share", "count"], ("total_ns", "count")),  # of a whole that all have
        ("kernel", ["p95_ns", "median_ns"], ("times",)),
        ("api", ["mean_ns", "total_ns"], ("times", "total_ns")),
        ("op", ["tensor_core_share"], ("tensor_core_ns", "in_kernels_ns")),
        ("op", ["gpu_p95_ns", "cpu_share"], ("gpu_times", "cpu_self_ns")),
    ],
    ids=str,
)
def test_a_column_is_made_of_what_adds_up(by: str, columns: list[str], parts: tuple[str]) -> None:
    assert needed(by, columns) == parts


def test_a_column_that_nothing_makes_up_is_refused() -> None:
    with pytest.raises(ValueError, match="no bound with --workers"):
        needed("op", ["bound"])


def test_a_store_keeps_tables_of_one_dimension_and_of_some_together() -> None:
    names = [one.name for one in stored_tables()]
    assert len(names) == len({*names})
    assert {"op", "op-kernel", "kernel", "memcpy", "thread", "stream", "rank", "kernel,op"} <= {
        *names
    }
    assert {"op-kernel inclusive", "memcpy memory_kinds"} <= {*names}
    assert "op,thread" not in names


def test_a_store_keeps_besides_what_it_is_asked_for() -> None:
    names = [one.name for one in stored_tables()]
    assert [one.name for one in stored_tables(["thread,op", "op"]) if one.name not in names] == [
        "op,thread"
    ]
    with pytest.raises(ValueError, match="--by gap needs all rows at once"):
        stored_tables(["gap"])


@pytest.mark.parametrize(
    ("by", "name"),
    [
        ("op-kernel", "op-kernel"),
        ("op,kernel", "kernel,op"),
        ("report", "report"),
        ("kernel,report,op", "kernel,op"),  # each report has it of itself
        ("report,op", "op"),
        ("report,step", "report,step"),  # for what is called step alone is another table
    ],
)
def test_a_table_goes_by_its_dimensions_in_any_order_and_without_the_report(
    by: str, name: str
) -> None:
    assert key(by) == name


# -- as bytes


def table(*values: int) -> PartialTable:
    labels = {"op": np.array([*(f"{n}" for n in range(len(values))), None], object)[:-1]}
    nothing = Times.of([np.empty(0, np.int64)] * len(values))
    return PartialTable(labels, {"total_ns": np.array(values, np.int64)}, {"times": nothing})


@pytest.mark.parametrize("bits", [8, 16, 32, 64])
def test_the_least_and_the_greatest_integer_of_each_size_come_back(bits: int) -> None:
    values = [-(2 ** (bits - 1)), 2 ** (bits - 1) - 1]
    for chosen in (values, values[:1], values[1:]):
        assert unpacked(packed(table(*chosen))).sums["total_ns"].tolist() == chosen
