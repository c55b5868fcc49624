"""A table as `bridge report` prints it: for people with the accounting under it, or for programs."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import pandas as pd

from bridge.analyze.steps.pace import paces
from bridge.analyze.tables.views import VIEWS
from bridge.cli.terminal import for_people
from bridge.render import document, headings, summaries
from bridge.render import table as tables
from bridge.report import Joined

if TYPE_CHECKING:
    import pandas as pd

    from bridge.report import Joined
    from bridge.scale.combined import Together


@dataclass(frozen=True)
class Printed:
    """``shown`` says which headings a table gets, ``unit`` that of its times, None for what fits each."""

    joined: Joined | Together
    by: str
    shown: str
    unit: str | None

    @property
    def source(self) -> Sequence[str]:
        """The names of the files."""
        return self.joined.report.source if isinstance(self.joined, Joined) else self.joined.source

    def text(self, table: pd.DataFrame, form: str, *, to_terminal: bool) -> str:
        """Return the table in a format: json, csv, md or table."""
        if form == "json":
            return document.as_json(self.by, self.source, self.joined.totals, table)
        if form == "csv":
            return document.as_csv(table)
        below = f"\n{self._of_steps()}{headings.line(self.joined.totals, self.joined.op_count)}\n"
        if form == "md":
            return tables.as_markdown(self.shown, table, self.unit) + below
        if not len(table) and (nothing := self._nothing()):
            return f"{nothing}{below}"
        shown = for_people(self.shown, table, "a --filter", to_terminal=to_terminal, unit=self.unit)
        return shown + below

    def _of_steps(self) -> str:
        """Return what is said of all steps together, whichever of them are shown."""
        return summaries.step_lines(paces(self.joined.by("step"))) if self.by == "step" else ""

    def _nothing(self) -> str:
        """Return what to say where there is no row; '' for a bare table."""
        if (
            self.by == "step"
            and isinstance(self.joined, Joined)
            and len(self.joined.attributed.iterations)
        ):
            return "no steps among what is asked for"  # the report has some
        return VIEWS[self.by].nothing if self.by in VIEWS else ""
