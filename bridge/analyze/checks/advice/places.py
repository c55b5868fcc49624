"""The place in the user's program that a finding is about: where its largest row was called from."""

from __future__ import annotations

from bridge.analyze.core.source_lines import source_lines
from bridge.analyze.core.table import Table
from bridge.importers.records import record
from bridge.join.arrays import NONE
from bridge.join.attributed import AttributedCapture

OF_RANGES = {
    "op",
    "path",
    "total_ns",
    "count",
    "example",
}  # the columns of a table whose examples are ranges
EVENTS = {"activity", "call"}  # columns of tables whose examples are activities, and API calls


@record
class Place:
    """A line of the program: its file and number, and the function that it is in."""

    function: str
    file: str
    line: int


def place_of(attributed: AttributedCapture, evidence: Table) -> Place | None:
    """Return the line of the longest event of the first row of evidence, None if it is not known.

    An activity has the line of its API call, a range that of the innermost op around it whose place was
    recorded. Native code has no line.
    """
    is_of_ranges = set(evidence) >= OF_RANGES and not EVENTS & set(evidence)
    if not len(evidence) or not (is_of_ranges or EVENTS & set(evidence)):
        return None
    row = int(evidence["example"][0])
    if row == NONE:
        return None
    known = source_lines(attributed)
    if "activity" in evidence:
        row = int(attributed.attribution.launch[row])
    if not is_of_ranges:
        line = NONE if row == NONE else int(known.call[row])
    else:
        node = int(attributed.attribution.nesting.first_nodes(len(attributed.op))[row])
        line = NONE if node == NONE else int(known.node[node])
    if line == NONE or known.lines.line[line] < 1:
        return None
    lines = known.lines
    return Place(lines.function[line], lines.file[line], int(lines.line[line]))
