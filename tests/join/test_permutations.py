"""No figure depends on the order in which processes or files come."""

from collections.abc import Iterable
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

import bridge.report
from bridge.analyze.core.catalog import VIEWS
from bridge.importers.capture import Facts
from bridge.join.attributed import AttributedCapture
from bridge.join.options import RANK_METADATA_KEY
from bridge.report import Report
from join.programs import PROCESSES, Program, attributed, programs

# The critical path needs clocks that are aligned: without them it refuses several files.
TABLES = [view for view in VIEWS if view not in ("range", "wait", "critical")]


def reordered(program: Program, processes: list[int], *, swapped: bool) -> Program:
    """Put each process's records together, in this order, and change the places of the two files."""

    def arranged(records):
        order = sorted(range(len(records)), key=lambda row: processes.index(records[row].process))
        moved = [records[row] for row in order]
        return order, [replace(one, report=1 - one.report) for one in moved] if swapped else moved

    order, ranges = arranged(program.ranges)
    texts = [program.texts[row] for row in order]
    return Program(ranges, arranged(program.calls)[1], arranged(program.activities)[1], texts)


def named(joined: AttributedCapture, *, swapped: bool) -> AttributedCapture:
    """Let the files, which changed places, keep their names and the ranks that their paths tell."""
    source = joined.capture.source
    facts = tuple(
        Facts(metadata={RANK_METADATA_KEY: {"rank": rank}}) for rank in range(len(source))
    )
    way = -1 if swapped else 1
    return replace(
        joined, capture=replace(joined.capture, source=source[::way], facts=facts[::way])
    )


def tables(joined: Report, views: Iterable[str] = TABLES) -> dict[str, list[tuple[object, ...]]]:
    """Make tables, their rows in an order of their own."""
    found = {view: joined.by(view) for view in views}
    return {view: sorted(table.itertuples(index=False, name=None)) for view, table in found.items()}


SOME = st.lists(st.sampled_from(TABLES), min_size=6, max_size=6, unique=True)


@pytest.mark.slow
@given(programs(), st.permutations(PROCESSES), st.booleans(), SOME)
def test_no_table_depends_on_the_order_of_processes_and_files(program, processes, swapped, some):
    one = Report(named(attributed(program), swapped=False))
    other = Report(
        named(attributed(reordered(program, processes, swapped=swapped)), swapped=swapped)
    )
    assert one.totals == other.totals
    assert tables(one, some) == tables(other, some)


def test_no_table_depends_on_the_order_of_real_files(corpus, tmp_path):
    """Their names tell their ranks: without, a rank is the place of a file among the others."""
    paths = []
    for rank, name in enumerate(("pytorch-backward", "mnist-training", "two-processes")):
        paths.append(tmp_path / f"rank{rank}-{name}.sqlite")
        paths[-1].symlink_to(corpus / "nsys" / f"{name}.sqlite")
    one, other = bridge.report.load(*paths), bridge.report.load(*reversed(paths))
    assert one.totals == other.totals
    assert tables(one) == tables(other)
