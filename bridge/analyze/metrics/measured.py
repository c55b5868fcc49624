"""A metric of every activity, as arrays: by a short name or by Nsight Compute's own."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from bridge.analyze.groups import Floats, texts
from bridge.analyze.metrics.headline import HEADLINES, MOST, Source, usual
from bridge.join.order import Ints
from importers import frames
from importers.ncu.metrics import Metrics
from importers.report import Report

MATCH = "match"  # how sure it is that the metrics are of the kernels of a row
SURE = ("call", "path", "geometry", "kernel")  # the codes of `Metrics.sure`


@dataclass(frozen=True)
class Measured:
    """A metric of each measured kernel: numbers, NaN for none; or texts, '' for none."""

    how: str
    unit: str
    numbers: Floats
    texts: NDArray[np.object_] | None = None


def wanted(report: Report, names: Sequence[str]) -> list[Measured]:
    """Return the metrics of these names; ValueError, in words for the user, for what there is not."""
    if not len(report.metrics):
        raise ValueError(
            "no metrics in the report: give a report of Nsight Compute (.ncu-rep, or what ncu --csv prints),"
            " one beside the report with --ncu, or a run that was imported with one"
        )
    return [_measured(report.metrics, name) for name in names]


def _measured(metrics: Metrics, name: str) -> Measured:
    values = metrics.table
    headline = HEADLINES.get(name)
    if headline is None:
        return _own(metrics, name)
    found = np.full(metrics.kernels, np.nan)
    for source in reversed(headline.sources):  # those named first have the last word
        numbers = _sum(values, source, headline.unit, len(found))
        found = np.where(np.isnan(numbers), found, numbers)
    return Measured(headline.how, headline.unit, found)


def _sum(values: pd.DataFrame, source: Source, unit: str, kernels: int) -> Floats:
    """Return the sum of a source's metrics for each kernel, NaN where one is missing."""
    total = np.zeros(kernels)
    for factor, name in source:
        total += factor * _numbers(values, _rows(values, name, unit), kernels)
    return total


def numbers_of(values: pd.DataFrame, name: str, kernels: int) -> Floats:
    """Return a metric of each of so many kernels by its own name, NaN for none."""
    return _numbers(values, _rows(values, name), kernels)


def _rows(values: pd.DataFrame, name: str, unit: str | None = None) -> Ints:
    """Return the rows of a metric, in this unit."""
    found = _is(values["metric"], name)
    if unit is not None:
        found &= _is(values["unit"], unit)
    return np.flatnonzero(found)


def _is(column: pd.Series, name: str) -> NDArray[np.bool_]:
    categories = list(column.cat.categories)
    if name not in categories:
        return np.zeros(len(column), bool)
    same: NDArray[np.bool_] = frames.codes(column) == categories.index(name)
    return same


def _numbers(values: pd.DataFrame, rows: Ints, kernels: int) -> Floats:
    numbers = np.full(kernels, np.nan)
    numbers[frames.ints(values, "kernel")[rows]] = values["value"].to_numpy()[rows]
    return numbers


def _own(metrics: Metrics, name: str) -> Measured:
    """Return a metric by Nsight Compute's own name."""
    values = metrics.table
    rows = _rows(values, name)
    if not len(rows):
        raise ValueError(f"no metric {name!r}: --metrics list shows those there are")
    unit = str(values["unit"].iloc[rows[0]])
    numbers = _numbers(values, rows, metrics.kernels)
    if np.isnan(numbers[frames.ints(values, "kernel")[rows]]).all():
        said = texts([""] * len(numbers))
        said[frames.ints(values, "kernel")[rows]] = values["text"].astype(object).to_numpy()[rows]
        return Measured(MOST, unit, numbers, said)
    return Measured(usual(name, unit), unit, numbers)


def listed(report: Report) -> pd.DataFrame:
    """Return a row per metric that there is, those with short names first: unit, how it adds up, kernels that have it."""
    wanted(report, ())
    metrics = report.metrics
    short = [(name, one.how, _measured(metrics, name)) for name, one in HEADLINES.items()]
    rows = [(name, m.unit, how, int((~np.isnan(m.numbers)).sum())) for name, how, m in short]
    codes, values = frames.codes(metrics.table["metric"]), metrics.table
    count = np.bincount(codes, minlength=1)
    first = np.unique(codes, return_index=True)[1]
    units = values["unit"].astype(object).to_numpy()[first].tolist()
    of_text = np.isnan(values["value"].to_numpy()[first]).tolist()
    names = values["metric"].cat.categories.tolist()
    for name, unit, is_text, kernels in sorted(
        zip(names, units, of_text, count.tolist(), strict=True)
    ):
        rows.append((name, unit, "" if is_text else usual(name, unit), kernels))
    metric, unit, how, kernels = zip(*(row for row in rows if row[3]), strict=True)
    return pd.DataFrame(
        {
            "metric": texts(metric),
            "unit": texts(unit),
            "over_kernels": texts(how),
            "kernels": kernels,
        }
    )
