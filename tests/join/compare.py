"""What the code under test says, in the words of its witness, and when the two say the same."""

from __future__ import annotations

from functools import cache

import pytest
from witness.training import Said, Step

from bridge.analyze.core.table import Table
from bridge.join.arrays import NONE
from bridge.join.attribution import REASONS
from bridge.join.grammar import parse

FLOATS = ("mean_ns", "p50_ns", "p95_ns", "median_ns", "share", "gb_per_s")


def steps_of(steps):
    """Return the steps of a capture."""
    columns = ("range", "number", "report", "process", "start", "end")
    rows = zip(*(getattr(steps, column).tolist() for column in columns), strict=True)
    return [Step(*row) for row in rows]


@cache
def meaning(name):
    """Return what a name says."""
    label = parse(name)
    module = dict(label.arguments)["module"] if label.kind == "module" else label.op
    return Said(label.kind, label.backward, str(module))


def chain(nesting, node):
    """Return the ranges from the outermost to a node's."""
    found = []
    while node != NONE:
        found.append(int(nesting.range[node]))
        node = nesting.parent[node]
    return tuple(reversed(found))


def found_of(joined):
    """Return launch, stack of ranges and reason of each activity, as the witness does."""
    found, names = joined.attribution, list(REASONS)
    for launch, node, code in zip(found.launch, found.node, found.reason, strict=True):
        yield int(launch), chain(found.nesting, node), names[code]


def said(profile):
    return [(found.launch, found.stack, found.reason) for found in profile.found]


def keyed(table, *names):
    """Return a table as one dict per key; a key that comes twice is an error."""
    rows = table.records() if isinstance(table, Table) else table.to_dict("records")
    found = {tuple(row.pop(name) for name in names): row for row in rows}
    assert len(found) == len(rows)
    return found


def same(ours, truth):
    """Hold a table to the truth: integers to the last digit, floats as floats go."""
    assert ours.keys() == truth.keys()
    for key, row in ours.items():
        assert row.keys() == truth[key].keys()
        for column, value in row.items():
            exact = truth[key][column]
            near = pytest.approx(exact, rel=1e-12) if column.endswith(FLOATS) else exact
            assert value == near, (key, column)


def only(table):
    """Let single names be keys as pairs are."""
    return {(name,): row for name, row in table.items()}
