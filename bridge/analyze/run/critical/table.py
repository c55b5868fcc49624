"""The table of the critical path: time per op and kind, and how long the run takes without each."""

from __future__ import annotations

import numpy as np

from bridge.analyze.core.groups import counts, ratio, sums, texts
from bridge.analyze.core.table import Table
from bridge.analyze.run.critical.run import ELSEWHERE, KIND, KINDS, UNKNOWN, Elements, Run
from bridge.analyze.run.ranks.members import Ranks
from bridge.importers.arrays import lookup
from bridge.join.arrays import NONE, Ints, number_groups, order_by, run_edges
from bridge.join.attributed import AttributedCapture

RETIMED = 10  # rows, the largest, of which the run is computed without them


def by_critical(attributed: AttributedCapture) -> Table:
    """Return one row per op and kind of the elements of the critical path.

    ``time_ns`` of all rows adds up to the length of the run. ``without_ns`` is the length of the
    run if no element of this op and kind took time, on the path or beside it, and ``saves_ns`` the
    difference; -1 for rows after the largest `RETIMED`, and where it is unknown. ``rank`` is the one on which most of
    the time passes, '' where that is unknown. The attribute
    ``run_ns`` of the table is the length of the run, or of the selected part of it if ``is_part``. Raises ValueError if
    the clocks of several files differ.
    """
    run = Run.of(attributed)
    elements = run.elements
    kind, name, count, time = _sums(elements)
    without = _without(run, kind, name, time)
    table = Table(
        {
            "op": texts(run.names if len(run) else [""])[name],
            "kind": texts(KINDS)[kind],
            "count": count,
            "time_ns": time,
            "share": ratio(time, run.span),
            "rank": _main_ranks(run, elements),
            "without_ns": without,
            "saves_ns": np.where(without == NONE, NONE, run.span - without),
        }
    )
    table.attrs["run_ns"] = run.span
    table.attrs["is_part"] = attributed.selection is not None
    return table


def _sums(elements: Elements) -> tuple[Ints, Ints, Ints, Ints]:
    """Return kinds and names of elements, how many are of each, and their time."""
    group, rows = number_groups(elements.kind, elements.name)
    time = sums(group, elements.end - elements.start, len(rows))
    return elements.kind[rows], elements.name[rows], counts(group, len(rows)), time


def _main_ranks(run: Run, elements: Elements) -> np.ndarray:
    """Return the name of the rank with most time of each row, of equal ones the first."""
    attributed = run.work.attributed
    ranks = Ranks.of(attributed.capture, attributed.place)
    of_work = ranks.place(run.work.column("report"), run.work.column("process"))
    of_process = ranks.place(*run.work.process_keys)
    point = elements.point
    on_host = np.where(point >= run.hosts, point - run.hosts, NONE)
    process = lookup(run.work.process_of_stacks, lookup(run.host.stack, on_host))
    place = lookup(run.device.activity, np.where(point < run.hosts, point, NONE))
    rank = np.where(on_host == NONE, lookup(of_work, place), lookup(of_process, process))
    row, _ = number_groups(elements.kind, elements.name)
    pair, first = number_groups(row, rank)
    time = sums(pair, elements.end - elements.start, len(first))
    order = order_by(row[first], -time, rank[first])
    main = first[order[run_edges(row[first][order])[:-1]]]
    return texts([*ranks.names, ""])[rank[main]]


def _without(run: Run, kind: Ints, name: Ints, time: Ints) -> Ints:
    """Return the length of the run without each of the largest rows, NONE for the others."""
    result = np.full(len(time), NONE)
    known = np.flatnonzero(~np.isin(kind, (KIND[ELSEWHERE], KIND[UNKNOWN])))
    largest = known[order_by(-time[known], kind[known], name[known])][:RETIMED]
    for row in largest.tolist():
        result[row] = run.span_without(run.points_of(int(kind[row]), int(name[row])))
    return result
