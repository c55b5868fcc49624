"""What is done with a mutant, by the kind of its file: as commands do, and the figures held against each other."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

import numpy as np

import bridge
from bridge.analyze.tables.request import TableRequest
from bridge.cli import diff as budgets
from bridge.cli.terminal import harmless
from bridge.importers import onednn
from bridge.importers.errors import ReportError
from bridge.join import options
from bridge.knowledge import kernels
from bridge.render import document
from bridge.render import table as tables
from bridge.report import Report

VIEWS = "op op-kernel kernel memcpy range module phase wait launch gap idle step device rule collective".split()
LONGEST_LINE = 2_000
T = TypeVar("T")
U = TypeVar("U")
LOOK = tables.Look(width=120, color=True)


def report(path: Path) -> None:
    """Load, join, and make every table in every format."""
    joined = bridge.load(path)
    adds_up(joined)
    assert all(len(line) < LONGEST_LINE for line in (*joined.capture.warnings, *joined.warnings))
    for view in VIEWS:
        shown(joined, view)


def shown(joined: Report, view: str) -> None:
    """Make a table in all formats; one that a report cannot have is refused in a line."""
    try:
        table = joined.table(TableRequest.of(view))
    except ValueError as error:
        if joined.capture.facts[0].timeline or not str(error).isprintable():
            raise
        return
    document.as_json(view, joined.capture.source, joined.totals, table).encode()
    document.as_csv(table).encode()
    rows = tables.as_markdown(joined.layout(view), table).encode().decode().splitlines()
    assert len(rows) == len(table) + 2, "a row of Markdown in two lines"
    few = tables.for_terminal(joined.layout(view), table.head(100), LOOK)
    few.encode()
    assert "\x1b]" not in few, "a command to the terminal"


def adds_up(joined: Report) -> None:
    """Assert that every activity is in one op, or outside under one reason, and that times add up."""
    rows, totals = joined.op_kernels, joined.totals
    inside = rows["op"].notna().to_numpy()
    reason = rows["reason"].astype(str).to_numpy()
    assert len(rows) == len(joined.capture.activities) == totals["activities"]
    assert ((reason == "") == inside).all(), "in an op and outside"
    outside = {name: part["activities"] for name, part in totals["unattributed"].items()}
    found = {str(n): int((reason == n).sum()) for n in np.unique(reason[~inside])}
    assert found == outside, "reasons that do not add up"
    parts = sum(part["gpu_ns"] for part in totals["unattributed"].values())
    assert totals["gpu_ns"] == totals["attributed_ns"] + parts, "times that do not add up"
    ops = joined.by("op")
    assert int(ops["gpu_self_ns"].sum()) == totals["attributed_ns"], "ops that do not add up"
    assert (ops["gpu_self_ns"] >= 0).all()


def log(path: Path) -> None:
    """Load a log of oneDNN."""
    found = onednn.load(path)
    events = found.events.to_pandas()
    assert (events["duration_ns"] >= 0).all()
    assert len(events)
    for name in events.columns:
        events[name].astype(str).str.cat().encode()


def budget(path: Path) -> None:
    """Read a budget, as --budget does."""
    said(budgets.read_budget, path)


def rules(path: Path) -> None:
    """Read rules of ops, and use them, as --op-rules does."""
    found = said(lambda p: options.rules(p.read_text(encoding="utf-8")), path)
    options.ops_of(["aten::mm", "conv1", ""], found)


def kernel_rules(path: Path) -> None:
    """Read rules of kernels, as --kernel-rules does."""
    said(lambda p: kernels.rules(p.read_text(encoding="utf-8")), path)


def said(read: Callable[[T], U], what: T) -> U:
    """Read a user's own file, whose mistakes are `ValueError`s of any kind, each a line."""
    try:
        return read(what)
    except ValueError as error:
        raise ReportError(harmless(str(error))) from error
