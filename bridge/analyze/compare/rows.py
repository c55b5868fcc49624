"""The parts of two reports matched: by their labels, and kernels left over on both sides by what is alike in their names."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from bridge.analyze.compare.parts import Parts
from bridge.analyze.groups import sums, texts
from bridge.join.arrays import NONE, Flags, Ints
from bridge.knowledge.kernels.classes import LONGEST

# -- Names of kernels without what another build, or another input, writes otherwise


HASH = re.compile(
    r"(?<![0-9a-zA-Z])(?=[0-9a-f]*\d)(?=[0-9a-f]*[a-f])[0-9a-f]{8,}(?![0-9a-zA-Z])"
    r"|17h[0-9a-f]{16}E"  # Rust's, in a mangled name
    r"|(?<=_GLOBAL__N__)[0-9a-f]{8,}|(?<=_INTERNAL_)[0-9a-f]{8,}"
)
LAMBDA = re.compile(r"(\{?lambda\([^)]*\)|\(?unnamed[ \w]*|'lambda\d*')#?\d*\)?\}?")
SPECIAL = re.compile(r"_(?:\d++(?:de|d|e|c)?+)++$")  # of Triton: counters, known arguments
COUNTER = re.compile(r"(?:\d++[._])++")  # of the name read backwards, in one go
TILE = re.compile(r"(?<![a-zA-Z0-9])\d+x\d+(?:x\d+)*(?![0-9])|(?<=_)(?:stages?|warps?|splitK)_?\d+")
VERSION = re.compile(r"_v\d+(?=_|$)|_?(?<![a-zA-Z])sm_?\d+a?(?![0-9])")
MANGLED = re.compile(r"_ZN?K?")
LENGTH = re.compile(r"\d{1,6}")
GENERATED = re.compile(
    r"^(?:triton|fused|fusion|loop|input|wrapped|default_function|tvmgen|kernel)|fusion"
)


def of_a_build(name: str) -> str:
    """Return a name without hashes, numbers of lambdas, and the counters of generated kernels."""
    name = name[:LONGEST]
    if GENERATED.search(name):
        name = _uncounted(SPECIAL.sub("", name))
    return LAMBDA.sub("lambda", HASH.sub("#", name))


def without_arguments(name: str) -> str:
    """Return the same without template arguments, parameters and return type; of a mangled name the names in it."""
    name = of_a_build(name)
    if MANGLED.match(name):
        return "::".join(_parts(name)) or name
    bare = _outside_brackets(name.replace("(anonymous namespace)", "anonymous"))
    return bare.strip().rpartition(" ")[2] or name


def without_tiles(name: str) -> str:
    """Return the same without tile sizes, stages and versions of an architecture."""
    return VERSION.sub("", TILE.sub("#", without_arguments(name)))


FORMS: tuple[Callable[[str], str], ...] = (of_a_build, without_arguments, without_tiles)


def _uncounted(name: str) -> str:
    """Return a name without the counters that it ends with."""
    found = COUNTER.match(name[::-1])
    return name[: len(name) - found.end()] if found else name


def _outside_brackets(name: str) -> str:
    """Return what stands in no ``<...>`` and before the first ``(`` outside them."""
    kept, depth = [], 0
    for character in name:
        if character == "(" and not depth:
            break
        depth += (character == "<") - (character == ">" and depth > 0)
        if not depth and character != ">":
            kept.append(character)
    return "".join(kept)


def _parts(mangled: str) -> list[str]:
    """Return the identifiers of a mangled name, up to its template arguments."""
    found, place = [], MANGLED.match(mangled).end()  # type: ignore[union-attr]
    while place < len(mangled) and (length := LENGTH.match(mangled, place)):
        place = length.end() + int(length[0])
        found.append(mangled[length.end() : place])
    return found


# -- The parts of two reports matched: by their labels, and kernels left over on both sides by what is alike in their names


KERNEL, WAS = "kernel", "kernel_before"
Labels = dict[str, NDArray[np.generic]]


@dataclass(frozen=True)
class Rows:
    """A row per part of either side: its labels, and the row of each part ``before`` and ``after``.

    Where kernels are told apart, `WAS` is what a renamed one was called before, '' for all others.
    """

    labels: Labels
    before: Ints
    after: Ints

    def __len__(self) -> int:
        return len(next(iter(self.labels.values())))


def matched(before: Parts, after: Parts) -> Rows:
    """Match the parts of two reports told apart by the same dimensions; none is matched twice."""
    both = {
        name: np.concatenate([_plain(side.labels[name]) for side in (before, after)])
        for name in before.labels
    }
    row = np.zeros(len(before) + len(after), np.int64)
    for column in both.values():
        codes, distinct = pd.factorize(column)
        row = pd.factorize(row * max(1, len(distinct)) + codes)[0].astype(np.int64)
    first = np.full(int(row.max(initial=NONE)) + 1, NONE)
    first[row[::-1]] = np.arange(len(row))[::-1]
    labels = {name: column[first] for name, column in both.items()}
    found = Rows(labels, row[: len(before)], row[len(before) :])
    return _renamed(found, before, after) if KERNEL in labels else found


def _plain(column: NDArray[np.generic]) -> NDArray[np.generic]:
    return column if column.dtype == np.int64 else column.astype(object)


def _renamed(rows: Rows, before: Parts, after: Parts) -> Rows:
    """Let kernels that are on one side alone be one row where only what builds change tells them apart."""
    onto = np.arange(len(rows))
    was = texts([""] * len(rows))
    left, right = _only(rows, rows.before, rows.after), _only(rows, rows.after, rows.before)
    times = [
        sums(codes, side.totals, len(rows))
        for codes, side in ((rows.before, before), (rows.after, after))
    ]
    for form in FORMS:
        pairs = _pairs(
            _alike(rows.labels, left, times[0], form), _alike(rows.labels, right, times[1], form)
        )
        for old, new in pairs:
            onto[old], was[new] = new, rows.labels[KERNEL][old]
            left[old] = right[new] = False
    kept, place = np.unique(onto, return_inverse=True)
    labels = {name: column[kept] for name, column in {**rows.labels, WAS: was}.items()}
    return replace(rows, labels=labels, before=place[rows.before], after=place[rows.after])


def _only(rows: Rows, here: Ints, there: Ints) -> Flags:
    """Return which rows one side alone has."""
    only = np.zeros(len(rows), bool)
    only[here] = True
    only[there] = False
    return only


def _alike(
    labels: Labels, some: Flags, time: Ints, form: Callable[[str], str]
) -> dict[tuple[object, ...], list[int]]:
    """Return some rows by their labels, kernels by a form of their names; most time first, ties by name."""
    found: dict[tuple[object, ...], list[tuple[int, str, int]]] = defaultdict(list)
    for row in np.flatnonzero(some).tolist():
        key = {name: column[row] for name, column in labels.items()}
        name = str(key[KERNEL])
        found[tuple((key | {KERNEL: form(name)}).values())].append((-int(time[row]), name, row))
    return {key: [row for _, _, row in sorted(members)] for key, members in found.items()}


def _pairs(
    left: dict[tuple[object, ...], list[int]], right: dict[tuple[object, ...], list[int]]
) -> list[tuple[int, int]]:
    """Return the first row of each key with the first on the other side, and so on."""
    return [pair for key in left for pair in zip(left[key], right.get(key, ()), strict=False)]
