"""What is said of many reports whose aggregates alone are here: tables and accounting, as `bridge.Joined` has them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np
import pandas as pd

from bridge.analyze.ranks.members import twice
from bridge.analyze.tables.table import Options, arranged, rows_of
from bridge.analyze.tables.views import LABELS, VIEWS, dimensions_of, heading
from bridge.analyze.totals import Share, Totals
from bridge.join.attribution import REASONS
from bridge.join.domains import UnknownDomainError
from bridge.scale.aggregates import Aggregates
from bridge.scale.merging import Merged, Wholes, together, unpacked
from bridge.scale.requests import OF_ONE, REPORT, checked, figures, named, needed


@dataclass(frozen=True)
class Together:
    """The reports' aggregates in the order of their places; ``called`` is how messages name them all."""

    parts: tuple[Aggregates, ...]
    called: str = "these reports"

    @property
    def source(self) -> tuple[str, ...]:
        """The files' base names."""
        return tuple(part.source for part in self.parts)

    @property
    def warnings(self) -> tuple[str, ...]:
        """What the user should know before trusting the figures, one line each."""
        return tuple(line for part in self.parts for line in part.warnings)

    @property
    def rank_warnings(self) -> list[str]:
        """Return a line if several processes have one rank."""
        files = zip(self._files, self.parts, strict=True)
        return twice([(file, home) for file, part in files for home in part.homes])

    @property
    def ranges(self) -> int:
        """How many ranges all reports have."""
        return sum(part.ranges for part in self.parts)

    @cached_property
    def totals(self) -> Totals:
        """The accounting: all activities, and where they went."""
        return added([part.totals for part in self.parts])

    @property
    def op_count(self) -> int:
        """How many ops own at least one activity."""
        return len(frozenset[str]().union(*(part.ops for part in self.parts)))

    def headings(self, view: str) -> str:
        """Return which headings a table gets for people, by `bridge.analyze.tables.views.heading`."""
        return heading(view, activities=self.totals["activities"])

    def by(
        self, view: str | Sequence[str], *, columns: str | Sequence[str] = (), **how: Any
    ) -> pd.DataFrame:
        """Return a table, as `bridge.Joined.by` does; ValueError, in a line for the user, for what is not here."""
        by = view if isinstance(view, str) else ",".join(view)
        words = columns.split(",") if isinstance(columns, str) else columns
        options = Options(columns=tuple(w.strip() for w in words if w.strip()), **how)
        checked(by, options)
        merged = self._merged(by, options)
        whole = self._whole(by)

        def made(wanted: Sequence[str]) -> pd.DataFrame:
            for column in needed(rows_of(by), wanted):
                if column not in merged.sums and column not in merged.times:
                    raise ValueError(
                        f"{self.called}: no {column} is kept; give the reports themselves"
                    )
            return pd.DataFrame({**merged.labels, **figures(rows_of(by), merged, whole, wanted)})

        return arranged(by, options, made)

    def _whole(self, by: str) -> Wholes:
        """Return what shares are of: those in the table of kernels of the time of kernels."""
        sums: Counter[str] = Counter()
        for part in self.parts:
            sums.update(part.wholes)
        return {**sums, "gpu": sums["kernels"]} if by == "kernel" else dict(sums)

    def _merged(self, by: str, options: Options) -> Merged:
        name = named(by, options)
        if any(name not in part.tables for part in self.parts):
            raise ValueError(f"{self.called}: no table {name!r} is kept; {HINT}")
        files = self._files
        parts = [
            _placed(unpacked(part.tables[name]), by, file, several=len(files) > 1)
            for part, file in zip(self.parts, files, strict=True)
        ]
        of_one = by not in VIEWS and not OF_ONE.isdisjoint(dimensions_of(by))
        return together(parts, apart=of_one)

    @property
    def _files(self) -> list[str]:
        """What the files are called; of several by one name each with its place among those given."""
        several = Counter(self.source)
        return [
            f"{part.source} ({part.place + 1})" if several[part.source] > 1 else part.source
            for part in self.parts
        ]


HINT = "give the reports themselves, or import them with --keep"


def _placed(table: Merged, by: str, file: str, *, several: bool) -> Merged:
    """Return a report's table with the names that its file has among all."""
    if by in VIEWS:
        return table
    names, labels = dimensions_of(by), dict(table.labels)
    if REPORT in names or (several and not {"thread", "process"}.isdisjoint(names)):
        labels[REPORT] = np.full(table.rows, file, object)
    if several and "device" in labels:
        labels["device"] = np.array([*(f"{n} in {file}" for n in labels["device"]), None], object)[
            :-1
        ]
    # Rows of one file are not named by it but where that is asked for: in its own place.
    order = [c for n in names for c in LABELS.get(n, (n,)) if several or n == c or c != REPORT]
    return replace(table, labels={c: labels[c] for c in order if c in labels})


def added(every: Sequence[Totals]) -> Totals:
    """Return the accounting of several parts together."""
    rest = {
        reason: Share(
            activities=sum(t["unattributed"][reason]["activities"] for t in there),
            gpu_ns=sum(t["unattributed"][reason]["gpu_ns"] for t in there),
        )
        for reason in REASONS
        if (there := [t for t in every if reason in t["unattributed"]])
    }
    return Totals(
        activities=sum(t["activities"] for t in every),
        gpu_ns=sum(t["gpu_ns"] for t in every),
        attributed_ns=sum(t["attributed_ns"] for t in every),
        unattributed=rest,
    )


def assembled(parts: Sequence[Aggregates], called: str = "these reports") -> Together:
    """Put what workers sent together, whatever order it came in.

    Raises UnknownDomainError for a domain that was asked for and is in no report.
    """
    ordered = tuple(sorted(parts, key=lambda part: part.place))
    unknown = frozenset.intersection(*(part.undeclared for part in ordered))
    if unknown:
        raise UnknownDomainError(f"no domain {min(unknown)!r} in any of the reports")
    return Together(ordered, called)
