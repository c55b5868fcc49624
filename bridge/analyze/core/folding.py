"""Prepare tables for people: fold ops that differ in a number, leave out rows without GPU time, move times."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from bridge.analyze.core.catalog import TABLES
from bridge.analyze.core.catalog.column import INSTANT
from bridge.analyze.core.table import Table
from bridge.importers.arrays import lookup
from bridge.importers.frames import Names
from bridge.importers.records import record
from bridge.join.arrays import NONE
from bridge.join.attributed import AttributedCapture
from bridge.join.families import folded_names
from bridge.join.steps import without_number

GPU_TIMES = ("gpu_total_ns", "gpu_self_ns")  # columns that tell whether a row has GPU time


@record
class Folded:
    """A capture in which ops whose names differ in a number that counts up are one, such as ``Batch *``.

    ``ops`` are the names of these ops, each with the number of ops that it stands for.
    """

    attributed: AttributedCapture
    ops: dict[str, int]

    @classmethod
    def of(cls, attributed: AttributedCapture) -> Folded:
        """Fold the ops of numbered steps, two or more, and those of other families, eight or more."""
        names, own = folded_ops(attributed.ops), {*attributed.ops}
        folded = {name: n for name, n in Counter(names).items() if name not in own}
        if not folded:
            return cls(attributed, {})
        one = Names.of(names)
        op = lookup(one.codes, attributed.op)
        return cls(replace(attributed, ops=tuple(one.texts), op=op), folded)


def folded_ops(ops: Sequence[str]) -> list[str]:
    """Return the name under which each op is shown, its own or that of a family, such as ``Batch *``."""
    names = [without_number(name) for name in folded_names(ops)]
    number_of, own = Counter(names), {*ops}
    is_folded = {name: n > 1 and name not in own for name, n in number_of.items()}
    return [name if is_folded[name] else op for name, op in zip(names, ops, strict=True)]


def with_gpu_time(table: Table) -> Table:
    """Return the rows with GPU time; all rows if none has any, or if the table does not tell."""
    column = next((column for column in GPU_TIMES if column in table), None)
    if column is None or not (table[column] > 0).any():
        return table
    return table[table[column] > 0]


def moved(by: str, rows: Table, ns: int) -> Table:
    """Return the rows with times on the clock of the report moved by ``ns``; missing ones stay -1."""
    described = TABLES[by].columns if by in TABLES else ()
    columns = [column for column in described if column.unit == INSTANT and column.name in rows]
    if not columns:
        return rows
    times = {column.name: rows[column.name] + ns for column in columns}
    is_missing = {column.name: rows[column.name] == NONE for column in columns if column.missing}
    times |= {name: np.where(mask, NONE, times[name]) for name, mask in is_missing.items()}
    return rows.assign(**times)
