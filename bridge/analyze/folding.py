"""Fold what people need not see one by one: ops of numbered steps, and rows without GPU time."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
import pandas as pd

from bridge.join.arrays import NONE
from bridge.join.attributed import AttributedCapture
from bridge.join.steps import without_number

GPU_TIMES = ("gpu_total_ns", "gpu_self_ns")  # columns that tell whether a row has GPU time


@dataclass(frozen=True)
class Folded:
    """A capture in which the ops of numbered steps are one op, such as ``Batch *``.

    ``ops`` are the names of these ops, each with the number of ops that it stands for.
    """

    attributed: AttributedCapture
    ops: dict[str, int]

    @classmethod
    def of(cls, attributed: AttributedCapture) -> Folded:
        """Fold the ops of steps whose names differ in the number only; two or more are folded."""
        names = [without_number(op) for op in attributed.ops]
        number_of = {name: names.count(name) for name in set(names) - {*attributed.ops}}
        folded = {name: number for name, number in number_of.items() if number > 1}
        if not folded:
            return cls(attributed, {})
        pairs = zip(names, attributed.ops, strict=True)
        codes, ops = pd.factorize(np.array([n if n in folded else op for n, op in pairs], object))
        op = np.append(codes, NONE)[attributed.op].astype(np.int64)
        return cls(replace(attributed, ops=tuple(ops), op=op), folded)


def with_gpu_time(table: pd.DataFrame) -> pd.DataFrame:
    """Return the rows with GPU time; all rows if none has any, or if the table does not tell."""
    column = next((column for column in GPU_TIMES if column in table), None)
    if column is None or not (table[column] > 0).any():
        return table
    return table[table[column] > 0]
