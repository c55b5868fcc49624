"""What a notebook shows: tables with units, advice, quality, summaries and comparisons as HTML.

The styles set no colour of text or page, so that they suit light and dark themes.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, fields
from html import escape
from typing import TYPE_CHECKING, Any, Self

from bridge.analyze.checks.advice import Advice, AdviceReport
from bridge.analyze.checks.quality import Quality
from bridge.analyze.checks.summary import Summary
from bridge.analyze.core.catalog import Column
from bridge.analyze.core.table import Table
from bridge.render import advice, first_screen, quality, units
from bridge.render import table as tables
from bridge.render.table_columns import displayed, writer

if TYPE_CHECKING:
    import pandas as pd

    from bridge.render.diff import DiffView

# -- Pieces of HTML


STYLE = """
.nsight-bridge td, .nsight-bridge th { padding: 1px 8px; text-align: right; white-space: nowrap }
.nsight-bridge .name { text-align: left; max-width: 40em; overflow: hidden; text-overflow: ellipsis }
.nsight-bridge td.bar { background: linear-gradient(#56b4e966, #56b4e966) no-repeat left / var(--share) 100% }
.nsight-bridge p, .nsight-bridge li { margin: 0.3em 0; text-align: left }
"""
LONG = 50  # letters of a name; longer ones may be cut, and are shown in full under the pointer
EVIDENCE_ROWS = 3


def document(parts: Iterable[str]) -> str:
    """Return pieces of HTML as the output of one cell."""
    return f'<div class="nsight-bridge"><style>{STYLE}</style>{"".join(parts)}</div>'


def text(value: str) -> str:
    """Return a text as HTML, on one line."""
    return escape(tables.clean(value))


def paragraphs(lines: Iterable[str]) -> Iterator[str]:
    """Yield each line that is not empty as a paragraph."""
    yield from (f"<p>{text(line)}</p>" for line in lines if line)


def rows_as_html(by: str, table: Table) -> str:
    """Return a table with units and with bars behind its main times."""
    columns = displayed(by, table)
    head = "".join(f"<th{_class(column)}>{text(column.heading)}</th>" for column in columns)
    cells = [_cells(column, table[column.name].tolist()) for column in columns]
    rows = "".join(f"<tr>{''.join(row)}</tr>" for row in zip(*cells, strict=True))
    return f"<table><thead><tr>{head}</tr></thead><tbody>{rows}</tbody></table>"


def _cells(column: Column, values: list[Any]) -> list[str]:
    largest, write = max((*values, 1)) if column.bar else 1, writer(column)
    return [
        f"<td{_class(column)}{_share(value / largest) if column.bar else ''}{_title(content)}>{content}</td>"
        for value, content in ((value, text(write(value))) for value in values)
    ]


def _class(column: Column) -> str:
    return ' class="name"' if column.is_name else ' class="bar"' if column.bar else ""


def _share(share: float) -> str:
    return f' style="--share: {100 * share:.1f}%"'


def _title(content: str) -> str:
    return f' title="{content}"' if len(content) > LONG else ""


def _more(count: int) -> str:
    return f"… and {units.count(count)} more" if count > 0 else ""


# -- What the calls of a report return


@dataclass(frozen=True, repr=False)
class ShownTable:
    """A table for people: the first rows with units, and the accounting of all activities.

    Attributes:
        by: the name of the columns that are displayed.
        table: the rows that are shown; times in ns.
        left_out: the number of further rows.
        above: lines above the table.
        below: lines under it.

    """

    by: str
    table: Table
    left_out: int = 0
    above: tuple[str, ...] = ()
    below: tuple[str, ...] = ()

    @property
    def rows(self) -> pd.DataFrame:
        """The table as a data frame."""
        return self.table.to_pandas()

    def __repr__(self) -> str:
        """Return the table as text that fits the terminal."""
        from rich.console import Console  # only a prompt needs it

        look = tables.Look(Console().width)
        shown = tables.for_terminal(self.by, self.table, look)
        lines = filter(None, (_more(self.left_out), *self.below))
        return "\n".join((*self.above, shown + "\n".join(lines)))

    def _repr_html_(self) -> str:
        below = paragraphs((_more(self.left_out), *self.below))
        return document(
            (*paragraphs(self.above), rows_as_html(self.by, self.table), *below),
        )


class ShownAdvice(AdviceReport):
    """Advice that notebooks show as a list, each piece with the first rows of its evidence."""

    @classmethod
    def of(cls, advised: AdviceReport) -> Self:
        return cls(**_fields(advised))

    def _repr_html_(self) -> str:
        pieces = "".join(f"<li>{''.join(_advice_parts(piece))}</li>" for piece in self.advice)
        lines = (line.strip() for line in advice.rest(self))
        return document(
            (*paragraphs([advice.head(self)]), f"<ol>{pieces}</ol>", *paragraphs(lines))
        )


def _advice_parts(piece: Advice) -> Iterator[str]:
    yield f"<b>{text(piece.rule.title)}</b> ({text(piece.rule.name)})"
    yield from paragraphs(
        (advice.sentence(piece), advice.worth(piece), f"→ {advice.remedy(piece)}")
    )
    evidence = piece.finding.evidence
    if len(evidence):
        yield rows_as_html("", evidence.head(EVIDENCE_ROWS))
        yield from paragraphs([_more(len(evidence) - EVIDENCE_ROWS)])


class ShownQuality(Quality):
    """The quality of a capture; notebooks show the score and what each reason costs."""

    @classmethod
    def of(cls, judged: Quality) -> Self:
        return cls(**_fields(judged))

    def _repr_html_(self) -> str:
        """Return the score, the reasons and the profiler's overhead as HTML."""
        reasons = "".join(
            f"<li><b>{'' if self.score is None else f'−{deduction.cost} '}{text(deduction.reason.name)}</b>"
            f"{''.join(paragraphs((quality.sentence(deduction), f'→ {quality.remedy(deduction)}')))}</li>"
            for deduction in self.reasons
        )
        parts = [*paragraphs([quality.head(self)]), f"<ul>{reasons}</ul>"]
        if len(self.overhead):
            parts += [*paragraphs([quality.OVERHEAD]), rows_as_html("", self.overhead)]
        return document(parts)


class ShownSummary(Summary):
    """The summary of a report, which notebooks show as lines."""

    @classmethod
    def of_summary(cls, summarized: Summary) -> Self:
        return cls(**_fields(summarized))

    def _repr_html_(self) -> str:
        """Return the lines of `bridge summary` as HTML."""
        return document(paragraphs(first_screen.lines(self)))


def _fields(record: Any) -> dict[str, Any]:
    return {field.name: getattr(record, field.name) for field in fields(record)}


def diff_as_html(view: DiffView) -> str:
    """Return the rows of a comparison, and the accounting under them."""
    from bridge.render import diff  # only comparisons need it

    if view.comparison is None:
        return document([])
    table = diff.text_columns(view.comparison, view.rows)
    names = diff.ARROW.join(", ".join(side) for side in (view.before, view.after))
    return document(
        (
            *paragraphs([names, diff.work_text(view.comparison)]),
            rows_as_html(diff.COLUMNS, table),
            *paragraphs([_more(view.left_out), *diff.lines(view.comparison)]),
        )
    )


def line_as_html(line: str) -> str:
    """Return one line as the output of a cell."""
    return document(paragraphs([line]))


@dataclass(frozen=True, repr=False)
class Picture:
    """A picture that notebooks show; ``svg`` is its source."""

    svg: str

    def __repr__(self) -> str:
        """Return a line that says how to see the picture."""
        return "<Picture: a notebook shows it; for a file: bridge plot REPORT -o ops.svg>"

    def _repr_svg_(self) -> str:
        return self.svg
