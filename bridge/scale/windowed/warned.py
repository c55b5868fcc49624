"""What is unlawful in a report, counted over its windows."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from bridge.analyze import lawful
from bridge.analyze.lawful import Finding
from bridge.scale.windowed.part import Part
from importers.nsys.windows import Window


class Warned:
    """Says what `bridge.analyze.lawful` says of the whole report."""

    def __init__(self) -> None:
        self.rows: list[int] = []  # by rule
        self.first: list[tuple[int, str]] = []
        self.rules: Sequence[Finding] = ()

    def add(self, joined: Part, window: Window) -> None:
        """Count the rows of a window, each where it begins."""
        self.rules = list(lawful.findings(joined))
        self.rows = self.rows or [0] * len(self.rules)
        self.first = self.first or [(np.iinfo(np.int64).max, "")] * len(self.rules)
        for n, rule in enumerate(self.rules):
            rows = rule.rows[window.begun[rule.rows]] if rule.frame == "ranges" else rule.rows
            self.rows[n] += len(rows)
            if len(rows):
                number = window.number[rule.frame][rows]
                at = int(np.argmin(number))
                one = lawful.shown(getattr(joined.report, rule.frame), int(rows[at]))
                self.first[n] = min(self.first[n], (int(number[at]), one))

    def lines(self, source: str) -> tuple[str, ...]:
        """Return a line per rule that any row breaks."""
        return tuple(
            lawful.line(source, rule, rows, f"#{number} {example}")
            for rule, rows, (number, example) in zip(self.rules, self.rows, self.first, strict=True)
            if rows
        )
