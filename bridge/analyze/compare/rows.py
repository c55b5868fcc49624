"""The parts of two reports matched: by their labels, and kernels left over on both sides by what is alike in their names."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from bridge.analyze.compare.kernel_names import FORMS
from bridge.analyze.compare.parts import Parts
from bridge.analyze.groups import sums, texts
from bridge.join.order import NONE, Flags, Ints

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
