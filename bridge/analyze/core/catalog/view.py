"""The description of a table: what it answers, its columns, and which function computes its rows."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from bridge.analyze.core.catalog.column import TableColumns

# The kinds of rows of tables whose columns can be selected.
RANGES, CALLS, ACTIVITIES = ("ranges", "calls", "activities")
# Details of a capture that several tables need: see `View.details`.
GEOMETRY = tuple(
    "grid_x grid_y grid_z block_x block_y block_z registers shared_static shared_dynamic".split()
)


@dataclass(frozen=True)
class View:
    """A table, as `--by` names it. The module that describes its columns describes all of it.

    Attributes:
        name: as `--by` takes it.
        question: what the table answers, for `--by list` and the documentation.
        columns: its columns; those that name a row come first.
        rows: the function that computes the rows, as ``folder.module:function`` in
            `bridge.analyze`. It is imported when the table is asked for.
        takes: fields or properties of a `TableRequest` that the function takes as keywords of the
            same names.
        host: the columns to display where a report has no work on a GPU, if they differ.
        labels: the columns that name a row, of a table whose columns can be selected; the name of
            the table if there are none.
        sorted_by: the columns that rows are sorted by, largest first; empty: rows are not sorted.
        details: columns of a capture that importers read only for the tables that need them.
        recorded_by: columns that a report has only if they were recorded, with the option of nsys.
        directed: whether the table can count one direction alone.
        on_gpu: whether its rows need work on a GPU.
        timeline: whether it needs to know when kernels ran; Nsight Compute does not tell.
        kind: `RANGES`, `CALLS` or `ACTIVITIES` if its columns can be selected.
        nothing: the message for a table without rows.
        page: the page of the documentation that says more.

    """

    name: str
    question: str
    columns: TableColumns
    rows: str
    takes: tuple[str, ...] = ()
    host: TableColumns | None = None
    labels: tuple[str, ...] = ()
    sorted_by: tuple[str, ...] = ()
    details: tuple[str, ...] = ()
    recorded_by: Mapping[str, str] = field(default_factory=dict)
    directed: bool = False
    on_gpu: bool = False
    timeline: bool = True
    kind: str = ""
    nothing: str = ""
    page: str = ""
