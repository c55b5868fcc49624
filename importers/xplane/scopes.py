"""The modules that XLA's ops belong to, as ranges around ops that follow one another.

XLA keeps of each op where in the program it comes from, as ``jit(f)/transpose(jvp(net))/layer1/dot_general``: the
transformations and named scopes around it, and the primitive. TensorFlow's names have the same form. A profile has
no ranges of the scopes; they are made of the ops, as the profiler's own viewer does.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from bridge.importers.arrays import MISSING, Flags, Ints, lookup
from bridge.importers.frames import Frame, Names

TRANSFORMED = re.compile(r"(\w*)\((.*)\)")
FUNCTIONS = frozenset(["jit", "pjit"])  # functions that are compiled: they are no parts of a model
BACKWARD = "transpose("
MAX_NAME = 4096  # characters of an op's name that are looked at
MAX_MODULES = 64  # around an op
# Components that JAX writes of its own control flow and function calls.
STRUCTURE = re.compile(
    r"while|body|cond|scan|branch_\d+_fun|checkpoint|remat\d?|rematted_computation|shard_map"
    r"|closed_call|core_call|custom_(?:jvp|vjp)_call(?:_jaxpr)?"
)


class Path(NamedTuple):
    """The modules around an op, the outermost first, and whether the op is part of a backward pass."""

    modules: tuple[str, ...]
    backward: bool

    @property
    def texts(self) -> list[str]:
        """The texts of the ranges of these modules, as `bridge.torch` names those of a program."""
        kind = "backward" if self.backward else "module"
        names = (".".join(self.modules[: level + 1]) for level in range(len(self.modules)))
        return [f"{kind}:{name}" for name in names]


def path_of(op_name: str) -> Path:
    """Return the modules that the name of an op tells; of several names the first counts."""
    *scopes, _ = _components(op_name.partition(";")[0][:MAX_NAME])
    modules = [name for scope in scopes if (name := _module(scope))]
    return Path(tuple(modules[:MAX_MODULES]), any(BACKWARD in scope for scope in scopes))


def _components(op_name: str) -> list[str]:
    """Split a name at slashes outside of brackets."""
    parts = [""]
    for part in op_name.split("/"):
        if parts[-1].count("(") > parts[-1].count(")"):
            parts[-1] += f"/{part}"
        else:
            parts.append(part)
    return parts


def _module(scope: str) -> str:
    """Return the module that a component names, '' if it names none."""
    while match := TRANSFORMED.fullmatch(scope):
        if match[1] in FUNCTIONS:
            return ""
        scope = match[2]
    if STRUCTURE.fullmatch(scope):
        return ""
    return re.sub(r"\s", "_", scope).strip(":").replace("/", ".")


# -- Ranges


class Spans(Frame):
    """Ranges on threads, before they are a frame of a capture.

    ``op`` is the number of the op of XLA in each, -1 for none, ``run`` a number of the execution of a program that it
    is a part of, -1 if it is not known. ``module`` counts the modules around a range of a module, -1 for others.
    """

    start: Ints
    end: Ints
    thread: Ints
    op: Ints
    run: Ints
    module: Ints
    text: Names
    json: Names
    python: Flags


def modules(spans: Spans, paths: Sequence[Path]) -> Spans:
    """Return the ranges of modules around the ops in spans; ``paths`` are those of the ops.

    Ops of one module that follow one another in the same range are in one range of the module.
    """
    texts, table = _table(paths)
    order = np.lexsort((-spans.end, spans.start, spans.thread))
    parent = _parents(spans.thread[order], spans.start[order], spans.end[order])
    rows = np.flatnonzero(spans.op[order] != MISSING)
    rows = rows[np.argsort(parent[rows], kind="stable")]
    ops = spans.take(order[rows])
    # Of ops in no range, the thread tells which follow one another.
    begins = _changes(parent[rows]) | _changes(ops.thread) | _changes(ops.run)
    parts = [Spans()]
    for level in range(table.shape[1]):
        text = table[ops.op, level]
        begins = begins | _changes(text)
        first = np.flatnonzero(begins)
        last = np.append(first[1:], len(ops)) - 1
        known = np.flatnonzero(text[first] != MISSING)
        first, last = first[known], last[known]
        parts.append(
            Spans(
                start=ops.start[first],
                end=ops.end[last],
                thread=ops.thread[first],
                module=np.full(len(first), level),
                text=Names(text[first], texts),
            )
        )
    return Spans.concat(parts)


def _changes(values: Ints) -> Flags:
    """Return which values differ from the one before; the first does."""
    result = np.ones(len(values), bool)
    result[1:] = values[1:] != values[:-1]
    return result


def _table(paths: Sequence[Path]) -> tuple[list[str], Ints]:
    """Return the texts of modules, and the code of each for each path (row) and level (column), -1 for none."""
    codes: dict[str, int] = {}
    table = np.full((len(paths), max((len(path.modules) for path in paths), default=0)), MISSING)
    for row, path in enumerate(paths):
        for level, text in enumerate(path.texts):
            table[row, level] = codes.setdefault(text, len(codes))
    return [*codes], table


def _parents(thread: Ints, start: Ints, end: Ints) -> Ints:
    """Return the place of the range around each one, -1 for none; they are sorted, outer ones first."""
    place, depth = np.arange(len(thread)), _depths(thread, start, end)
    by_depth = np.argsort(depth, kind="stable")
    keys = (depth * len(thread) + place)[by_depth]
    # The last one before it that is one level out.
    outer = np.searchsorted(keys, (depth - 1) * len(thread) + place) - 1
    return np.where(depth > 0, lookup(by_depth, outer), MISSING)


def _depths(thread: Ints, start: Ints, end: Ints) -> Ints:
    """Return how many ranges of the thread are open when each begins."""
    depth = np.zeros(len(thread), np.int64)
    edges = np.flatnonzero(np.diff(thread, prepend=MISSING - 1, append=MISSING - 1))
    for first, last in zip(edges[:-1].tolist(), edges[1:].tolist(), strict=True):
        rows = slice(first, last)
        ended = np.searchsorted(np.sort(end[rows]), start[rows], side="right")
        depth[rows] = np.maximum(np.arange(last - first) - ended, 0)
    return depth
