"""Tables as commands print them: for people with the accounting below, or for programs."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from bridge.analyze.core.catalog.lookup import needs_activities
from bridge.analyze.core.folding import with_gpu_time
from bridge.analyze.tables.request import TableRequest
from bridge.cli import options
from bridge.render import document, summaries, summary, units
from bridge.render import table as tables

if TYPE_CHECKING:
    from bridge.analyze.core.filters import Condition
    from bridge.analyze.core.session_cycles import ActiveCycles
    from bridge.analyze.core.table import Table
    from bridge.analyze.run.ranks.table import Run
    from bridge.analyze.tables.table_source import TableSource


# -- Tables for a terminal


def terminal_text(
    by: str,
    table: Table,
    *,
    to_terminal: bool,
    top: int | None = None,
    unit: str | None = None,
    every: bool = False,
    more: str = "--top all",
    without_time: int = 0,
) -> str:
    """Return a table as text.

    Without ``top``, the number of rows asked for, a terminal gets the first `TERMINAL_ROWS` rows and
    a line that says how many more there are; ``more`` is the option that shows them, and
    ``without_time`` the number of rows that were left out as they have no GPU time.
    """
    is_cut = top is None and options.is_on_terminal(to_terminal=to_terminal)
    few = table.head(options.TERMINAL_ROWS) if is_cut else table
    look = replace(options.look(to_terminal=to_terminal), unit=unit)
    return tables.for_terminal(by, few, look, every=every) + _more(
        len(table) - len(few), without_time, more
    )


def _more(left: int, without_time: int, option: str) -> str:
    """Return the line on rows that are not shown, '' if all are."""
    if not left + without_time:
        return ""
    idle = f"{'without' if not left else f'{units.count(without_time)} of them without'} GPU time"
    note = f", {idle}" if without_time else ""
    return f"… and {units.count(left + without_time)} more{note} ({option})\n"


@dataclass(frozen=True)
class ListedTable:
    """A table that is written with a head of its own: JSON fields, or text around it.

    Attributes:
        name: the name of the table, which says how its columns are shown.
        rows: the rows to write.
        fields: the fields of the JSON document before its rows.
        above: text above the table.
        below: text below the table.

    """

    name: str
    rows: Table
    fields: dict[str, Any]
    above: str = ""
    below: str = ""

    def text(self, form: str, *, top: int | None, to_terminal: bool) -> str:
        """Return the table as JSON, CSV, Markdown or text."""
        if form == "json":
            return document.with_rows(self.fields, self.rows)
        if form == "csv":
            return document.as_csv(self.rows)
        above = f"{self.above}\n" if self.above else ""
        if form == "md":
            return f"{above}{tables.as_markdown(self.name, self.rows)}{self.below}"
        shown = terminal_text(self.name, self.rows, top=top, to_terminal=to_terminal)
        return f"{above}{shown}{self.below}"


# -- Tables of `bridge report`


WITH_CAUSES = (
    "idle",
    "gap",
    "critical",
)  # tables of the graph of the run, which tells why GPUs were idle
FORMAT = "table"  # for people
CONDITION = "no row meets the condition"
WHOLE_NAMES = "; = compares whole names, {0}~{1} finds those with {1} in them"


ALONE = {  # what stands for the accounting, by the side that was read alone
    "host": "only the host was read (--only host): nothing is known of the GPUs",
    "gpu": "only the GPUs were read (--only gpu): nothing is known of ops",
}


@dataclass(frozen=True)
class TableOutput:
    """How a table of a report is written.

    Attributes:
        source: the report.
        by: the name of the table.
        unit: the unit of times; None: a unit that suits each value.
        every: whether to show every column.
        top: the number of rows asked for, None if none was.
        fold: whether a terminal shows no rows without GPU time.
        conditions: the conditions that the rows meet.
        ranks: who the ranks are, which stands above a table of them.
        cycles: the active cycles of a session, if the table holds other steps, too.
        side: the side of the report that was read alone, host or gpu; "" for both.

    """

    source: TableSource
    by: str
    unit: str | None
    every: bool = False
    top: int | None = None
    fold: bool = False
    conditions: Sequence[Condition] = ()
    ranks: Run | None = None
    cycles: ActiveCycles | None = None
    side: str = ""

    def text(self, table: Table, form: str, *, to_terminal: bool) -> str:
        """Return the table in a format: json, csv, md or table."""
        source = self.source
        if form == "json":
            beside = {"ranks": self.ranks.rows} if self.ranks else {}
            return document.as_json(
                self.by, source.source, totals=source.totals, table=table, beside=beside
            )
        if form == "csv":
            return document.as_csv(table)
        accounting = ALONE.get(self.side) or tables.accounting_line(source.totals, source.op_count)
        is_wrapped = to_terminal and form == FORMAT
        graphs = tables.graphs_line(self.by, source.graphs, source.totals["gpu_ns"])
        graph_lines = options.wrapped([graphs] if graphs else [], to_terminal=is_wrapped)
        run_line = summaries.run_line(
            table.attrs.get("run_ns"), is_part=table.attrs.get("is_part", False)
        )
        below = f"\n{run_line}{self._of_all_steps()}{summaries.cycles_line(self.cycles)}{graph_lines}{accounting}\n"
        layout = "" if self.every and self.by == "list" else source.layout(self.by)
        if not len(table) and (nothing := self._nothing()):
            above = self._headline(to_terminal=to_terminal) if form == FORMAT else ""
            return f"{above}{options.wrapped([nothing], to_terminal=is_wrapped).rstrip()}{below}"
        if form == "md":
            text = tables.as_markdown(layout, table, self.unit, every=self.every)
            return self._ranks(form, to_terminal=to_terminal) + text + below
        shown = self._with_gpu_time(table, to_terminal=to_terminal)
        above = self._headline(to_terminal=to_terminal) + self._ranks(form, to_terminal=to_terminal)
        text = above + terminal_text(
            layout,
            shown,
            to_terminal=to_terminal,
            top=self.top,
            unit=self.unit,
            every=self.every,
            without_time=len(table) - len(shown),
        )
        return text + below

    def _nothing(self) -> str:
        """Return the message for a table without rows, "" for none."""
        has_rows = self.source.totals["activities"] > 0 or not needs_activities(self.by)
        if not (self.conditions and has_rows):
            return self.source.nothing(self.by)
        names = (c for c in self.conditions if c.comparison == "=" and c.value.isidentifier())
        one = next(names, None)
        return CONDITION + (WHOLE_NAMES.format(one.column, one.value) if one else "")

    def _with_gpu_time(self, table: Table, *, to_terminal: bool) -> Table:
        """Return the rows that a terminal shows of a table that is not cut by the user."""
        is_glance = self.fold and self.top is None
        if not is_glance or not options.is_on_terminal(to_terminal=to_terminal):
            return table
        return with_gpu_time(table)

    def _ranks(self, form: str, *, to_terminal: bool) -> str:
        """Return the table of who the ranks are, the line on all of them, and an empty line."""
        if self.ranks is None:
            return ""

        rows = self.ranks.rows
        text = (
            tables.as_markdown("ranks", rows, self.unit)
            if form == "md"
            else terminal_text(
                "ranks", rows, to_terminal=to_terminal, unit=self.unit, more="--format json"
            )
        )
        return f"{text}\n{summaries.ranks_line(self.ranks.totals)}\n\n"

    def _headline(self, *, to_terminal: bool) -> str:
        """Return the lines on the use of the GPUs, and an empty line; nothing if one side was read."""
        if self.side:
            return ""
        use = self.source.use if self.by in WITH_CAUSES else self.source.busy
        lines = summary.headline(use, self.source.ranges)
        return options.wrapped([*lines, ""], to_terminal=to_terminal) if lines else ""

    def _of_all_steps(self) -> str:
        """Return the lines about all steps of the report."""
        if self.by != "step":
            return ""
        from bridge.analyze.run.steps import paces

        of_loops = paces(self.source.table(TableRequest("step")))
        return summaries.step_lines(of_loops) + summaries.loop_lines(of_loops)
