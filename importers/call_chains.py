"""`CallChains`: the call stacks of the host, as a tree of frames that calls with the same callers share.

A chain is a node and the nodes above it: its caller, the caller of that, and so on. A million API calls of
one line of a program have one node.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

import numpy as np

from bridge.importers import frames
from bridge.importers.arrays import MISSING, Flags, Ints, factorize
from bridge.importers.frames import Names
from bridge.importers.records import record

# -- Frames of Python: `file.py(12): function` of PyTorch, and forms alike


PYTHON_SUFFIXES = (".py", ".pyx", ".ipynb")
# A file begins where its word does: a word of a million characters is looked at once.
PLACE = re.compile(r"(?P<file>(?<![^\s()])[^\s()]+\.pyx?|<[\w .]+>)(?:\(|:)(?P<line>\d+)\)?")
DECORATION = re.compile(r"^\[Python\]\s*|^(?:at|in)\s+|\s+(?:at|in|\()$|[\s:()]+$|^[\s:()]+")


@record
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


@record
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
        code, keys = factorize((leaf[owner] + 1) * size + frame[rows])
        above, own = np.divmod(keys, size)
        parents.append(above - 1)
        node_frames.append(own)
        leaf[owner] = count + code
        count += len(keys)
    return Tree(np.concatenate(parents), np.concatenate(node_frames), leaf)


# -- The call chains of a capture


class Nodes(frames.Frame):
    """Nodes of the tree: the frame of a call stack, and the row of its caller, -1 for the outermost.

    ``function`` is '' if it was not resolved, ``file`` is the module of native code.
    """

    parent: Ints
    function: Names
    file: Names
    line: Ints
    python: Flags


class Samples(frames.Frame):
    """Stacks by time; ``chain`` is the innermost node."""

    time: Ints
    thread: Ints
    process: Ints
    chain: Ints
    report: Ints


class Sources(frames.Frame):
    """Ops whose place in the program is recorded, as ``nvtx_op(source=True)`` does."""

    report: Ints
    process: Ints
    domain: Ints
    op: Names
    function: Names
    file: Names
    line: Ints


def nodes_of(parent: Ints, code: Ints, known: Sequence[Frame]) -> Nodes:
    """Return nodes by their parents and their frames, which are numbers in ``known``."""
    return Nodes(
        parent=parent,
        function=Names.of(row.function for row in known)[code],
        file=Names.of(row.file for row in known)[code],
        line=np.array([row.line for row in known], np.int64)[code],
        python=np.array([row.python for row in known], bool)[code],
    )


def sources_of(report: int, rows: Iterable[tuple[int, int, str, Frame]]) -> Sources:
    """Return the places of ops: process, domain, op, frame."""
    listed = list(rows)
    return Sources(
        report=np.full(len(listed), report, np.int64),
        process=np.array([row[0] for row in listed], np.int64),
        domain=np.array([row[1] for row in listed], np.int64),
        op=Names.of(row[2] for row in listed),
        function=Names.of(row[3].function for row in listed),
        file=Names.of(row[3].file for row in listed),
        line=np.array([row[3].line for row in listed], np.int64),
    )


def _no_rows() -> Ints:
    return np.empty(0, np.int64)


@dataclass(frozen=True)
class CallChains:
    """Call stacks as they were recorded; empty where none were, or where they were not read.

    ``launch``, ``system_call`` and ``range`` hold the innermost node of each API call, system call or
    range, -1 for none; they are empty where no row has one.
    """

    nodes: Nodes = field(default_factory=Nodes)
    launch: Ints = field(default_factory=_no_rows)
    system_call: Ints = field(default_factory=_no_rows)
    range: Ints = field(default_factory=_no_rows)
    samples: Samples = field(default_factory=Samples)
    sources: Sources = field(default_factory=Sources)

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
        part.nodes.replace(parent=_shifted(part.nodes.parent, start))
        for part, start in zip(parts, starts, strict=True)
    ]
    samples = [
        part.samples.replace(
            chain=_shifted(part.samples.chain, start), report=part.samples.report + report
        )
        for part, start, report in zip(parts, starts, reports, strict=True)
    ]
    sources = [
        part.sources.replace(report=part.sources.report + report)
        for part, report in zip(parts, reports, strict=True)
    ]
    return CallChains(
        nodes=Nodes.concat(nodes),
        launch=launch,
        system_call=system_call,
        range=range_,
        samples=Samples.concat(samples),
        sources=Sources.concat(sources),
    )


def _joined(columns: Sequence[Ints], rows: Sequence[int], starts: Sequence[int]) -> Ints:
    if not any(len(column) for column in columns):
        return _no_rows()
    parts = [
        _shifted(column, start) if len(column) else np.full(count, MISSING)
        for column, count, start in zip(columns, rows, starts, strict=True)
    ]
    return np.concatenate(parts)


def _shifted(column: Ints, start: int) -> Ints:
    return np.where(column == MISSING, MISSING, column + start)
