"""`CallChains`: the call stacks of the host, as a tree of frames that calls with the same callers share.

A chain is a node and the nodes above it: its caller, the caller of that, and so on. A million API calls of
one line of a program have one node.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from bridge.importers import frames
from bridge.importers.frames import MISSING
from bridge.importers.texts import Ints

NODES = ("parent", "function", "file", "line", "python")
SAMPLES = ("time", "thread", "process", "chain", "report")
SOURCES = ("report", "process", "domain", "op", "function", "file", "line")

# -- Frames of Python: `file.py(12): function` of PyTorch, and forms alike


PYTHON_SUFFIXES = (".py", ".pyx", ".ipynb")
# A file begins where its word does: a word of a million characters is looked at once.
PLACE = re.compile(r"(?P<file>(?<![^\s()])[^\s()]+\.pyx?|<[\w .]+>)(?:\(|:)(?P<line>\d+)\)?")
DECORATION = re.compile(r"^\[Python\]\s*|^(?:at|in)\s+|\s+(?:at|in|\()$|[\s:()]+$|^[\s:()]+")


@dataclass(frozen=True)
class Frame:
    """A frame of a call stack: for native code ``file`` is its module, and ``line`` is -1."""

    function: str
    file: str
    line: int = MISSING
    python: bool = False


def python_frame(text: str) -> Frame | None:
    """Return the frame that a text such as ``train.py(12): step`` names, None for other texts."""
    place = PLACE.search(text)
    if place is None:
        return None
    function = text[: place.start()] + " " + text[place.end() :]
    before = None
    while function != before:
        before, function = function, DECORATION.sub("", function)
    return Frame(function, place["file"], int(place["line"]), python=True)


def recorded_frame(symbol: str, module: str, *, resolved: bool = True) -> Frame:
    """Return the frame of a symbol and its module, as Nsight Systems writes them."""
    from html import unescape  # takes 2 ms, and most reports have no call chains

    symbol, module = unescape(symbol), unescape(module)
    if (symbol.startswith("[Python]") or ".py" in symbol) and (frame := python_frame(symbol)):
        return frame
    if module.endswith(PYTHON_SUFFIXES):
        function = DECORATION.sub("", symbol)
        return Frame(function, module, python=True)
    return Frame(symbol if resolved else "", module)


# -- The tree


@dataclass(frozen=True)
class Tree:
    """Nodes of call chains: the row of the caller's node (-1 for the outermost) and the frame of each.

    A node stands after its caller. ``leaf`` is the node of each chain.
    """

    parent: Ints
    frame: Ints
    leaf: Ints


def tree(chain: Ints, depth: Ints, frame: Ints, chains: int) -> Tree:
    """Return the tree of chains: a row per frame, ``depth`` 0 is the innermost; a chain may be empty."""
    order = np.lexsort((-depth, chain))  # outermost first
    chain, frame = chain[order], frame[order]
    first = np.searchsorted(chain, np.arange(chains))
    level = np.arange(len(chain)) - first[chain] if len(chain) else chain
    by_level = np.argsort(level, kind="stable")
    edges = np.cumsum([0, *np.bincount(level)]) if len(chain) else np.zeros(1, np.int64)
    size = int(frame.max(initial=0)) + 1
    leaf, count = np.full(chains, MISSING), 0
    parents, node_frames = [np.empty(0, np.int64)], [np.empty(0, np.int64)]
    for start, end in zip(edges[:-1].tolist(), edges[1:].tolist(), strict=True):
        rows = by_level[start:end]
        owner = chain[rows]
        code, keys = pd.factorize((leaf[owner] + 1) * size + frame[rows])
        above, own = np.divmod(keys, size)
        parents.append(above - 1)
        node_frames.append(own)
        leaf[owner] = count + code
        count += len(keys)
    return Tree(np.concatenate(parents), np.concatenate(node_frames), leaf)


def nodes_of(made: Tree, known: Sequence[Frame]) -> pd.DataFrame:
    """Return the data frame of the nodes of a tree, whose frames are numbers in ``known``."""
    return node_frame(made.parent, made.frame, known)


def node_frame(parent: Ints, code: Ints, known: Sequence[Frame]) -> pd.DataFrame:
    """Return nodes as a data frame (parent, function, file, line, python); ``code`` is the frame of each."""
    columns = [
        frames.names_of([getattr(row, name) for row in known]) for name in ("function", "file")
    ]
    function, file = (
        frames.names(column.codes[code].astype(np.int64), list(column.categories))
        for column in columns
    )
    line = np.array([row.line for row in known], np.int64)[code]
    python = np.array([row.python for row in known], bool)[code]
    return pd.DataFrame(
        {"parent": parent, "function": function, "file": file, "line": line, "python": python}
    )


# -- The call chains of a capture


def _no_rows() -> Ints:
    return np.empty(0, np.int64)


def _no_nodes() -> pd.DataFrame:
    return node_frame(_no_rows(), _no_rows(), [])


def _no_samples() -> pd.DataFrame:
    return pd.DataFrame({name: _no_rows() for name in SAMPLES})


def source_frame(report: int, rows: Iterable[tuple[int, int, str, Frame]] = ()) -> pd.DataFrame:
    """Return the data frame of ops whose place in the program is recorded: process, domain, op, frame."""
    listed = list(rows)
    return pd.DataFrame(
        {
            "report": np.full(len(listed), report, np.int64),
            "process": np.array([row[0] for row in listed], np.int64),
            "domain": np.array([row[1] for row in listed], np.int64),
            "op": frames.names_of([row[2] for row in listed]),
            "function": frames.names_of([row[3].function for row in listed]),
            "file": frames.names_of([row[3].file for row in listed]),
            "line": np.array([row[3].line for row in listed], np.int64),
        }
    )


def _no_sources() -> pd.DataFrame:
    return source_frame(0)


@dataclass(frozen=True)
class CallChains:
    """Call stacks as they were recorded; empty where none were, or where they were not read.

    ``nodes`` is the tree: ``parent`` (row of the caller, -1 for the outermost), ``function`` ('' if it
    was not resolved), ``file`` (of native code its module), ``line`` (-1 if unknown), ``python``.
    ``launch``, ``system_call`` and ``range`` hold the innermost node of each API call, system call or
    range, -1 for none; they are empty where no row has one. ``samples`` are stacks by time: time,
    thread, process, chain, report. ``sources`` tells where ops are in the program, as
    ``nvtx_op(source=True)`` recorded it.
    """

    nodes: pd.DataFrame = field(default_factory=_no_nodes)
    launch: Ints = field(default_factory=_no_rows)
    system_call: Ints = field(default_factory=_no_rows)
    range: Ints = field(default_factory=_no_rows)
    samples: pd.DataFrame = field(default_factory=_no_samples)
    sources: pd.DataFrame = field(default_factory=_no_sources)

    def __bool__(self) -> bool:
        """Return whether anything is known."""
        return bool(len(self.nodes) or len(self.sources))


def concat(
    parts: Sequence[CallChains], rows: Sequence[tuple[int, int, int]], reports: Sequence[int]
) -> CallChains:
    """Return the chains of several captures as one.

    ``rows`` counts the launches, system calls and ranges of each, ``reports`` is the first report of
    each.
    """
    if not any(parts):
        return CallChains()
    starts = np.cumsum([0, *(len(part.nodes) for part in parts)])[:-1].tolist()
    launch, system_call, range_ = (
        _joined([getattr(part, name) for part in parts], [counts[kind] for counts in rows], starts)
        for kind, name in enumerate(("launch", "system_call", "range"))
    )
    nodes = [
        part.nodes.assign(parent=_shifted(part.nodes["parent"], start))
        for part, start in zip(parts, starts, strict=True)
    ]
    samples = [
        part.samples.assign(
            chain=_shifted(part.samples["chain"], start), report=part.samples["report"] + report
        )
        for part, start, report in zip(parts, starts, reports, strict=True)
    ]
    sources = [
        part.sources.assign(report=part.sources["report"] + report)
        for part, report in zip(parts, reports, strict=True)
    ]
    return CallChains(
        frames.concat(nodes),
        launch,
        system_call,
        range_,
        frames.concat(samples),
        frames.concat(sources),
    )


def _joined(columns: Sequence[Ints], rows: Sequence[int], starts: Sequence[int]) -> Ints:
    if not any(len(column) for column in columns):
        return _no_rows()
    parts = [
        _shifted(column, start) if len(column) else np.full(count, MISSING)
        for column, count, start in zip(columns, rows, starts, strict=True)
    ]
    return np.concatenate(parts)


def _shifted(column: pd.Series | NDArray[np.int64], start: int) -> Ints:
    values = np.asarray(column)
    return np.where(values == MISSING, MISSING, values + start)
