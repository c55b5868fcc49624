"""Every column of every table has one description, which tables, people and the store go by."""

from collections.abc import Iterator
from inspect import signature
from pathlib import Path

import made_reports
import pytest
from click.testing import CliRunner

import bridge
from bridge.analyze.core.catalog import TABLES, VIEWS, column_named
from bridge.analyze.core.catalog.column import (
    ALL_GPU,
    FRACTION,
    FROM_TIMES,
    INTEGER,
    NOT_MERGED,
    RATIO,
    TEXT,
    WHOLES,
    WINDOWS,
    Column,
    read_columns,
    statistic_names,
)
from bridge.analyze.core.catalog.dimensions import DIMENSIONS
from bridge.analyze.core.catalog.lookup import columns_of, labels_of
from bridge.analyze.tables.build import rows_function
from bridge.analyze.tables.dimensions import CODINGS
from bridge.analyze.tables.request import TableRequest
from bridge.cli import main
from bridge.render.table_columns import WRITERS

KINDS = {TEXT: "O", INTEGER: "i", FRACTION: "f"}  # of NumPy, per type of a column


def columns() -> Iterator[tuple[str, Column]]:
    for name, table in TABLES.items():
        for column in table.columns:
            yield name, column


@pytest.fixture(scope="module")
def loaded(three_steps: Path) -> bridge.Report:
    return bridge.load(three_steps)


@pytest.mark.parametrize("name", TABLES)
def test_a_column_goes_by_its_heading_in_any_case(name: str) -> None:
    table = TABLES[name]
    assert all(column_named(c, table.names) == c for c in table.names)
    for column in table.columns:
        heading, same = column.heading, [c for c in table.columns if c.heading == column.heading]
        for text in (heading, heading.upper(), heading.replace(" ", "_"), heading.replace(",", "")):
            taken = [c for c in (text, f"{text}_ns") if c in table.names]
            assert column_named(text, table.names) == [*taken, *(c.name for c in same)][0]
    assert column_named("no such heading", table.names) is None


def test_tables_take_headings_where_they_take_columns(tmp_path, monkeypatch) -> None:
    path = made_reports.small(tmp_path / "small.sqlite", steps=3)
    monkeypatch.setenv("COLUMNS", "300")
    for options, same in (
        (["--columns", "GPU total,per_call"], ["--columns", "gpu_total_ns,gpu_mean"]),
        (["--sort", "+gpu TOTAL"], ["--sort", "+gpu_total"]),
        (["--filter", "GPU self>10ns, op=*"], ["--filter", "gpu_self_ns>10ns, op=*"]),
        (["--columns", "bytes moved"], ["--columns", "moved_bytes"]),
        (["--by", "step", "--sort", "since last"], ["--by", "step", "--sort", "since_last_ns"]),
        (["--by", "gap", "--filter", "gpu idle>0"], ["--by", "gap", "--filter", "gap>0"]),
    ):
        if "since last" in options:
            same[-1] = next(c.name for c in TABLES["step"].columns if c.heading == "since last")
        words, plain = (["report", str(path), *w, "--format", "csv"] for w in (options, same))
        shown, expected = (CliRunner().invoke(main, w) for w in (words, plain))
        assert shown.exit_code == 0, shown.stderr
        assert shown.stdout == expected.stdout


@pytest.mark.parametrize("view", VIEWS)
def test_a_view_has_no_column_without_a_description(loaded: bridge.Report, view: str) -> None:
    table = loaded.by(view)
    assert set(table.columns) <= set(TABLES[view].names)
    order = [name for name in TABLES[view].names if name in table]
    assert order == list(table.columns)
    for name, values in table.items():
        assert values.dtype.kind in KINDS[TABLES[view].by_name[name].type], name


@pytest.mark.parametrize("name", VIEWS)
def test_a_view_names_a_function_that_takes_what_it_is_given(name: str) -> None:
    view = VIEWS[name]
    capture, *others = signature(rows_function(view)).parameters
    assert capture == "attributed"
    assert set(view.takes) <= set(others)
    assert ("columns" in others) == bool(view.kind)
    assert set(view.takes) <= set(dir(TableRequest()))
    assert set(view.sorted_by) <= set(view.columns.names)
    assert set(view.recorded_by) <= set(view.columns.names)
    if view.host:
        assert set(view.host.names) <= set(view.columns.names)


@pytest.mark.parametrize("by", [by for by in DIMENSIONS if by == "op" or by not in VIEWS])
def test_a_breakdown_has_its_labels_and_the_columns_that_are_described(
    loaded: bridge.Report, by: str
) -> None:
    figures = [c for c in loaded.by(by, columns="all").columns if c not in labels_of(by)]
    names = [c for c in columns_of(by).names if c not in labels_of(by)]
    assert sorted(figures) == sorted(names)
    default = [c for c in columns_of(by).default if c not in labels_of(by)]
    assert [c for c in loaded.by(by).columns if c not in labels_of(by)] == default


@pytest.mark.parametrize("name", TABLES)
def test_a_description_is_whole(name: str) -> None:
    table = TABLES[name]
    assert len(table.by_name) == len(table.columns)
    for column in table.columns:
        assert column.unit in WRITERS, column
        assert column.heading, column
        if column.ratio:
            part, whole = column.ratio
            assert part in table.by_name, column
            assert whole in table.by_name or whole in WHOLES, column
        assert (column.merge == RATIO) <= (column.ratio is not None), column
        if column.merge == FROM_TIMES:
            prefixes = ("", "gpu_", "cpu_")
            known = {*(n for p in prefixes for n in statistic_names(p)), "median_ns"}
            assert column.name in known, column
    assert set(table.terminal) <= set(table.names)
    for columns_of_set in table.sets.values():
        assert set(columns_of_set) <= set(table.names)


def test_columns_complete_by_what_a_table_has() -> None:
    words = {"COMP_WORDS": "bridge report --by kernel --columns count,m", "COMP_CWORD": "5"}
    done = CliRunner().invoke(
        main, [], prog_name="bridge", env={"_BRIDGE_COMPLETE": "bash_complete", **words}
    )
    names = [line.partition(",")[2] for line in done.output.splitlines()]
    assert names == ["count,mean_ns", "count,median_ns", "count,min_ns", "count,max_ns"]


def test_every_dimension_is_computed() -> None:
    """The names are known before pandas is loaded, the functions are not: each stands in a module of its own."""
    assert CODINGS.keys() == DIMENSIONS.keys()


DESCRIBED = """
# a comment
[@times]
reads: json
set times: first_ns last_ns
first_ns | first | ns |   | missing | first time
last_ns  | last  | ns |   | request | last time

[thing]
terminal: total_ns thing
optional: total_ns
set totals: thing total_*
thing    | thing | name     |                    | bar    | what it is
total_ns | total | ns       | sum                | stored | time
share    | part  | fraction | total_ns / gpu     | hidden | total_ns by all of it
latency  | late  | fraction | total_ns / last_ns |        | total_ns by last_ns
@times
"""


def test_columns_are_read_from_a_text():
    sections = read_columns(DESCRIBED)
    table = sections["thing"]
    assert table.names == ("thing", "total_ns", "share", "latency", "first_ns", "last_ns")
    assert [column.name for column in table.displayed] == ["total_ns", "thing"]
    assert table.default == table.names[:-1]
    assert table.sets == {"times": ("first_ns", "last_ns"), "totals": ("thing", "total_ns")}
    # A ratio adds up if both of its parts do.
    assert [column.merge for column in table.columns] == [
        NOT_MERGED,
        WINDOWS,
        RATIO,
        *[NOT_MERGED] * 3,
    ]
    assert table.by_name["share"].ratio == ("total_ns", ALL_GPU)
    assert [column.name for column in table.columns if column.optional] == ["total_ns"]
    assert sections["@times"].by_name["first_ns"].details == ("json",)
    assert sections["@times"].by_name["first_ns"].missing


@pytest.mark.parametrize(
    "line",
    [
        "share | part | fraction | total_ns / gpu | hidden",
        "share | part | miles |  |  | meaning",
        "share | part | ns |  | loud | meaning",
        "@nothing",
    ],
)
def test_what_is_no_description_of_a_column_is_an_error_that_names_the_section(line):
    with pytest.raises(ValueError, match=r"columns of \[thing\]: "):
        read_columns(f"[thing]\n{line}\n")
